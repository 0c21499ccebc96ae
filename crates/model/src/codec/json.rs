//! JSON text to trees, noticing keys given twice.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::limits::{Duplicates, MAX_DEPTH, MAX_DOCUMENTS, ValueBudget, too_deep};
use super::read::{Located, ReadError, Tree};

/// Why a text is not read as JSON.
#[derive(Debug)]
pub(crate) enum JsonError {
    /// It is no JSON.
    Syntax(ReadError),
    /// It is too much.
    Limit(ReadError),
}

/// Reads the JSON values of a text, one after the other.
pub(crate) fn read(text: &str) -> Result<Vec<Located>, JsonError> {
    let mut budget = ValueBudget::default();
    let mut trees = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let (mut start, mut line, mut line_start) = (0, 1, 0);
    while let Some(skipped) = stream.next() {
        skipped.map_err(|error| {
            JsonError::Syntax(ReadError::at(
                error.line(),
                error.column(),
                message_of(&error),
            ))
        })?;
        let end = stream.byte_offset();
        let slice = &text[start..end];
        let content = start + slice.len() - slice.trim_start().len();
        if let Some(last) = text[line_start..content].rfind('\n') {
            line += text[line_start..content].matches('\n').count();
            line_start += last + 1;
        }
        let column = text[line_start..content].chars().count() + 1;
        if trees.len() == MAX_DOCUMENTS {
            return Err(JsonError::Limit(ReadError::at(
                line,
                0,
                format!("there are more than {MAX_DOCUMENTS} values"),
            )));
        }
        let tree = read_one(&text[content..end], &mut budget).map_err(|error| {
            let column = if error.line() <= 1 {
                error.column() + column - 1
            } else {
                error.column()
            };
            let located = ReadError::at(line + error.line().max(1) - 1, column, message_of(&error));
            if error.is_data() {
                JsonError::Limit(located)
            } else {
                JsonError::Syntax(located)
            }
        })?;
        trees.push(Located { tree, line });
        start = end;
    }
    Ok(trees)
}

/// The text of the error without the position that serde_json appends.
fn message_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn read_one(text: &str, budget: &mut ValueBudget) -> Result<Tree, serde_json::Error> {
    let mut state = State {
        budget,
        duplicates: Duplicates::default(),
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Node {
        state: &mut state,
        path: &Path::Root,
        depth: 0,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok(Tree {
        value,
        duplicates: state.duplicates.take(),
    })
}

struct State<'s> {
    budget: &'s mut ValueBudget,
    duplicates: Duplicates,
}

/// Where the reader is: links on the stack, turned into text only when a fault is found.
enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Key(parent, key) => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Self::Index(parent, index) => {
                parent.write(text);
                text.push_str(&format!("[{index}]"));
            }
        }
    }
}

struct Node<'n, 's> {
    state: &'n mut State<'s>,
    path: &'n Path<'n>,
    depth: usize,
}

impl Node<'_, '_> {
    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        if self.depth >= MAX_DEPTH {
            Err(E::custom(too_deep()))
        } else {
            Ok(self.depth + 1)
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.state.budget.take(1).map_err(D::Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(super::scalar::unsigned(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match seq.next_element_seed(Node {
                state: &mut *self.state,
                path: &path,
                depth,
            })? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut tree = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            if tree.contains_key(&key) {
                self.state.duplicates.add(|| path.text());
            }
            let value = map.next_value_seed(Node {
                state: &mut *self.state,
                path: &path,
                depth,
            })?;
            tree.insert(key, value);
        }
        Ok(Value::Object(tree))
    }
}
