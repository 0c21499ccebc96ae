//! Bytes to text: encoding, forbidden characters, and characters that only look like blanks.

use super::read::ReadError;

/// The text of the bytes, without a byte-order mark, if all of it is text that YAML and JSON may hold.
pub(crate) fn checked(bytes: &[u8]) -> Result<&str, ReadError> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(ReadError::without_position(
            "it is UTF-16 text: save it as UTF-8",
        ));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            let before = std::str::from_utf8(valid).unwrap_or_default();
            let (line, column) = position(before, before.len());
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            let message = if bytes.contains(&0) {
                "it is binary data, not text".to_owned()
            } else {
                format!("the byte 0x{byte:02X} is not valid UTF-8: save the text as UTF-8")
            };
            return Err(ReadError::at(line, column, message));
        }
    };
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    if let Some((at, c)) = text.char_indices().find(|(_, c)| is_forbidden(*c)) {
        let (line, column) = position(text, at);
        return Err(ReadError::at(
            line,
            column,
            format!("{} is not allowed in text", describe(c)),
        ));
    }
    Ok(text)
}

fn is_forbidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}'))
        || matches!(c, '\u{FFFE}' | '\u{FFFF}')
}

/// Line and column, from 1, of a byte offset.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// Whether the character looks like a blank, or like nothing, and is no blank to a reader of YAML.
pub(crate) fn is_false_blank(c: char) -> bool {
    matches!(
        c,
        '\u{A0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200F}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202F}'
                | '\u{205F}'
                | '\u{2060}'
                | '\u{3000}'
                | '\u{FEFF}'
                | '\u{85}'
                | '\u{AD}'
    )
}

/// The character by name and code point: `a no-break space (U+00A0)`.
pub(crate) fn describe(c: char) -> String {
    let name = match c {
        '\t' => "a tab",
        '\0' => "a null character",
        '\u{85}' => "a next-line character",
        '\u{A0}' => "a no-break space",
        '\u{AD}' => "a soft hyphen",
        '\u{200B}' => "a zero-width space",
        '\u{200C}' => "a zero-width non-joiner",
        '\u{200D}' => "a zero-width joiner",
        '\u{2028}' => "a line separator",
        '\u{2029}' => "a paragraph separator",
        '\u{202F}' => "a narrow no-break space",
        '\u{2060}' => "a word joiner",
        '\u{3000}' => "an ideographic space",
        '\u{FEFF}' => "a byte-order mark",
        c if is_false_blank(c) => "a special blank",
        c if c.is_control() => "a control character",
        c => return format!("the character {c:?} (U+{:04X})", u32::from(c)),
    };
    format!("{name} (U+{:04X})", u32::from(c))
}

/// The first character in this line (from 1) that looks like a blank and is none: in the indentation a tab counts
/// as well. With its column.
pub(crate) fn suspect_in_line(text: &str, line: usize) -> Option<(usize, char)> {
    let content = text.split('\n').nth(line.checked_sub(1)?)?;
    let mut in_indentation = true;
    for (position, c) in content.chars().enumerate() {
        if is_false_blank(c) || (in_indentation && c == '\t') {
            return Some((position + 1, c));
        }
        in_indentation &= c == ' ' || c == '-';
    }
    None
}
