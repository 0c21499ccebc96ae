//! YAML text to trees, from the parser's events: kubectl's scalars, keys given twice, bounded aliases.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{
    self, ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Tag,
};

use super::limits::{
    Duplicates, MAX_COPIED, MAX_DEPTH, MAX_DOCUMENTS, VALUE_WEIGHT, ValueBudget, too_deep,
};
use super::read::{Located, ReadError, Tree};
use super::scalar::{self, Scalar};
use super::text::{describe, is_false_blank, suspect_in_line};

/// Reads every document of a text.
pub(crate) fn read(text: &str) -> Result<Vec<Located>, ReadError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str_with_options(text, options);
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| syntax_error(text, &error))?;
        builder.event(event, span.start)?;
    }
    Ok(builder.done)
}

/// The parser's words, unless the line holds a tab or another false blank: then that is the cause to name.
fn syntax_error(text: &str, error: &ScanError) -> ReadError {
    let (line, column) = (error.marker().line(), error.marker().col() + 1);
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return ReadError::at(line, column, too_deep());
    }
    // A scalar that a tab interrupts is reported at its start; a line that is no key, only at the next one.
    let is_tab = matches!(
        error.kind(),
        ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInPlainScalar
    );
    let neighbour = if is_tab {
        line + 1
    } else {
        line.saturating_sub(1)
    };
    for candidate in [line, neighbour] {
        if let Some((column, c)) = suspect_in_line(text, candidate) {
            let advice = if c == '\t' {
                "YAML is indented with spaces"
            } else {
                "it is not a space: replace it"
            };
            return ReadError::at(
                candidate,
                column,
                format!("found {}: {advice}", describe(c)),
            );
        }
    }
    ReadError::at(line, column, error.info())
}

/// A collection that is being filled.
struct Frame {
    node: Open,
    anchor: usize,
    start: Marker,
    weight: usize,
}

enum Open {
    List(Vec<Value>),
    Map {
        map: Map<String, Value>,
        /// The key whose value comes next; [`Key::Merge`] for a plain `<<`.
        key: Option<Key>,
        /// Keys that came in by a merge: giving those again is no fault.
        merged: BTreeSet<String>,
    },
}

enum Key {
    Named(String),
    Merge,
}

/// A finished node.
struct Node<'e> {
    value: Value,
    weight: usize,
    /// For mapping keys: how the scalar reads as a key; `None` for collections.
    key: Option<Result<String, String>>,
    plain: Option<Cow<'e, str>>,
}

