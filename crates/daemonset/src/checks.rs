//! Admission checks: what is legal in a DaemonSet and will hurt later. One finding a check (of taints: one a taint),
//! each with its field, what it comes to, and what would change that.
//!
//! What is done about a finding is not decided here: a [`Ruling`](muster_model::policy::Ruling) does.

mod annotations;
mod nodes;
mod template;

use std::fmt;

use muster_model::field_path::FieldPath;
pub use muster_model::policy::Check;

pub use annotations::of_annotations;
pub use nodes::of_nodes;
pub use template::of_template;

/// Names listed in one sentence at most.
const MOST_NAMES: usize = 5;

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// The field that would have to change; of several alike, what they have in common.
    pub field: FieldPath,
    /// What it comes to, as a sentence without a full stop.
    pub sentence: String,
    /// What would change that, as an order; empty when no simple thing would.
    pub fix: String,
}

impl Finding {
    /// Sentence and fix, without the field.
    pub fn told(&self) -> String {
        if self.fix.is_empty() {
            self.sentence.clone()
        } else {
            format!("{}; to change that, {}", self.sentence, self.fix)
        }
    }
}

/// The line that an author is warned with: `FIELD: SENTENCE; to change that, FIX [CHECK]`. What is said of nodes
/// begins with the nodes.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about_nodes = matches!(self.check, Check::UntoleratedTaints | Check::MatchesNoNode);
        if !about_nodes {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{} [{}]", self.told(), self.check.name())
    }
}

/// `a, b, c and 4 more`.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let named = names.len().min(MOST_NAMES);
    let list: Vec<&str> = names[..named].iter().map(AsRef::as_ref).collect();
    let list = list.join(", ");
    match names.len() - named {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
