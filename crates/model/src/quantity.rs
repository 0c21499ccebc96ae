//! Exact resource quantities: `50m`, `64Mi`, `1e3`.
//!
//! A quantity is a whole number of billionths, held in 128 bits, so that sums and comparisons never round.
//! As in Kubernetes, what is finer than a billionth is rounded away from zero when it is read, and the
//! magnitude is capped at 2^63 - 1.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde_json::Value;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// More decimal digits than [`MAX_NANOS`] has.
const MAX_DIGITS: i64 = 30;

/// An exact amount of a resource. Equality and order look at the amount alone: `1` equals `1000m`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How a quantity was written, which is how it is printed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Format {
    /// `m`, none, `k`, `M`, ...
    #[default]
    Decimal,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`.
    Exponent,
}

/// Why a text is no quantity, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number followed by a suffix.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is fine, the suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::Decimal,
    };

    /// This many thousandths: CPU time.
    pub fn from_milli(milli: i64) -> Self {
        Self::of(i128::from(milli) * NANOS_PER_MILLI, Format::Decimal)
    }

    /// This many whole units, printed with decimal suffixes: pods, cores.
    pub fn from_units(units: i64) -> Self {
        Self::of(i128::from(units) * NANOS_PER_UNIT, Format::Decimal)
    }

    /// This many bytes, printed with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self::of(i128::from(bytes) * NANOS_PER_UNIT, Format::Binary)
    }

    /// Reads a quantity of an object, which may be a text or a bare number.
    pub fn from_json(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => text.trim().parse(),
            Value::Number(number) => number.to_string().parse(),
            _ => Err(QuantityError::Format),
        }
    }

    /// In thousandths, rounded up; saturating.
    pub fn as_milli_ceil(&self) -> i64 {
        saturate(ceil_div(self.nanos, NANOS_PER_MILLI))
    }

    /// In whole units (for memory and storage: bytes), rounded up; saturating.
    pub fn as_units_ceil(&self) -> i64 {
        saturate(ceil_div(self.nanos, NANOS_PER_UNIT))
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below nothing.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether it is a whole number of units.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Rounded up (away from zero) to whole thousandths: the finest a stored resource may be.
    #[must_use]
    pub fn round_to_milli(self) -> Self {
        let magnitude = ceil_div(self.nanos.abs(), NANOS_PER_MILLI) * NANOS_PER_MILLI;
        Self::of(magnitude * self.nanos.signum(), self.format)
    }

    /// How many times `divisor` fits, rounded up, for the downward API; `None` for a divisor of zero or less.
    pub fn divide_ceil(&self, divisor: Self) -> Option<i64> {
        (divisor.nanos > 0).then(|| saturate(ceil_div(self.nanos, divisor.nanos)))
    }

    fn of(nanos: i128, format: Format) -> Self {
        Self {
            nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS),
            format,
        }
    }

    fn format_with(self, other: Self) -> Format {
        if self.is_zero() {
            other.format
        } else {
            self.format
        }
    }
}

/// Saturating at 2^63 - 1. Written like the left one, or like the right one when the left one is zero.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::of(self.nanos + other.nanos, self.format_with(other))
    }
}

/// Saturating at -(2^63 - 1). Written like the left one, or like the right one when the left one is zero.
impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::of(self.nanos - other.nanos, self.format_with(other))
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Add::add)
    }
}

fn ceil_div(value: i128, divisor: i128) -> i128 {
    let floor = value.div_euclid(divisor);
    floor + i128::from(value.rem_euclid(divisor) != 0)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// What a suffix multiplies by.
enum Scale {
    PowerOfTen(i64, Format),
    PowerOf1024(u32),
}

fn scale_of(suffix: &str) -> Option<Scale> {
    let decimal = |exponent| Some(Scale::PowerOfTen(exponent, Format::Decimal));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Scale::PowerOf1024(1)),
        "Mi" => Some(Scale::PowerOf1024(2)),
        "Gi" => Some(Scale::PowerOf1024(3)),
        "Ti" => Some(Scale::PowerOf1024(4)),
        "Pi" => Some(Scale::PowerOf1024(5)),
        "Ei" => Some(Scale::PowerOf1024(6)),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(Scale::PowerOfTen(exponent, Format::Exponent))
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError::Format);
        }
        if !suffix_is_well_formed(suffix) {
            return Err(QuantityError::Format);
        }
        let scale = scale_of(suffix).ok_or(QuantityError::Suffix)?;
        let digits: Vec<u8> = whole
            .bytes()
            .chain(fraction.bytes())
            .map(|b| b - b'0')
            .collect();
        let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let (magnitude, format) = match scale {
            Scale::PowerOfTen(exponent, format) => (
                nanos_ceil(&digits, exponent.saturating_sub(fraction_digits)),
                format,
            ),
            Scale::PowerOf1024(power) => {
                let digits = multiply(&digits, 1 << (10 * power));
                let nanos = nanos_ceil(&digits, fraction_digits.saturating_neg());
                // A binary suffix cannot show less than one unit.
                let format = if nanos < NANOS_PER_UNIT && nanos != 0 {
                    Format::Decimal
                } else {
                    Format::Binary
                };
                (nanos, format)
            }
        };
        Ok(Self::of(
            if negative { -magnitude } else { magnitude },
            format,
        ))
    }
}

/// Letters of suffixes, then an optionally signed number: `[eEinumkKMGTP]*[-+]?[0-9]*`.
fn suffix_is_well_formed(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// Decimal digits (most significant first) times a power of 1024.
fn multiply(digits: &[u8], by: u64) -> Vec<u8> {
    let mut product = Vec::with_capacity(digits.len() + 20);
    let mut carry = 0_u128;
    for digit in digits.iter().rev() {
        let sum = u128::from(*digit) * u128::from(by) + carry;
        product.push((sum % 10) as u8);
        carry = sum / 10;
    }
    while carry > 0 {
        product.push((carry % 10) as u8);
        carry /= 10;
    }
    product.reverse();
    product
}

/// `digits` x 10^`exponent` units, in billionths rounded up, at most [`MAX_NANOS`].
fn nanos_ceil(digits: &[u8], exponent: i64) -> i128 {
    let first = digits.iter().position(|d| *d != 0);
    let last = digits.iter().rposition(|d| *d != 0);
    let (Some(first), Some(last)) = (first, last) else {
        return 0;
    };
    let stripped = i64::try_from(digits.len() - 1 - last).unwrap_or(i64::MAX);
    let digits = &digits[first..=last];
    let exponent = exponent.saturating_add(stripped).saturating_add(9);
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let whole_digits = length.saturating_add(exponent);
    if whole_digits > MAX_DIGITS {
        return MAX_NANOS;
    }
    let value_at = |i: i64| {
        usize::try_from(i)
            .ok()
            .and_then(|i| digits.get(i))
            .copied()
            .unwrap_or(0)
    };
    let whole = (0..whole_digits.max(0)).fold(0_i128, |sum, i| sum * 10 + i128::from(value_at(i)));
    let rest = i128::from(whole_digits < length);
    (whole + rest).min(MAX_NANOS)
}

/// The canonical text: no fraction, the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::Binary
            && self.is_whole()
            && self.nanos.abs() >= 1024 * NANOS_PER_UNIT
        {
            return write_binary(f, self.nanos / NANOS_PER_UNIT);
        }
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        if self.format == Format::Exponent {
            return if exponent == 0 {
                write!(f, "{mantissa}")
            } else {
                write!(f, "{mantissa}e{exponent}")
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{mantissa}{suffix}")
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut mantissa: i128) -> fmt::Result {
    let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter();
    let mut suffix = suffixes.next();
    while mantissa % 1024 == 0 {
        let Some(next) = suffixes.next() else { break };
        suffix = Some(next);
        mantissa /= 1024;
    }
    write!(f, "{mantissa}{}", suffix.copied().unwrap_or_default())
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

#[cfg(test)]
mod tests;
