//! kubectl's JSONPath templates: `{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\n"}{end}`,
//! filters `[?(@.type=="Ready")]`, slices, unions, wildcards and recursive descent.

use serde_json::Value;

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Path(Path),
    Range(Path, Vec<Node>),
}

/// Steps from the root (`$`) or the current element (`@`).
#[derive(Debug, Clone, PartialEq)]
struct Path {
    from_root: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Descend,
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    Union(Vec<Step>),
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Template {
    /// Also takes a bare path: `.metadata.name`, `metadata.name`.
    pub(crate) fn parse_relaxed(text: &str) -> Result<Self, String> {
        if text.contains('{') {
            return Self::parse(text);
        }
        let path = text.trim();
        if path.is_empty() {
            return Err("the template is empty".to_owned());
        }
        let dot = if path.starts_with(['.', '[', '$', '@']) {
            ""
        } else {
            "."
        };
        Self::parse(&format!("{{{dot}{path}}}"))
    }

    /// Reads a template: text with `{...}` in it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let nodes = parser.nodes(false)?;
        Ok(Self { nodes })
    }

    /// The text for this value. Several values of one path are joined by blanks.
    pub(crate) fn render(&self, root: &Value) -> String {
        let mut text = String::new();
        render(&self.nodes, root, root, &mut text);
        text
    }

    /// The values of the template's paths, each as text; nothing where there is nothing.
    pub(crate) fn values(&self, root: &Value) -> Vec<String> {
        let paths = self.nodes.iter().filter_map(|node| match node {
            Node::Path(path) => Some(path.find(root, root)),
            Node::Text(_) | Node::Range(..) => None,
        });
        paths.flatten().map(value_text).collect()
    }
}

fn render(nodes: &[Node], root: &Value, current: &Value, text: &mut String) {
    for node in nodes {
        match node {
            Node::Text(literal) => text.push_str(literal),
            Node::Path(path) => {
                let found = path.find(root, current);
                let all: Vec<String> = found.into_iter().map(value_text).collect();
                text.push_str(&all.join(" "));
            }
            Node::Range(path, body) => {
                for element in path.find(root, current) {
                    render(body, root, element, text);
                }
            }
        }
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl Path {
    fn find<'v>(&self, root: &'v Value, current: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![if self.from_root { root } else { current }];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| step.take(root, value))
                .collect();
        }
        found
    }
}

impl Step {
    fn take<'v>(&self, root: &'v Value, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Wildcard => children(value),
            Self::Descend => {
                let mut all = vec![value];
                let mut next = 0;
                while next < all.len() {
                    all.extend(children(all[next]));
                    next += 1;
                }
                all
            }
            Self::Index(index) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                position(*index, list.len())
                    .and_then(|index| list.get(index))
                    .into_iter()
                    .collect()
            }
            Self::Slice(from, to, step) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let clamp = |bound: Option<i64>, default: usize| match bound {
                    None => default,
                    Some(bound) => position(bound, list.len()).unwrap_or(0).min(list.len()),
                };
                let (from, to) = (clamp(*from, 0), clamp(*to, list.len()));
                let step = usize::try_from(*step).unwrap_or(1).max(1);
                list.get(from..to.max(from))
                    .unwrap_or_default()
                    .iter()
                    .step_by(step)
                    .collect()
            }
            Self::Union(steps) => steps
                .iter()
                .flat_map(|step| step.take(root, value))
                .collect(),
            Self::Filter(left, comparison) => children(value)
                .into_iter()
                .filter(|element| holds(root, element, left, comparison.as_ref()))
                .collect(),
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// Counts negative positions from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    if index >= 0 {
        usize::try_from(index).ok()
    } else {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    }
}

