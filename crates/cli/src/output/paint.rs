//! Colours, as terminals take them. Whether to use any says [`crate::console::Console::color`].

pub(crate) const BOLD: &str = "\u{1b}[1m";
pub(crate) const RED: &str = "\u{1b}[31m";
pub(crate) const GREEN: &str = "\u{1b}[32m";
pub(crate) const YELLOW: &str = "\u{1b}[33m";
pub(crate) const CYAN: &str = "\u{1b}[36m";
/// Ends them all.
pub(crate) const PLAIN: &str = "\u{1b}[0m";

/// The text in a style, where styles are wanted.
pub(crate) fn painted(is_wanted: bool, style: &str, text: &str) -> String {
    if is_wanted {
        format!("{style}{text}{PLAIN}")
    } else {
        text.to_owned()
    }
}
