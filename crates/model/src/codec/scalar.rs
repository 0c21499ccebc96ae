//! What an unquoted YAML scalar means: the rule that kubectl's reader has, which is neither YAML 1.1 nor 1.2.
//!
//! `yes`, `on`, `y` are booleans, `0123` is octal, `1_000` a number, `1e3` the integer 1000; dates, sexagesimal
//! numbers and numbers too large for a float are text. Every row of the tests was read off kubectl 1.32.

use serde_json::{Number, Value};

/// What a plain scalar resolves to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
}

/// Resolves the text of an unquoted, untagged scalar.
pub(crate) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Scalar::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes().first() {
        // After a leading point an underscore counts only between two digits.
        Some(b'.') if separates_digits(text) => float(&text.replace('_', "")),
        Some(b'0'..=b'9' | b'+' | b'-') => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| float(&plain))
        }
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

fn separates_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'_')
        .all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
}

/// Decimal, `0x`, `0o`, `0b`, or octal after a leading zero; with an optional sign.
fn integer(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // from_str_radix takes a sign of its own, which here would be a second one.
    if !digits.as_bytes().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0i64.checked_sub_unsigned(magnitude).map(Scalar::Int);
    }
    Some(i64::try_from(magnitude).map_or(Scalar::Unsigned(magnitude), Scalar::Int))
}

/// `1.5`, `.5`, `5.`, `1e3`, with an optional sign; nothing that overflows.
fn float(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    if !has_digits || !digits(whole) || !digits(fraction) || !exponent_fits {
        return None;
    }
    text.parse::<f64>()
        .ok()
        .filter(|f| f.is_finite())
        .map(Scalar::Float)
}

/// The scalar as JSON has it after kubectl's detour: whole floats become integers, integers past 63 bits floats.
pub(crate) fn to_json(scalar: Scalar) -> Result<Value, String> {
    Ok(match scalar {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Int(value) => Value::Number(value.into()),
        Scalar::Unsigned(value) => unsigned(value),
        Scalar::Float(value) => return float_to_json(value),
        Scalar::Text(text) => Value::String(text),
    })
}

/// An unsigned number, as a float when it does not fit in 63 bits.
#[expect(
    clippy::cast_precision_loss,
    reason = "that is the rule: larger integers lose precision"
)]
pub(crate) fn unsigned(value: u64) -> Value {
    match i64::try_from(value) {
        Ok(value) => Value::Number(value.into()),
        Err(_) => Number::from_f64(value as f64).map_or(Value::Null, Value::Number),
    }
}

fn float_to_json(value: f64) -> Result<Value, String> {
    let Some(number) = Number::from_f64(value) else {
        return Err(format!(
            "{value} is not a number that JSON has: quote it if text is meant"
        ));
    };
    if value.fract() == 0.0 && value.abs() < 1e21 {
        // The shortest digits, padded with zeros, are what is read back as an integer.
        if let Ok(whole) = format!("{value}").parse::<i64>() {
            return Ok(Value::Number(whole.into()));
        }
    }
    Ok(Value::Number(number))
}

/// The scalar as a mapping key; an error for `null`.
pub(crate) fn to_key(scalar: Scalar) -> Result<String, String> {
    match scalar {
        Scalar::Null => Err("a mapping key is empty (null): quote it if text is meant".to_owned()),
        Scalar::Bool(value) => Ok(value.to_string()),
        Scalar::Int(value) => Ok(value.to_string()),
        Scalar::Unsigned(value) => Ok(value.to_string()),
        Scalar::Float(value) => Ok(float_key(value)),
        Scalar::Text(text) => Ok(text),
    }
}