fn holds(
    root: &Value,
    element: &Value,
    left: &Operand,
    comparison: Option<&(Comparison, Operand)>,
) -> bool {
    let values = |operand: &Operand| -> Vec<Value> {
        match operand {
            Operand::Literal(value) => vec![value.clone()],
            Operand::Path(path) => path.find(root, element).into_iter().cloned().collect(),
        }
    };
    let left = values(left);
    let Some((comparison, right)) = comparison else {
        return !left.is_empty();
    };
    let (Some(left), Some(right)) = (left.first(), values(right).into_iter().next()) else {
        return false;
    };
    let order = match (left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => a.partial_cmp(b),
        (a, b) => (a == b).then_some(std::cmp::Ordering::Equal),
    };
    match comparison {
        Comparison::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    /// Up to the end, or to `{end}` inside a range.
    fn nodes(&mut self, in_range: bool) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        loop {
            let Some(open) = self.rest.find('{') else {
                if in_range {
                    return Err("a {range} has no {end}".to_owned());
                }
                if !self.rest.is_empty() {
                    nodes.push(Node::Text(std::mem::take(&mut self.rest).to_owned()));
                }
                return Ok(nodes);
            };
            if open > 0 {
                nodes.push(Node::Text(self.rest[..open].to_owned()));
            }
            self.rest = self.rest[open + 1..].trim_start();
            if self.eat("}") {
                continue;
            }
            if self.eat_word("end") {
                self.close()?;
                return if in_range {
                    Ok(nodes)
                } else {
                    Err("{end} without {range}".to_owned())
                };
            }
            if self.eat_word("range") {
                let path = self.path()?;
                self.close()?;
                nodes.push(Node::Range(path, self.nodes(true)?));
                continue;
            }
            while !self.eat("}") {
                nodes.push(match self.rest.chars().next() {
                    Some('"' | '\'') => Node::Text(self.quoted()?),
                    Some(_) => Node::Path(self.path()?),
                    None => return Err("a { is not closed".to_owned()),
                });
                self.rest = self.rest.trim_start();
            }
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.rest = self.rest.trim_start();
        if self.eat("}") {
            Ok(())
        } else {
            Err(format!("expected }} before {:?}", self.rest))
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) if rest.starts_with([' ', '}', '\t']) => {
                self.rest = rest.trim_start_matches([' ', '\t']);
                true
            }
            _ => false,
        }
    }

    fn path(&mut self) -> Result<Path, String> {
        let from_root = self.eat("$");
        if !from_root {
            self.eat("@");
        }
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat(".") {
                if self.rest.starts_with('[') {
                    continue;
                }
                if self.rest.is_empty() || self.rest.starts_with(['}', ' ', ')', ']']) {
                    // `{.}`: the thing itself.
                    break;
                }
                steps.push(self.field()?);
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else if steps.is_empty()
                && self
                    .rest
                    .starts_with(|c: char| c.is_alphabetic() || c == '*')
            {
                steps.push(self.field()?);
            } else {
                break;
            }
        }
        if self.rest.is_empty()
            || self
                .rest
                .starts_with(['}', ' ', ')', ']', '=', '!', '<', '>', '"', '\'', ',', '\t'])
        {
            Ok(Path { from_root, steps })
        } else {
            Err(format!("unexpected {:?}", self.rest))
        }
    }

    fn field(&mut self) -> Result<Step, String> {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((index, character)) = characters.next() {
            match character {
                // An escaped dot belongs to the name: {.metadata.labels.kubernetes\.io/hostname}
                '\\' => match characters.next() {
                    Some((_, escaped)) => name.push(escaped),
                    None => return Err("a backslash ends the path".to_owned()),
                },
                '.' | '[' | ']' | '}' | ' ' | '\t' | ')' | '=' | '!' | '<' | '>' | '"' | '\''
                | ',' => {
                    end = index;
                    break;
                }
                other => name.push(other),
            }
        }
        self.rest = &self.rest[end..];
        match name.as_str() {
            "" => Err(format!("a field name is missing before {:?}", self.rest)),
            "*" => Ok(Step::Wildcard),
            _ => Ok(Step::Field(name)),
        }
    }

    fn bracket(&mut self) -> Result<Step, String> {
        self.rest = self.rest.trim_start();
        if self.eat("?(") {
            let left = self.operand()?;
            let comparison = match self.comparison() {
                Some(comparison) => Some((comparison, self.operand()?)),
                None => None,
            };
            self.rest = self.rest.trim_start();
            if !self.eat(")") {
                return Err(format!("the filter is not closed before {:?}", self.rest));
            }
            return self.end_bracket(Step::Filter(left, comparison));
        }
        let mut steps = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            steps.push(match self.rest.chars().next() {
                Some('\'' | '"') => Step::Field(self.quoted()?),
                Some('*') => {
                    self.eat("*");
                    Step::Wildcard
                }
                _ => self.index_or_slice()?,
            });
            self.rest = self.rest.trim_start();
            if !self.eat(",") {
                break;
            }
        }
        let step = if steps.len() == 1 {
            steps.remove(0)
        } else {
            Step::Union(steps)
        };
        self.end_bracket(step)
    }

    fn end_bracket(&mut self, step: Step) -> Result<Step, String> {
        self.rest = self.rest.trim_start();
        if self.eat("]") {
            Ok(step)
        } else {
            Err(format!("a [ is not closed before {:?}", self.rest))
        }
    }

    fn index_or_slice(&mut self) -> Result<Step, String> {
        let first = self.number();
        if !self.eat(":") {
            return first
                .map(Step::Index)
                .ok_or_else(|| format!("an index is expected before {:?}", self.rest));
        }
        let to = self.number();
        let step = if self.eat(":") {
            self.number().unwrap_or(1)
        } else {
            1
        };
        Ok(Step::Slice(first, to, step))
    }

    fn number(&mut self) -> Option<i64> {
        let digits = self.rest.strip_prefix('-').unwrap_or(self.rest);
        let sign = self.rest.len() - digits.len();
        let length = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let number = self.rest[..sign + length].parse().ok()?;
        self.rest = &self.rest[sign + length..];
        Some(number)
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('\'' | '"') => Ok(Operand::Literal(Value::String(self.quoted()?))),
            Some('@' | '$' | '.') => Ok(Operand::Path(self.path()?)),
            _ => {
                let end = self
                    .rest
                    .find([')', ' ', '=', '!', '<', '>'])
                    .unwrap_or(self.rest.len());
                let word = &self.rest[..end];
                let literal = serde_json::from_str(word).map_err(|_| {
                    format!("{word:?} is neither a path nor a value (texts need quotes)")
                })?;
                self.rest = &self.rest[end..];
                Ok(Operand::Literal(literal))
            }
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        self.rest = self.rest.trim_start();
        [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ]
        .into_iter()
        .find(|(sign, _)| self.eat(sign))
        .map(|(_, comparison)| comparison)
    }

    fn quoted(&mut self) -> Result<String, String> {
        let mut characters = self.rest.char_indices();
        let quote = characters
            .next()
            .map(|(_, quote)| quote)
            .unwrap_or_default();
        let mut text = String::new();
        while let Some((index, character)) = characters.next() {
            if character == quote {
                self.rest = &self.rest[index + character.len_utf8()..];
                return Ok(text);
            }
            if character != '\\' {
                text.push(character);
                continue;
            }
            text.push(match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => break,
            });
        }
        Err(format!("the text is not closed: {}", self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux"}}, "status": {"n": 1, "ok": true,
             "conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}},
            {"metadata": {"name": "b"}, "status": {"n": 5, "conditions": [{"type": "Ready", "status": "False"}]}},
            {"metadata": {"name": "c"}, "status": {"n": 9}},
        ]})
    }

    #[test]
    fn templates_find_what_kubectl_finds() {
        for (template, expected) in [
            ("{.kind}", "List"),
            ("{$.kind}", "List"),
            ("kind", "List"),
            (".items[0].metadata.name", "a"),
            ("{.items[*].metadata.name}", "a b c"),
            ("{.items[-1].metadata.name}", "c"),
            ("{.items[0:2].metadata.name}", "a b"),
            ("{.items[::2].metadata.name}", "a c"),
            ("{.items[0,2].metadata.name}", "a c"),
            ("{.items[0]['metadata','kind'].name}", "a"),
            ("{.items[0].metadata.labels.kubernetes\\.io/os}", "linux"),
            ("{.items[0].metadata.labels['kubernetes.io/os']}", "linux"),
            ("{..name}", "a b c"),
            ("{.items[?(@.status.n>1)].metadata.name}", "b c"),
            ("{.items[?(@.metadata.name!=\"b\")].status.n}", "1 9"),
            ("{.items[?(@.status.conditions)].metadata.name}", "a b"),
            (
                "{.items[0].status.conditions[?(@.type=='Ready')].status}",
                "True",
            ),
            ("{.items[0].status.ok}", "true"),
            (
                "{.items[0].status.conditions[1]}",
                r#"{"status":"False","type":"Disk"}"#,
            ),
            (
                "{range .items[*]}{.metadata.name}={.status.n}{\"\\n\"}{end}",
                "a=1\nb=5\nc=9\n",
            ),
            (
                "{range .items[*]}{.metadata.name}{range .status.conditions[*]} {.type}{end};{end}",
                "a Ready Disk;b Ready;c;",
            ),
            ("name: {.items[1].metadata.name}!", "name: b!"),
            ("{.nothing}", ""),
            ("{.items[7].x}", ""),
        ] {
            let parsed = Template::parse_relaxed(template)
                .unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.render(&tree()), expected, "{template}");
        }
    }

    #[test]
    fn broken_templates_say_what_is_wrong() {
        for (template, part) in [
            ("{.a", "not closed"),
            ("{range .items[*]}{.a}", "no {end}"),
            ("{end}", "without {range}"),
            ("{.a[x]}", "an index is expected"),
            ("{.a[?(@.b==c)]}", "texts need quotes"),
            ("{.a[0}", "not closed"),
            ("{\"x}", "not closed"),
            ("", "empty"),
        ] {
            let error = Template::parse_relaxed(template).unwrap_err();
            assert!(error.contains(part), "{template}: {error}");
        }
    }
}
