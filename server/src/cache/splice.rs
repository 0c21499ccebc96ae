//! Puts a resourceVersion into an object's text. The object was just parsed from it, so it is known to be good; what is
//! found here to be otherwise than this server writes it (blanks, another order) is left to the encoder.

use muster_store::Revision;

const FIELD: &[u8] = b"resourceVersion";

/// The text with `metadata.resourceVersion`, where the encoder would put it: byte for byte what it would write, when it wrote
/// `text`. `None`: the text has no metadata of the usual form, has a version already, or there is none to set.
pub(super) fn with_version(text: &[u8], revision: Revision) -> Option<Vec<u8>> {
    if revision == Revision(0) {
        return None;
    }
    let (at, comma) = place(text)?;
    let field = match comma {
        Comma::After => format!("\"resourceVersion\":\"{revision}\","),
        Comma::Before => format!(",\"resourceVersion\":\"{revision}\""),
        Comma::None => format!("\"resourceVersion\":\"{revision}\""),
    };
    let mut spliced = Vec::with_capacity(text.len() + field.len());
    spliced.extend_from_slice(&text[..at]);
    spliced.extend_from_slice(field.as_bytes());
    spliced.extend_from_slice(&text[at..]);
    Some(spliced)
}

enum Comma {
    Before,
    After,
    None,
}

/// Where the field goes: before the first key of `metadata` that sorts after it, else at the end.
fn place(text: &[u8]) -> Option<(usize, Comma)> {
    let mut at = expect(text, 0, b'{')?;
    loop {
        let (key, value) = key_at(text, at)?;
        if key == b"metadata" {
            at = expect(text, value, b'{')?;
            break;
        }
        // The end of the object instead of a comma: there is no metadata.
        at = expect(text, skip(text, value)?, b',')?;
    }
    if text.get(at) == Some(&b'}') {
        return Some((at, Comma::None));
    }
    loop {
        let (key, value) = key_at(text, at)?;
        if key.contains(&b'\\') {
            // It sorts by what it means, not by how it is written.
            return None;
        }
        match key.cmp(FIELD) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => return Some((at, Comma::After)),
        }
        let end = skip(text, value)?;
        match text.get(end)? {
            b',' => at = end + 1,
            b'}' => return Some((end, Comma::Before)),
            _ => return None,
        }
    }
}

fn expect(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (text.get(at) == Some(&byte)).then_some(at + 1)
}

/// The key that begins here, as it is written, and where its value begins.
fn key_at(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = end_of_string(text, at)?;
    Some((text.get(at + 1..end - 1)?, expect(text, end, b':')?))
}

/// Behind the string that begins here.
fn end_of_string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = expect(text, at, b'"')?;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Behind the value that begins here.
fn skip(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => at = end_of_string(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b',' if depth == 0 => return Some(at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::object::Object;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn encoded(tree: &Value, revision: u64) -> String {
        let mut object = Object::from_value(tree.clone()).unwrap();
        object
            .metadata_mut()
            .insert("resourceVersion".into(), revision.to_string().into());
        String::from_utf8(object.to_bytes()).unwrap()
    }

    fn spliced(tree: &Value, revision: u64) -> Option<String> {
        let text = Object::from_value(tree.clone()).unwrap().to_bytes();
        with_version(&text, Revision(revision)).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_version_goes_where_the_encoder_puts_it() {
        for tree in [
            json!({"kind": "Pod", "metadata": {}}),
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"metadata": {"uid": 1}}}),
            json!({"metadata": {"uid": "u"}}),
            json!({"metadata": {"a": 1, "resourceVersio": 2, "resourceVersionX": 3}}),
            json!({"data": {"metadata": {"uid": "\\\"}{"}, "x": "a\\"}, "metadata": {"name": "<\"\u{2028}>", "uid": "u"}}),
            json!({"a": [1, {"b": "]"}, null, true], "metadata": {"annotations": {"resourceVersion": "no"}, "z": 1}}),
        ] {
            assert_eq!(spliced(&tree, 71), Some(encoded(&tree, 71)), "{tree}");
        }
    }

    #[test]
    fn what_is_of_another_form_is_left_to_the_encoder() {
        for text in [
            r#"{"kind":"Pod"}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":[]}"#,
            r#"{ "metadata":{}}"#,
            r#"{"metadata":{"name" :"a"}}"#,
            r#"{"metadata":{"resourceVersion":"7"}}"#,
            r#"{"metadata":{"name":"a"#,
            r#"{"metadata":{"name":"a\"#,
            "",
            "{",
            "{}",
            "[]",
        ] {
            assert_eq!(with_version(text.as_bytes(), Revision(71)), None, "{text}");
        }
        assert_eq!(spliced(&json!({"metadata": {}}), 0), None);
        assert_eq!(spliced(&json!({"metadata": {"\u{2028}": 1}}), 5), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_the_object_holds_the_text_is_the_encoders(
            rest in prop::collection::btree_map("[a-z]{1,9}", value(), 0..4),
            metadata in prop::collection::btree_map("[a-z]{1,3}|\\PC{0,3}", value(), 0..5),
        ) {
            let mut tree: serde_json::Map<String, Value> = rest.into_iter().collect();
            tree.insert("metadata".into(), Value::Object(metadata.into_iter().collect()));
            let tree = Value::Object(tree);
            let spliced = spliced(&tree, 5);
            prop_assert!(spliced.is_none_or(|text| text == encoded(&tree, 5)), "{}", tree);
        }

        #[test]
        fn no_text_is_too_strange(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = with_version(&text, Revision(5));
        }
    }
}
