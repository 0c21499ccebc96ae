//! YAML as `kubectl -o yaml` writes it: sorted keys, block style, lists not indented.

use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// The YAML text of a tree, ending with a newline.
pub(crate) fn to_text(value: &Value) -> Outcome<String> {
    // Long lines are not folded: people copy commands out of manifests.
    let options =
        serde_saphyr::ser_options! { compact_list_indent: true, folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Failure::new(format!("cannot write YAML: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_reads_as_kubectl_writes_it() {
        let tree = json!({
            "kind": "DaemonSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": "web", "labels": {}, "annotations": {"on": "true", "n": "1", "e": ""}},
            "spec": {"template": {"spec": {"containers": [
                {"name": "a", "args": ["-c", "x: y", "#no", "two\nlines\n"], "n": 1, "b": true, "z": null},
                {"name": "b"},
            ]}}},
        });
        let expected = r##"apiVersion: apps/v1
kind: DaemonSet
metadata:
  annotations:
    e: ""
    "n": "1"
    "on": "true"
  labels: {}
  name: web
spec:
  template:
    spec:
      containers:
      - args:
        - -c
        - "x: y"
        - "#no"
        - |
          two
          lines
        b: true
        "n": 1
        name: a
        z: null
      - name: b
"##;
        assert_eq!(to_text(&tree).unwrap(), expected);
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        for text in [
            "",
            " ",
            "1",
            "1e3",
            "0x1f",
            "true",
            "yes",
            "no",
            "on",
            "~",
            "null",
            "a: b",
            "- a",
            "#x",
            "a #x",
            "'",
            "\"",
            "\\n",
            "line\nline",
            "line\n",
            "\n",
            "  lead\n",
            "tab\there",
            "2026-01-31T10:00:00Z",
            "12:30:45",
            "=",
            "<<",
            "{}",
            "[a]",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "|",
            ">",
            "é",
            "a\u{7}b",
            "..",
            ".inf",
            "0o7",
            "1_000",
            "é: ü",
        ] {
            let tree = json!({"k": text, "l": [text], "m": {text: 1}});
            let yaml = to_text(&tree).unwrap();
            let back = muster_model::codec::read_tree(yaml.as_bytes());
            assert_eq!(
                back.map(|tree| tree.value).ok(),
                Some(tree),
                "{text:?} as\n{yaml}"
            );
        }
        let long = "word ".repeat(100);
        let tree = json!({"k": long});
        let yaml = to_text(&tree).unwrap();
        assert_eq!(
            muster_model::codec::read_tree(yaml.as_bytes())
                .unwrap()
                .value,
            tree,
            "{yaml}"
        );
        assert_eq!(yaml.lines().count(), 1, "{yaml}");
    }
}
