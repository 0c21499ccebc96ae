//! A whole number or a percentage, as `maxUnavailable` and `maxSurge` are written.

use std::fmt;

use serde_json::Value;

use crate::k8s::apimachinery::pkg::util::intstr::IntOrString;

/// A whole number (`2`) or a percentage of something counted (`"25%"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOrPercent {
    /// Taken as it is.
    Int(i32),
    /// Hundredths of a total, at most what fits; more than 100 is the validator's to refuse.
    Percent(u32),
}

/// The text is neither: it is no number and not digits with a percent sign behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be an integer or a percentage (e.g '1' or '10%'), found {found}")]
pub struct IntOrPercentError {
    /// The value, as JSON text.
    pub found: String,
}

impl IntOrPercent {
    /// Reads the typed form. A text must be digits and a percent sign: `"5"` is an error.
    pub fn parse(value: &IntOrString) -> Result<Self, IntOrPercentError> {
        match value {
            IntOrString::Int(number) => Ok(Self::Int(*number)),
            IntOrString::String(text) => Self::parse_percent(text),
        }
    }

    /// Reads a JSON value.
    pub fn from_value(value: &Value) -> Result<Self, IntOrPercentError> {
        match value {
            Value::String(text) => Self::parse_percent(text),
            other => other
                .as_i64()
                .and_then(|number| i32::try_from(number).ok())
                .map(Self::Int)
                .ok_or_else(|| IntOrPercentError {
                    found: other.to_string(),
                }),
        }
    }

    fn parse_percent(text: &str) -> Result<Self, IntOrPercentError> {
        text.strip_suffix('%')
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(Self::Percent)
            .ok_or_else(|| IntOrPercentError {
                found: Value::from(text).to_string(),
            })
    }

    /// The number that is meant of `total`, a percentage rounded up (spec/daemonset.md 12.2). Negative numbers
    /// come out as 0.
    pub fn scale_up(self, total: usize) -> usize {
        match self {
            Self::Int(number) => usize::try_from(number).unwrap_or(0),
            Self::Percent(percent) => {
                let hundredths = total as u128 * u128::from(percent);
                usize::try_from(hundredths.div_ceil(100)).unwrap_or(usize::MAX)
            }
        }
    }

    /// Whether it is 0 or `0%`: comes out as 0 whatever the total.
    pub fn is_zero(self) -> bool {
        self.scale_up(1) == 0
    }
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_round_up() {
        for (percent, total, expected) in [
            (10, 3, 1),
            (34, 3, 2),
            (50, 3, 2),
            (100, 3, 3),
            (50, 0, 0),
            (1, 5, 1),
            (0, 9, 0),
        ] {
            assert_eq!(
                IntOrPercent::Percent(percent).scale_up(total),
                expected,
                "{percent}% of {total}"
            );
        }
        assert_eq!(IntOrPercent::Int(7).scale_up(3), 7);
        assert_eq!(IntOrPercent::Int(-1).scale_up(3), 0);
        assert_eq!(
            IntOrPercent::Percent(u32::MAX).scale_up(usize::MAX),
            usize::MAX
        );
    }

    #[test]
    fn a_text_must_be_a_percentage() {
        assert_eq!(
            IntOrPercent::from_value(&json!("25%")),
            Ok(IntOrPercent::Percent(25))
        );
        assert_eq!(
            IntOrPercent::from_value(&json!(3)),
            Ok(IntOrPercent::Int(3))
        );
        assert_eq!(
            IntOrPercent::parse(&IntOrString::Int(-1)),
            Ok(IntOrPercent::Int(-1))
        );
        for wrong in [
            json!("5"),
            json!("%"),
            json!("-1%"),
            json!("1.5%"),
            json!("x%"),
            json!(1.5),
            json!(null),
        ] {
            assert!(IntOrPercent::from_value(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(IntOrPercent::Percent(25).to_string(), "25%");
    }
}
