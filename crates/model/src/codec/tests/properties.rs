//! What holds for any input.

use proptest::prelude::*;

use serde_json::json;

use super::*;

fn tree() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[ -~]{0,12}",
        "[a-zA-Zé~0-9_.:+ \\n\\t-]{0,10}",
        prop::sample::select(vec![
            "yes",
            "n",
            "on",
            "~",
            "null",
            "0123",
            "1e3",
            "1_000",
            "0x1f",
            "2001-01-01",
            "<<",
            "=",
            "- a",
            "a: b",
            "#x",
            "1:20",
            "",
            " ",
            ".5",
            "089",
            "0b1",
            "_1",
            "+1",
            "!x",
            "&a",
            "*a",
            "|",
            ">",
            "%x",
            "@x",
            "`x",
            "---",
            "...",
            "a\nb\n",
            "\n",
            "x\n\n",
            " a\n b",
            "\u{A0}x",
            "\u{FEFF}",
            "0o17",
            ".inf",
            "y",
            "Off",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|n| json!(n)),
        (-1000i32..1000).prop_map(|n| json!(f64::from(n) + 0.5)),
        text.clone().prop_map(Value::String),
    ];
    let key = prop_oneof!["[a-z]{1,6}", "[ -~]{0,8}"];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_manifests("f", &bytes);
        for kind in kind::KINDS {
            let _ = decode(kind, &bytes, FieldValidation::Strict);
        }
    }

    #[test]
    fn no_text_panics(text in "[a-c&*!|>{}\\[\\],:?<'\"#%@~ \\n\\t\\r0-9.-]{0,80}") {
        let _ = read_manifests("f", text.as_bytes());
    }

    #[test]
    fn no_tree_panics(tree in tree()) {
        for kind in kind::KINDS {
            let _ = decode_value(kind, tree.clone(), FieldValidation::Strict);
            let object = json!({"metadata": tree, "spec": tree, "status": tree, "data": tree});
            if let Ok(decoded) = decode_value(kind, object, FieldValidation::Ignore) {
                let again = decode_value(kind, decoded.object.tree().clone(), FieldValidation::Strict).unwrap();
                prop_assert_eq!(again.object, decoded.object);
            }
        }
    }

    #[test]
    fn json_is_read_back_as_it_was_written(tree in tree()) {
        let tree = json!({ "x": tree });
        for text in [tree.to_string(), kubectl_json(&tree)] {
            prop_assert_eq!(&read_tree(text.as_bytes()).unwrap().value, &tree);
        }
    }

    #[test]
    fn yaml_is_read_back_as_it_was_written(tree in tree()) {
        let tree = json!({ "x": tree });
        let text = to_yaml(&tree);
        let read = read_tree(text.as_bytes());
        prop_assert_eq!(read.map(|t| t.value), Ok(tree), "{}", text);
    }
}
