//! Manifest files: documents, lists, places, limits, and the oddities of YAML.

use serde_json::json;

use super::*;

fn manifests(text: &str) -> Vec<Document> {
    read_manifests("ds.yaml", text.as_bytes()).unwrap()
}

fn refusal(text: &str) -> String {
    read_manifests("ds.yaml", text.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn case_b45_separators_with_trailing_blanks_and_crlf_part_documents() {
    let one = daemon("");
    for separator in ["---", "---   ", "---\t", "--- # second", "...\n---"] {
        let text = format!("{one}{separator}\n{one}");
        for text in [
            text.clone(),
            text.replace('\n', "\r\n"),
            format!("---\n{text}---\n"),
            format!("{text}\n---  "),
        ] {
            let documents = manifests(&text);
            assert_eq!(documents.len(), 2, "{separator:?}");
            for document in &documents {
                let tree = document.object.tree().to_string();
                assert!(!tree.contains("\\r"), "{tree}");
                assert_eq!(
                    document
                        .object
                        .text_at("/spec/template/spec/containers/0/image"),
                    "busybox:1"
                );
            }
        }
    }
}

#[test]
fn documents_know_their_place() {
    let text = "# a comment\n\n---\n---\nkind: A\n---\n# nothing\n---\n\nkind: B\nkind: C\n";
    let places: Vec<_> = manifests(text)
        .into_iter()
        .map(|d| (d.object.kind_name().to_owned(), d.line, d.duplicates))
        .collect();
    assert_eq!(
        places,
        [
            ("A".to_owned(), 5, vec![]),
            ("C".to_owned(), 10, vec!["kind".to_owned()])
        ]
    );
    assert!(manifests("").is_empty());
    assert!(manifests("# only a comment\n").is_empty());
}

#[test]
fn several_json_values_are_several_documents() {
    let documents =
        manifests("{\"kind\":\"A\",\"x\":{\"y\":1,\"y\":2}}\n\n{\"kind\":\"B\"} {\"kind\":\"C\"}");
    let places: Vec<_> = documents
        .iter()
        .map(|d| (d.object.kind_name(), d.line))
        .collect();
    assert_eq!(places, [("A", 1), ("B", 3), ("C", 3)]);
    assert_eq!(documents[0].duplicates, ["x.y"]);
    assert_eq!(documents[0].object.at("/x/y"), Some(&json!(2)));
}

#[test]
fn lists_are_flattened() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- {kind: A}\n- {kind: B, x: {a: 1, a: 2}}\n";
    let documents = manifests(text);
    assert_eq!(
        documents
            .iter()
            .map(|d| d.object.kind_name())
            .collect::<Vec<_>>(),
        ["A", "B"]
    );
    assert_eq!(documents[1].duplicates, ["x.a"]);
    let typed = manifests("apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n");
    assert_eq!(
        (typed[0].object.api_version(), typed[0].object.kind_name()),
        ("v1", "ConfigMap")
    );
    assert!(manifests("apiVersion: v1\nkind: List\nitems: []\n").is_empty());
}

#[test]
fn case_b53_a_bomb_of_aliases_is_refused_and_an_honest_anchor_works() {
    let mut bomb =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bomb\na: &a [x,x,x,x,x,x,x,x,x]\n"
            .to_owned();
    for (level, before) in ["b", "c", "d", "e", "f", "g", "h", "i"]
        .into_iter()
        .zip(["a", "b", "c", "d", "e", "f", "g", "h"])
    {
        let aliases = vec![format!("*{before}"); 9].join(",");
        bomb.push_str(&format!("{level}: &{level} [{aliases}]\n"));
    }
    let error = decode(&kind::CONFIG_MAP, bomb.as_bytes(), FieldValidation::Strict)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("anchors and aliases expand to more than 2 MiB"),
        "{error}"
    );
    let honest = "metadata:\n  name: demo\n  labels: &labels\n    app: demo\nspec:\n  selector:\n    matchLabels: *labels\n";
    let read = decode(
        &kind::DAEMON_SET,
        honest.as_bytes(),
        FieldValidation::Strict,
    )
    .unwrap()
    .object;
    assert_eq!(
        read.at("/spec/selector/matchLabels"),
        Some(&json!({"app": "demo"}))
    );
    assert_eq!(read.labels().len(), 1);
}

