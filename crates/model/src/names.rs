//! DNS label and subdomain rules, qualified names, generated suffixes.
//!
//! Every `check_*` function answers what is wrong with a text in Kubernetes' own words, an empty list when
//! nothing is; the words go behind `Invalid value: "x": ` (spec/daemonset.md 4.1).

use rand::Rng;

/// Longest DNS label, label value and name part of a qualified name.
pub const MAX_LABEL: usize = 63;
/// Longest DNS subdomain and configuration key.
pub const MAX_SUBDOMAIN: usize = 253;
/// How much of a prefix a generated name keeps (spec/daemonset.md 1).
pub const MAX_GENERATED_BASE: usize = 58;

const SUFFIX_LENGTH: usize = 5;
/// No vowels and no digits that look like them, so that no word comes about.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY_TEXT: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV_NAME_TEXT: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// A name made from a prefix: at most 58 characters of it and five random ones.
pub fn generate_name(prefix: &str, rng: &mut impl Rng) -> String {
    let mut name: String = prefix.chars().take(MAX_GENERATED_BASE).collect();
    for _ in 0..SUFFIX_LENGTH {
        name.push(char::from(
            SUFFIX_ALPHABET[rng.random_range(0..SUFFIX_ALPHABET.len())],
        ));
    }
    name
}

/// Whether the text is a DNS-1123 label: `my-name`.
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_alphanumeric_inside(text, is_lower, |c| c == b'-')
}

/// Whether the text is a DNS-1123 subdomain: `example.com`.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && has_subdomain_form(text)
}

/// What is wrong with a DNS-1123 label.
pub fn check_label(text: &str) -> Vec<String> {
    let mut faults = check_length(text, MAX_LABEL);
    if !is_alphanumeric_inside(text, is_lower, |c| c == b'-') {
        faults.push(LABEL_TEXT.to_owned());
    }
    faults
}

/// What is wrong with a DNS-1123 subdomain.
pub fn check_subdomain(text: &str) -> Vec<String> {
    let mut faults = check_length(text, MAX_SUBDOMAIN);
    if !has_subdomain_form(text) {
        faults.push(SUBDOMAIN_TEXT.to_owned());
    }
    faults
}

/// What is wrong with a prefix that a generated name of this form would begin with: a dash at its end is fine.
pub fn check_prefix(prefix: &str, check: fn(&str) -> Vec<String>) -> Vec<String> {
    match prefix.strip_suffix('-') {
        Some(base) => check(&format!("{base}a")),
        None => check(prefix),
    }
}

