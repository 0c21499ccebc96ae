//! Against Kubernetes' own texts and against big integers.

use super::*;
use num_bigint::BigInt;
use proptest::prelude::*;
use serde_json::json;

fn q(text: &str) -> Quantity {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn canonical_texts_are_kubernetes_own() {
    let cases = [
        ("0", "0"),
        ("0Mi", "0"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1.", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("-0.5", "-500m"),
        ("50m", "50m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("62.5Ki", "64000"),
        ("64000", "64k"),
        ("64Mi", "64Mi"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e4", "120e3"),
        ("1e-3", "1e-3"),
        ("100e0", "100"),
        ("1E", "1E"),
        ("1Ei", "1Ei"),
        ("100n", "100n"),
        ("0.1n", "1n"),
        ("1e-1000000000000", "1e-9"),
        ("0.0000000001Ki", "103n"),
        ("1.0001Ki", "1024102400u"),
        ("100Ei", "9223372036854775807"),
        ("1e400", "9223372036854775807"),
        ("000000000000000000000000000000000000001", "1"),
    ];
    for (text, canonical) in cases {
        assert_eq!(q(text).to_string(), canonical, "{text}");
        assert_eq!(q(canonical), q(text), "{text}");
    }
}

#[test]
fn a_wrong_text_is_refused_with_kubernetes_own_words() {
    for text in [
        "", "-", "+", ".", "1.2.3", "abc", "--1", "1 Mi", "1Mi ", "1e3.5", "é", "1é", "Mi",
    ] {
        assert_eq!(
            text.parse::<Quantity>(),
            Err(QuantityError::Format),
            "{text}"
        );
    }
    for text in [
        "1i",
        "1mi",
        "1K",
        "1e",
        "1ki",
        "1EE3",
        "1e99999999999999999999",
        "1m3",
    ] {
        assert_eq!(
            text.parse::<Quantity>(),
            Err(QuantityError::Suffix),
            "{text}"
        );
    }
    assert_eq!(
        QuantityError::Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn whole_numbers_round_up() {
    assert_eq!(q("1m").as_units_ceil(), 1);
    assert_eq!(q("1.5Gi").as_units_ceil(), 1_610_612_736);
    assert_eq!(q("100u").as_milli_ceil(), 1);
    assert_eq!(q("250m").as_milli_ceil(), 250);
    assert_eq!(q("2").as_milli_ceil(), 2000);
    assert_eq!(q("8Ei").as_milli_ceil(), i64::MAX);
    assert_eq!(q("-1.5").as_units_ceil(), -1);
    assert_eq!(q("0.1m").round_to_milli().to_string(), "1m");
    assert_eq!(q("64Mi").divide_ceil(q("1Mi")), Some(64));
    assert_eq!(q("250m").divide_ceil(q("1")), Some(1));
    assert_eq!(q("250m").divide_ceil(q("0")), None);
}

#[test]
fn sums_keep_the_first_ones_format() {
    assert_eq!((q("512Mi") + q("512Mi")).to_string(), "1Gi");
    assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
    assert_eq!((q("4Gi") - q("100Mi")).to_string(), "3996Mi");
    assert_eq!((q("1") - q("100m")).to_string(), "900m");
    assert_eq!((q("8Ei") + q("8Ei")), q("8Ei"));
    assert_eq!(Quantity::from_bytes(4096).to_string(), "4Ki");
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(Quantity::from_units(110).to_string(), "110");
}

#[test]
fn a_bare_number_of_json_is_a_quantity() {
    assert_eq!(
        Quantity::from_json(&json!(0.5)).map(|q| q.to_string()),
        Ok("500m".into())
    );
    assert_eq!(
        Quantity::from_json(&json!(2)).map(|q| q.to_string()),
        Ok("2".into())
    );
    assert_eq!(
        Quantity::from_json(&json!("1Gi")).map(|q| q.to_string()),
        Ok("1Gi".into())
    );
    assert_eq!(
        Quantity::from_json(&json!({})).map(|q| q.to_string()),
        Err(QuantityError::Format)
    );
}

/// The value in billionths by big-integer arithmetic, rounded away from zero and capped.
fn reference(negative: bool, whole: &str, fraction: &str, suffix: &str) -> BigInt {
    let ten = BigInt::from(10);
    let digits: BigInt = format!("0{whole}{fraction}").parse().unwrap();
    let fraction_len = i32::try_from(fraction.len()).unwrap();
    let (multiplier, exponent) = match suffix {
        "n" => (BigInt::from(1), -9),
        "u" => (BigInt::from(1), -6),
        "m" => (BigInt::from(1), -3),
        "" => (BigInt::from(1), 0),
        "k" => (BigInt::from(1), 3),
        "M" => (BigInt::from(1), 6),
        "G" => (BigInt::from(1), 9),
        "T" => (BigInt::from(1), 12),
        "P" => (BigInt::from(1), 15),
        "E" => (BigInt::from(1), 18),
        "Ki" => (BigInt::from(1024), 0),
        "Mi" => (BigInt::from(1024).pow(2), 0),
        "Gi" => (BigInt::from(1024).pow(3), 0),
        "Ti" => (BigInt::from(1024).pow(4), 0),
        "Pi" => (BigInt::from(1024).pow(5), 0),
        "Ei" => (BigInt::from(1024).pow(6), 0),
        other => (BigInt::from(1), other[1..].parse::<i32>().unwrap()),
    };
    let exponent = exponent + 9 - fraction_len;
    let (numerator, denominator) = if exponent >= 0 {
        (
            digits * multiplier * ten.pow(exponent.unsigned_abs()),
            BigInt::from(1),
        )
    } else {
        (digits * multiplier, ten.pow(exponent.unsigned_abs()))
    };
    let rounded: BigInt = (numerator + &denominator - 1) / denominator;
    let capped = rounded.min(BigInt::from(MAX_NANOS));
    if negative { -capped } else { capped }
}

fn suffixes() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"
        ])
        .prop_map(str::to_owned),
        (-40i32..40).prop_map(|e| format!("e{e}")),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    (any::<bool>(), "[0-9]{1,25}", "[0-9]{0,25}", suffixes()).prop_map(|(neg, w, f, s)| {
        let sign = if neg { "-" } else { "" };
        if f.is_empty() {
            format!("{sign}{w}{s}")
        } else {
            format!("{sign}{w}.{f}{s}")
        }
    })
}

proptest! {
    #[test]
    fn reading_agrees_with_big_integers(
        negative: bool, whole in "[0-9]{1,25}", fraction in "[0-9]{0,25}", suffix in suffixes()
    ) {
        let sign = if negative { "-" } else { "" };
        let read = q(&format!("{sign}{whole}.{fraction}{suffix}"));
        prop_assert_eq!(BigInt::from(read.nanos), reference(negative, &whole, &fraction, &suffix));
    }

    #[test]
    fn canonical_text_reads_back_the_same_and_becomes_a_fixed_point(text in texts()) {
        let first = q(&text);
        let again = q(&first.to_string());
        prop_assert_eq!(first, again);
        // A first text without suffix is read as a decimal number, which may have a shorter one.
        let canonical = again.to_string();
        let last = q(&canonical);
        prop_assert_eq!(again, last);
        prop_assert_eq!(last.to_string(), canonical);
    }

    #[test]
    fn arithmetic_and_order_agree_with_big_integers(a in texts(), b in texts()) {
        let (a, b) = (q(&a), q(&b));
        let (big_a, big_b) = (BigInt::from(a.nanos), BigInt::from(b.nanos));
        let cap = |x: BigInt| x.clamp(BigInt::from(-MAX_NANOS), BigInt::from(MAX_NANOS));
        prop_assert_eq!(BigInt::from((a + b).nanos), cap(&big_a + &big_b));
        prop_assert_eq!(BigInt::from((a - b).nanos), cap(&big_a - &big_b));
        prop_assert_eq!(a.cmp(&b), big_a.cmp(&big_b));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
        let _ = text.parse::<Quantity>();
    }
}