#[derive(Default)]
struct Builder {
    done: Vec<Located>,
    stack: Vec<Frame>,
    root: Option<Value>,
    line: usize,
    duplicates: Duplicates,
    anchors: BTreeMap<usize, (Value, usize)>,
    copied: usize,
    budget: ValueBudget,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, at: Marker) -> Result<(), ReadError> {
        match event {
            Event::DocumentStart(..) => {
                if self.done.len() == MAX_DOCUMENTS {
                    return Err(fault(
                        at,
                        format!("there are more than {MAX_DOCUMENTS} documents"),
                    ));
                }
                self.root = None;
                self.line = 0;
                self.anchors.clear();
            }
            Event::DocumentEnd => {
                let value = self.root.take().unwrap_or_default();
                let line = if self.line == 0 { at.line() } else { self.line };
                let duplicates = self.duplicates.take();
                self.done.push(Located {
                    tree: Tree { value, duplicates },
                    line,
                });
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(text, style, anchor, tag.as_deref(), at)?
            }
            Event::SequenceStart(_, anchor, _) => self.open(Open::List(Vec::new()), anchor, at)?,
            Event::MappingStart(_, anchor, _) => {
                self.open(
                    Open::Map {
                        map: Map::new(),
                        key: None,
                        merged: BTreeSet::new(),
                    },
                    anchor,
                    at,
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(id) => self.alias(id, at)?,
            _ => {}
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Marker,
    ) -> Result<(), ReadError> {
        self.budget.take(1).map_err(|message| fault(at, message))?;
        let plain = style == ScalarStyle::Plain;
        let resolved = match tag {
            None if plain => scalar::resolve(&text),
            None => Scalar::Text(text.clone().into_owned()),
            Some(tag) => tagged(tag, &text).map_err(|message| fault(at, message))?,
        };
        let key = scalar::to_key(resolved.clone());
        let value = match (self.expects_key(), scalar::to_json(resolved)) {
            (_, Ok(value)) => value,
            (true, Err(_)) => Value::Null,
            (false, Err(message)) => return Err(fault(at, message)),
        };
        let weight = VALUE_WEIGHT + text.len();
        self.remember(anchor, &value, weight, at)?;
        let plain = (plain && tag.is_none()).then_some(text);
        self.place(
            Node {
                value,
                weight,
                key: Some(key),
                plain,
            },
            at,
        )
    }

    fn open(&mut self, node: Open, anchor: usize, at: Marker) -> Result<(), ReadError> {
        self.budget.take(1).map_err(|message| fault(at, message))?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(fault(at, too_deep()));
        }
        if self.expects_key() {
            return Err(fault(
                at,
                "a mapping key must be a single value, not a list or a mapping".to_owned(),
            ));
        }
        self.stack.push(Frame {
            node,
            anchor,
            start: at,
            weight: VALUE_WEIGHT,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), ReadError> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        let value = match frame.node {
            Open::List(list) => Value::Array(list),
            Open::Map { map, .. } => Value::Object(map),
        };
        self.remember(frame.anchor, &value, frame.weight, frame.start)?;
        self.place(
            Node {
                value,
                weight: frame.weight,
                key: None,
                plain: None,
            },
            frame.start,
        )
    }

    /// Keeps a copy for later aliases. The copy counts as much as one made by an alias.
    fn remember(
        &mut self,
        anchor: usize,
        value: &Value,
        weight: usize,
        at: Marker,
    ) -> Result<(), ReadError> {
        if anchor != 0 {
            self.copy(weight, at)?;
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, at: Marker) -> Result<(), ReadError> {
        let Some(weight) = self.anchors.get(&id).map(|(_, weight)| *weight) else {
            return Err(fault(
                at,
                "the value of an anchor contains an alias to itself".to_owned(),
            ));
        };
        self.copy(weight, at)?;
        self.budget
            .take(weight / VALUE_WEIGHT)
            .map_err(|message| fault(at, message))?;
        let value = self
            .anchors
            .get(&id)
            .map(|(value, _)| value.clone())
            .unwrap_or_default();
        if super::depth_exceeds(&value, MAX_DEPTH - self.stack.len().min(MAX_DEPTH)) {
            return Err(fault(at, too_deep()));
        }
        let key = match &value {
            Value::Array(_) | Value::Object(_) => None,
            Value::Null => Some(scalar::to_key(Scalar::Null)),
            Value::String(text) => Some(Ok(text.clone())),
            other => Some(Ok(other.to_string())),
        };
        self.place(
            Node {
                value,
                weight,
                key,
                plain: None,
            },
            at,
        )
    }

    fn copy(&mut self, weight: usize, at: Marker) -> Result<(), ReadError> {
        self.copied = self.copied.saturating_add(weight);
        if self.copied > MAX_COPIED {
            let message = format!(
                "anchors and aliases expand to more than {} MiB",
                MAX_COPIED / (1024 * 1024)
            );
            return Err(fault(at, message));
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(Frame {
                node: Open::Map { key: None, .. },
                ..
            })
        )
    }

    /// Puts a finished node where it belongs: into the open list, as key or value of the open mapping, or at the root.
    fn place(&mut self, node: Node<'_>, at: Marker) -> Result<(), ReadError> {
        if self.line == 0 {
            self.line = at.line();
        }
        if self.expects_key() {
            return self.place_key(node, at);
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node.value);
            return Ok(());
        };
        frame.weight = frame.weight.saturating_add(node.weight);
        match &mut frame.node {
            Open::List(list) => list.push(node.value),
            Open::Map { map, key, merged } => match key.take() {
                Some(Key::Named(name)) => {
                    merged.remove(&name);
                    map.insert(name, node.value);
                }
                Some(Key::Merge) | None => {
                    if !merge(map, merged, node.value) {
                        let message =
                            "a merge key << needs a mapping or a list of mappings".to_owned();
                        return Err(fault(at, message));
                    }
                }
            },
        }
        Ok(())
    }

    fn place_key(&mut self, node: Node<'_>, at: Marker) -> Result<(), ReadError> {
        let is_merge = node.plain.as_deref() == Some("<<");
        if let Some(c) = node
            .plain
            .as_deref()
            .and_then(|text| text.chars().find(|c| is_false_blank(*c)))
        {
            let message = format!(
                "found {} in a key: it is not a space: replace it, or quote the key",
                describe(c)
            );
            let offset = node
                .plain
                .as_deref()
                .and_then(|t| t.chars().position(is_false_blank))
                .unwrap_or_default();
            return Err(ReadError::at(at.line(), at.col() + 1 + offset, message));
        }
        let name = match node.key {
            Some(Ok(name)) => name,
            Some(Err(message)) => return Err(fault(at, message)),
            None => {
                let message =
                    "a mapping key must be a single value, not a list or a mapping".to_owned();
                return Err(fault(at, message));
            }
        };
        let is_duplicate = match self.stack.last() {
            Some(Frame {
                node: Open::Map { map, merged, .. },
                ..
            }) => !is_merge && map.contains_key(&name) && !merged.contains(&name),
            _ => false,
        };
        if is_duplicate {
            self.duplicates.add(|| path_to(&self.stack, &name));
        }
        if let Some(Frame {
            node: Open::Map { key, .. },
            weight,
            ..
        }) = self.stack.last_mut()
        {
            *weight = weight.saturating_add(name.len());
            *key = Some(if is_merge {
                Key::Merge
            } else {
                Key::Named(name)
            });
        }
        Ok(())
    }
}

/// The path of a key of the innermost mapping.
fn path_to(stack: &[Frame], name: &str) -> String {
    let mut path = String::new();
    let outer = &stack[..stack.len().saturating_sub(1)];
    for frame in outer {
        match &frame.node {
            Open::List(list) => path.push_str(&format!("[{}]", list.len())),
            Open::Map {
                key: Some(Key::Named(key)),
                ..
            } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
            Open::Map { .. } => path.push_str("<<"),
        }
    }
    if !path.is_empty() {
        path.push('.');
    }
    path + name
}

fn fault(at: Marker, message: impl Into<String>) -> ReadError {
    ReadError::at(at.line(), at.col() + 1, message)
}

/// Merges a mapping, or a list of mappings of which earlier ones win. As kubectl has it, the place of the merge
/// counts: it overwrites what stands before it and is overwritten by what stands behind. `false`: nothing to merge.
fn merge(map: &mut Map<String, Value>, merged: &mut BTreeSet<String>, value: Value) -> bool {
    match value {
        Value::Object(other) => {
            merged.extend(other.keys().cloned());
            map.extend(other);
            true
        }
        Value::Array(list) => list
            .into_iter()
            .rev()
            .all(|v| v.is_object() && merge(map, merged, v)),
        _ => false,
    }
}

/// A scalar with a tag. Tags of one's own leave the text as it is.
fn tagged(tag: &Tag, text: &str) -> Result<Scalar, String> {
    let name = tag
        .suffix_in_namespace("tag:yaml.org,2002:")
        .unwrap_or_default();
    let resolved = scalar::resolve(text);
    match (name.as_ref(), resolved) {
        ("int", value @ (Scalar::Int(_) | Scalar::Unsigned(_)))
        | ("float", value @ Scalar::Float(_))
        | ("bool", value @ Scalar::Bool(_))
        | ("null", value @ Scalar::Null) => Ok(value),
        #[expect(clippy::cast_precision_loss, reason = "the author asked for a float")]
        ("float", Scalar::Int(value)) => Ok(Scalar::Float(value as f64)),
        #[expect(clippy::cast_precision_loss, reason = "the author asked for a float")]
        ("float", Scalar::Unsigned(value)) => Ok(Scalar::Float(value as f64)),
        ("int" | "float" | "bool" | "null", _) => {
            Err(format!("{text:?} can't be read as a !!{name}"))
        }
        ("binary", _) => {
            let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(compact)
                .map_err(|error| format!("a !!binary value is not base64: {error}"))?;
            Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Ok(Scalar::Text(text.to_owned())),
    }
}
