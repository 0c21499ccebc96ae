//! Trees to text: JSON as kubectl writes it, and YAML that kubectl reads back as the same tree.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

/// Compact JSON with sorted keys, byte for byte as kubectl writes it into annotations: `<`, `>`, `&` and the two
/// Unicode line separators escaped, numbers in Go's form.
pub fn kubectl_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, KubectlFormatter);
    value
        .serialize(&mut writer)
        .expect("a JSON tree has text keys, and writing to memory does not fail");
    String::from_utf8(bytes).expect("the formatter writes whole characters")
}

struct KubectlFormatter;

impl Formatter for KubectlFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        write!(writer, "{mantissa}e{sign}{exponent}")
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Byte by byte, which is several times faster than by characters: U+2028 and U+2029 begin with 0xE2.
        let suspect = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xE2);
        if !fragment.as_bytes().iter().any(suspect) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let Some(c) = rest[at..].chars().next() else {
                break;
            };
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        CompactFormatter.write_char_escape(writer, escape)
    }
}

/// YAML that every reader of YAML, kubectl's among them, reads back as the same tree.
pub fn to_yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! { compact_list_indent: true };
    serde_saphyr::to_string_with_options(value, options)
        .expect("a JSON tree has text keys, and writing to memory does not fail")
}
