//! kubectl's JSONPath templates: `{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\n"}{end}`,
//! filters `[?(@.type=="Ready")]`, slices, unions, wildcards and recursive descent.

mod parse;

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
        parse::nodes(text).map(|nodes| Self { nodes })
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