#[test]
fn case_b55_characters_that_look_like_blanks_are_named_with_their_place() {
    let tab = daemon("\t      tty: true\n");
    assert_eq!(
        refusal(&tab),
        "ds.yaml: line 17, column 1: found a tab (U+0009): YAML is indented with spaces"
    );
    let tab = daemon("      \ttty: true\n");
    assert_eq!(
        refusal(&tab),
        "ds.yaml: line 17, column 7: found a tab (U+0009): YAML is indented with spaces"
    );
    let blank = daemon("       \u{A0}tty: true\n");
    assert_eq!(
        refusal(&blank),
        "ds.yaml: line 17, column 8: found a no-break space (U+00A0): it is not a space: replace it"
    );
    let before_key = "kind: A\nmetadata:\n  name: x\n  labels:\n    \u{A0}a: b\n";
    assert_eq!(
        refusal(before_key),
        "ds.yaml: line 5, column 5: found a no-break space (U+00A0) in a key: it is not a space: replace it, or quote \
         the key"
    );
    let after_colon = "kind: A\nmetadata:\n  name:\u{A0}x\n  uid: u\n";
    assert_eq!(
        refusal(after_colon),
        "ds.yaml: line 3, column 8: found a no-break space (U+00A0): it is not a space: replace it"
    );
    let kept =
        manifests("kind: A\nmetadata:\n  annotations:\n    note: Grüße an Ольга 你好 \u{A0}!\n");
    assert_eq!(
        kept[0].object.annotation("note"),
        Some("Grüße an Ольга 你好 \u{A0}!")
    );
}

#[test]
fn what_is_no_text_is_refused_in_words() {
    let error = |bytes: &[u8]| read_manifests("f", bytes).unwrap_err().to_string();
    assert_eq!(
        error(b"a: \xe9\n"),
        "f: line 1, column 4: the byte 0xE9 is not valid UTF-8: save the text as UTF-8"
    );
    assert_eq!(
        error(b"\x7fELF\x02\x01\x00\x00\xff"),
        "f: line 1, column 9: it is binary data, not text"
    );
    assert_eq!(
        error(b"a: b\nc: \x01\n"),
        "f: line 2, column 4: a control character (U+0001) is not allowed in text"
    );
    assert_eq!(
        error(b"\xff\xfea\x00"),
        "f: it is UTF-16 text: save it as UTF-8"
    );
    assert_eq!(manifests("\u{FEFF}kind: A\n")[0].object.kind_name(), "A");
    assert_eq!(
        error(b"- a\n- b\n"),
        "f: line 1: expected an object (a mapping), found a list"
    );
    assert_eq!(
        error(b"{\"kind\": \"A\",\n \"x\" 1}"),
        "f: line 2, column 6: expected `:`"
    );
}

#[test]
fn too_much_is_refused_before_it_costs_much() {
    let big = vec![b'a'; 50 * 1024 * 1024];
    assert_eq!(
        read_manifests("big.yaml", &big).unwrap_err().to_string(),
        "big.yaml: it is 52428800 bytes long; at most 8388608 bytes (8 MiB) are read"
    );
    let deep = "lists and mappings are nested deeper than 100 levels";
    for text in [
        "[".repeat(5000),
        "{\"a\":".repeat(5000),
        format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120)),
    ] {
        let error = refusal(&text);
        assert!(error.ends_with(deep) || error.contains("EOF"), "{error}");
    }
    let block: String = (0..150).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(refusal(&block).ends_with(deep), "{}", refusal(&block));
    assert!(
        refusal(&"---\na: 1\n".repeat(10_001)).ends_with("there are more than 10000 documents")
    );
    assert!(
        refusal(&format!("a: [{}]", "1,".repeat(400_001)))
            .ends_with("there are more than 400000 values")
    );
    assert!(
        refusal(&format!("{{\"a\": [{}1]}}", "1,".repeat(400_001)))
            .ends_with("there are more than 400000 values")
    );
}

#[test]
fn merge_keys_and_tags_are_read_as_kubectl_reads_them() {
    let read = |text: &str| read_tree(text.as_bytes()).unwrap();
    let tree = read(
        "base: &b {a: 1, c: 3}\nx:\n  <<: *b\n  a: 2\nw:\n  a: 2\n  <<: *b\nz: {<<: [{a: 1}, {a: 5, d: 6}]}\n",
    );
    assert_eq!(tree.value["x"], json!({"a": 2, "c": 3}));
    assert_eq!(tree.value["w"], json!({"a": 1, "c": 3}));
    assert_eq!(tree.value["z"], json!({"a": 1, "d": 6}));
    assert!(tree.duplicates.is_empty());
    assert_eq!(read("{1: a, \"1\": b}").duplicates, ["1"]);
    assert_eq!(
        read("[!!str 5, !!int \"5\", !!bool yes, !!null '', !!float 1, !foo 5, ! 5, !!binary aGVsbG8=, '~', \"yes\"]").value,
        json!(["5", 5, true, null, 1, "5", "5", "hello", "~", "yes"])
    );
    for text in [
        "!!float x",
        "a: &x\n  b: *x",
        "a: *nope",
        "{~: a}",
        "{[a]: b}",
        "{<<: 5}",
        "a: .inf",
        "a: b: c",
    ] {
        assert!(read_tree(text.as_bytes()).is_err(), "{text}");
    }
}