/// What is wrong with a qualified name (label key, taint key): `[prefix/]name`.
pub fn check_qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = text.split('/');
    let (first, second, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if more.is_some() {
        return vec![format!(
            "a qualified name {QUALIFIED_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    let name = match second {
        None => first,
        Some(name) => {
            if first.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    check_subdomain(first)
                        .iter()
                        .map(|fault| format!("prefix part {fault}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else {
        faults.extend(
            check_length(name, MAX_LABEL)
                .iter()
                .map(|fault| format!("name part {fault}")),
        );
    }
    if !has_label_form(name) {
        faults.push(with_foreign_character(
            format!("name part {QUALIFIED_TEXT}"),
            name,
        ));
    }
    faults
}

/// What is wrong with the value of a label.
pub fn check_label_value(text: &str) -> Vec<String> {
    let mut faults = check_length(text, MAX_LABEL);
    if !text.is_empty() && !has_label_form(text) {
        faults.push(with_foreign_character(LABEL_VALUE_TEXT.to_owned(), text));
    }
    faults
}

/// What is wrong with a key of a ConfigMap or Secret.
pub fn check_config_key(text: &str) -> Vec<String> {
    let mut faults = check_length(text, MAX_SUBDOMAIN);
    if text.is_empty()
        || !text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c))
    {
        faults.push(CONFIG_KEY_TEXT.to_owned());
    }
    if text == "." {
        faults.push("must not be '.'".to_owned());
    } else if text == ".." {
        faults.push("must not be '..'".to_owned());
    } else if text.starts_with("..") {
        faults.push("must not start with '..'".to_owned());
    }
    faults
}

/// What is wrong with the name of an environment variable.
pub fn check_env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        vec!["environment variable name must be non-empty".to_owned()]
    } else if text
        .bytes()
        .any(|c| !(b' '..=b'~').contains(&c) || c == b'=')
    {
        vec![ENV_NAME_TEXT.to_owned()]
    } else {
        Vec::new()
    }
}

/// What is wrong with the name of a port: at most 15 letters, digits and single dashes.
pub fn check_port_name(text: &str) -> Vec<String> {
    let mut faults = check_length(text, 15);
    if text.is_empty() || !text.bytes().all(|c| is_lower(c) || c == b'-') {
        faults.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// What is wrong with the number of a port.
pub fn check_port_number(port: i64) -> Option<&'static str> {
    (!(1..=65_535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

/// The fault, with the first character outside of ASCII and its code point: letters of other scripts look alike.
fn with_foreign_character(fault: String, text: &str) -> String {
    match text.chars().find(|c| !c.is_ascii()) {
        Some(c) => format!("{fault}; found {}", crate::codec::describe(c)),
        None => fault,
    }
}

fn check_length(text: &str, most: usize) -> Vec<String> {
    if text.len() > most {
        vec![format!("must be no more than {most} bytes")]
    } else {
        Vec::new()
    }
}

fn is_lower(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn has_subdomain_form(text: &str) -> bool {
    text.split('.')
        .all(|part| is_alphanumeric_inside(part, is_lower, |c| c == b'-'))
}

fn has_label_form(text: &str) -> bool {
    is_alphanumeric_inside(text, |c| c.is_ascii_alphanumeric(), |c| b"-_.".contains(&c))
}

/// Whether the text begins and ends with `outer` characters and has only those and `inner` ones between.
fn is_alphanumeric_inside(text: &str, outer: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            outer(*first) && outer(*last) && bytes.iter().all(|c| outer(*c) || inner(*c))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn ds_040_generated_names_keep_58_characters_and_add_five() {
        let mut rng = StdRng::seed_from_u64(1);
        let name = generate_name("web-", &mut rng);
        assert_eq!(name.len(), 9);
        assert!(name.starts_with("web-"));
        assert!(name.bytes().skip(4).all(|c| SUFFIX_ALPHABET.contains(&c)));
        assert_eq!(
            generate_name(&format!("{}-", "a".repeat(70)), &mut rng).len(),
            63
        );
    }

    #[test]
    fn a_subdomain_is_refused_with_kubernetes_own_words() {
        assert_eq!(
            check_subdomain("Bad_Name"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            check_subdomain(&"a".repeat(254)),
            ["must be no more than 253 bytes"]
        );
        for good in ["a", "a-b", "a.b-c.9", "0"] {
            assert!(
                is_subdomain(good) && check_subdomain(good).is_empty(),
                "{good}"
            );
        }
        for bad in ["", "-a", "a-", "a..b", ".a", "a.", "A", "é", "a_b", "a.-b"] {
            assert!(
                !is_subdomain(bad) && !check_subdomain(bad).is_empty(),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_label_is_refused_with_kubernetes_own_words() {
        assert_eq!(check_label("a.b"), [LABEL_TEXT]);
        assert_eq!(
            check_label(&"a".repeat(64)),
            ["must be no more than 63 bytes"]
        );
        assert!(is_label("a-1") && check_label("a-1").is_empty());
    }

    #[test]
    fn a_qualified_name_has_an_optional_prefix() {
        for good in ["a", "A.b_c-d", "example.com/Name", "9"] {
            assert!(check_qualified_name(good).is_empty(), "{good}");
        }
        assert_eq!(
            check_qualified_name("/a"),
            ["prefix part must be non-empty"]
        );
        assert_eq!(
            check_qualified_name("x/"),
            [
                "name part must be non-empty".to_owned(),
                format!("name part {QUALIFIED_TEXT}")
            ]
        );
        assert_eq!(
            check_qualified_name("a b"),
            [format!("name part {QUALIFIED_TEXT}")]
        );
        assert_eq!(
            check_qualified_name("X/a"),
            [format!("prefix part {SUBDOMAIN_TEXT}")]
        );
        assert!(check_qualified_name("a/b/c")[0].starts_with("a qualified name must consist of"));
        assert_eq!(
            check_qualified_name(&"a".repeat(64)),
            ["name part must be no more than 63 bytes"]
        );
    }

    #[test]
    fn label_values_may_be_empty() {
        for good in ["", "a", "A_b.c-D", "1"] {
            assert!(check_label_value(good).is_empty(), "{good}");
        }
        assert_eq!(check_label_value("-a"), [LABEL_VALUE_TEXT]);
        assert_eq!(check_label_value("a/b"), [LABEL_VALUE_TEXT]);
    }

    #[test]
    fn configuration_keys_are_file_names_that_stay_in_their_directory() {
        for good in ["a", "A.b_c", ".hidden", "a..b"] {
            assert!(check_config_key(good).is_empty(), "{good}");
        }
        assert_eq!(check_config_key("a/b"), [CONFIG_KEY_TEXT]);
        assert_eq!(check_config_key("."), ["must not be '.'"]);
        assert_eq!(check_config_key(".."), ["must not be '..'"]);
        assert_eq!(check_config_key("..a"), ["must not start with '..'"]);
    }

    #[test]
    fn port_and_variable_names() {
        assert!(check_port_name("http-1").is_empty());
        assert_eq!(
            check_port_name("1"),
            ["must contain at least one letter (a-z)"]
        );
        assert_eq!(
            check_port_name("a--b"),
            ["must not contain consecutive hyphens"]
        );
        assert_eq!(
            check_port_name("a-"),
            ["must not begin or end with a hyphen"]
        );
        assert_eq!(
            check_port_name("abcdefghijklmnop"),
            ["must be no more than 15 bytes"]
        );
        assert_eq!(
            check_port_number(0),
            Some("must be between 1 and 65535, inclusive")
        );
        assert_eq!(check_port_number(65_535), None);
        assert!(check_env_name("my.VAR-1 x").is_empty());
        assert_eq!(check_env_name("a=b"), [ENV_NAME_TEXT]);
        assert_eq!(check_env_name("é"), [ENV_NAME_TEXT]);
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        assert!(check_prefix("web-", check_subdomain).is_empty());
        assert!(!check_prefix("Web-", check_subdomain).is_empty());
    }

    proptest! {
        #[test]
        fn a_name_generated_from_a_good_prefix_is_a_good_name(prefix in "[a-z0-9]{1,80}-", seed: u64) {
            let name = generate_name(&prefix, &mut StdRng::seed_from_u64(seed));
            prop_assert!(is_label(&name));
        }

        #[test]
        fn any_text_is_judged(text in "\\PC{0,80}") {
            prop_assert_eq!(is_label(&text), check_label(&text).is_empty());
            prop_assert_eq!(is_subdomain(&text), check_subdomain(&text).is_empty());
            check_qualified_name(&text);
            check_config_key(&text);
        }
    }

    #[test]
    fn case_b55_a_letter_that_only_looks_like_ascii_is_shown_with_its_code_point() {
        let value = check_label_value("n\u{43e}de");
        assert!(
            value[0].ends_with("; found the character 'о' (U+043E)"),
            "{value:?}"
        );
        let key = check_qualified_name("\u{430}pp");
        assert!(
            key[0].ends_with("; found the character 'а' (U+0430)"),
            "{key:?}"
        );
    }
}
