//! One text, JSON or YAML, to its tree.

use std::fmt;

use serde_json::Value;

use super::limits::MAX_BYTES;
use super::{json, text, yaml};

/// A tree that was read, and the keys that were given twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree {
    /// The value. Of a key given twice the last one counts.
    pub value: Value,
    /// Paths of the keys given twice, in the order of the text: `spec.template.spec.containers[0].env`.
    pub duplicates: Vec<String>,
}

/// Why a text can't be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// Line, counted from 1; 0 when the text as a whole is meant.
    pub line: usize,
    /// Column in characters, counted from 1; 0 when unknown.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

impl ReadError {
    pub(crate) fn at(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            column,
            message: message.into(),
        }
    }

    pub(crate) fn without_position(message: impl Into<String>) -> Self {
        Self::at(0, 0, message)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.message),
            (line, 0) => write!(f, "line {line}: {}", self.message),
            (line, column) => write!(f, "line {line}, column {column}: {}", self.message),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads exactly one JSON or YAML document. Text that starts with `{` is JSON first, as kubectl has it.
pub fn read_tree(bytes: &[u8]) -> Result<Tree, ReadError> {
    let located = read_all(bytes)?;
    let mut trees = located
        .into_iter()
        .filter(|located| !located.tree.value.is_null());
    let Some(first) = trees.next() else {
        return Err(ReadError::without_position("there is no object in it"));
    };
    match trees.next() {
        None => Ok(first.tree),
        Some(second) => Err(ReadError::at(
            second.line,
            0,
            "there is a second document where one object is expected",
        )),
    }
}

/// A document and the line at which its content starts.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) tree: Tree,
    pub(crate) line: usize,
}

/// Reads every document of a text. An empty document is `null`.
pub(crate) fn read_all(bytes: &[u8]) -> Result<Vec<Located>, ReadError> {
    if bytes.len() > MAX_BYTES {
        return Err(ReadError::without_position(format!(
            "it is {} bytes long; at most {MAX_BYTES} bytes ({} MiB) are read",
            bytes.len(),
            MAX_BYTES / (1024 * 1024)
        )));
    }
    let text = text::checked(bytes)?;
    if !text.trim_start().starts_with('{') {
        return yaml::read(text);
    }
    match json::read(text) {
        Ok(trees) => Ok(trees),
        // A YAML flow mapping starts like JSON. What is neither was meant as JSON.
        Err(json::JsonError::Syntax(error)) => yaml::read(text).map_err(|_| error),
        Err(json::JsonError::Limit(error)) => Err(error),
    }
}