/// kubectl writes float keys in single precision: `1e+06`, `12345.678`, `.inf`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "single precision is the rule"
)]
fn float_key(value: f64) -> String {
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        to_json(resolve(text)).unwrap_or_else(|error| json!({ "error": error }))
    }

    #[test]
    fn case_b51_an_unquoted_scalar_is_read_as_kubectl_reads_it() {
        let table = [
            ("yes", json!(true)),
            ("no", json!(false)),
            ("on", json!(true)),
            ("off", json!(false)),
            ("y", json!(true)),
            ("n", json!(false)),
            ("Y", json!(true)),
            ("N", json!(false)),
            ("YES", json!(true)),
            ("yEs", json!("yEs")),
            ("True", json!(true)),
            ("TRUE", json!(true)),
            ("tRue", json!("tRue")),
            ("On", json!(true)),
            ("OFF", json!(false)),
            ("1e3", json!(1000)),
            ("1E3", json!(1000)),
            ("1e+3", json!(1000)),
            ("1.5e3", json!(1500)),
            (".5", json!(0.5)),
            ("5.", json!(5)),
            ("0123", json!(83)),
            ("0o17", json!(15)),
            ("0O17", json!(15)),
            ("0x1F", json!(31)),
            ("0X1f", json!(31)),
            ("0b101", json!(5)),
            ("-0b101", json!(-5)),
            ("+0b1", json!(1)),
            ("1_000", json!(1000)),
            ("1_0.5", json!(10.5)),
            ("_1", json!("_1")),
            ("1_", json!(1)),
            ("0x_1", json!(1)),
            ("0_7", json!(7)),
            ("089", json!(89)),
            ("-0123", json!(-83)),
            ("+5", json!(5)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("Null", json!(null)),
            ("NULL", json!(null)),
            ("nUll", json!("nUll")),
            ("", json!(null)),
            ("2001-01-01", json!("2001-01-01")),
            ("2001-01-01T00:00:00Z", json!("2001-01-01T00:00:00Z")),
            (
                "2001-12-14 21:59:43.10 -5",
                json!("2001-12-14 21:59:43.10 -5"),
            ),
            ("190:20:30", json!("190:20:30")),
            ("1:20", json!("1:20")),
            ("1.0", json!(1)),
            ("1.10", json!(1.1)),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("00", json!(0)),
            ("0.0", json!(0)),
            ("-0.0", json!(0)),
            ("+.5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("1e400", json!("1e400")),
            ("9223372036854775808", json!(9223372036854775808f64)),
            ("12345678901234567890", json!(12345678901234567000f64)),
            ("-9223372036854775809", json!(-9223372036854776000f64)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("0xffffffffffffffff", json!(18446744073709552000f64)),
            ("0x1ffffffffffffffff", json!("0x1ffffffffffffffff")),
            ("1e", json!("1e")),
            ("1e5x", json!("1e5x")),
            ("0x", json!("0x")),
            ("0b", json!("0b")),
            ("0o", json!("0o")),
            ("08", json!(8)),
            ("0o8", json!("0o8")),
            ("=", json!("=")),
            ("1e-3", json!(0.001)),
            ("1e21", json!(1e21)),
            ("123456.789e3", json!(123456789)),
            ("1.23456789012345678", json!(1.2345678901234567)),
            ("0.0000001", json!(1e-7)),
            ("100000000000000000000.0", json!(1e20)),
            ("1_000.5", json!(1000.5)),
            ("+1_0", json!(10)),
            ("0b1_0", json!(2)),
            ("-0x1f", json!(-31)),
            ("-0o17", json!(-15)),
            ("+0x1", json!(1)),
            ("1__0", json!(10)),
            (".4_9", json!(0.49)),
            ("._5", json!("._5")),
            (".5_", json!(".5_")),
            (".5__0", json!(".5__0")),
            ("--1", json!("--1")),
            ("+-1", json!("+-1")),
            ("-", json!("-")),
            (".", json!(".")),
            ("inf", json!("inf")),
            ("nan", json!("nan")),
        ];
        for (text, wanted) in table {
            assert_eq!(read(text), wanted, "{text}");
        }
        for text in [".inf", "-.inf", "+.Inf", ".nan", ".NaN"] {
            assert!(to_json(resolve(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_written_as_kubectl_writes_it() {
        for (text, wanted) in [
            ("0x10", "16"),
            ("1e3", "1000"),
            (".5", "0.5"),
            ("1_0", "10"),
            ("yes", "true"),
            ("1.5", "1.5"),
            ("1e6", "1e+06"),
            ("123456789.5", "1.2345679e+08"),
            ("1e-5", "1e-05"),
            ("12345.678", "12345.678"),
            ("1e300", ".inf"),
            ("-1.5", "-1.5"),
            ("2001-01-01", "2001-01-01"),
        ] {
            assert_eq!(to_key(resolve(text)).unwrap(), wanted, "{text}");
        }
        assert!(to_key(resolve("~")).is_err());
    }
}
