//! Reading a template.

use serde_json::Value;

use super::{Comparison, Node, Operand, Path, Step};

/// The parts of a template, in order.
pub(super) fn nodes(text: &str) -> Result<Vec<Node>, String> {
    Parser { rest: text }.nodes(false)
}

/// What is left to be read.
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
