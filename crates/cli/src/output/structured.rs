//! `-o json|yaml|name|jsonpath=...|custom-columns=...`.

use muster_model::object::Object;
use serde_json::{Value, json};

use super::jsonpath::Template;
use super::table::Columns;
use super::yaml;
use crate::console::Console;
use crate::failure::{Failure, Outcome};

/// The forms of output.
#[derive(Debug, Clone)]
pub(crate) enum Format {
    /// The table people read.
    Table {
        /// Columns of priority 1 too.
        wide: bool,
    },
    /// Indented JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind.group/name`, one a line.
    Name,
    /// A template over the object or the list.
    JsonPath(Template),
    /// A table of one's own.
    CustomColumns(Vec<(String, Template)>),
}

impl Format {
    /// Reads the value of `-o`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match (name, rest) {
            ("" | "table", None) => Ok(Self::Table { wide: false }),
            ("wide", None) => Ok(Self::Table { wide: true }),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => Template::parse_relaxed(template).map(Self::JsonPath),
            ("custom-columns", Some(columns)) => columns
                .split(',')
                .map(column)
                .collect::<Result<_, _>>()
                .map(Self::CustomColumns),
            ("jsonpath", None) => {
                Err("a template is missing, such as -o jsonpath='{.metadata.name}'".to_owned())
            }
            ("custom-columns", None) => {
                Err("columns are missing, such as -o custom-columns=NAME:.metadata.name".to_owned())
            }
            _ => Err(format!(
                "unable to match a printer suitable for the output format {text:?}, allowed formats are: \
                 custom-columns, json, jsonpath, name, wide, yaml"
            )),
        }
    }

    /// Whether this is the table that the kind's columns make.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Table { .. })
    }
}

fn column(text: &str) -> Result<(String, Template), String> {
    match text.split_once(':') {
        Some((title, path)) if !title.is_empty() && !path.is_empty() => {
            Ok((title.to_owned(), Template::parse_relaxed(path)?))
        }
        _ => Err(format!(
            "unexpected custom-columns spec: {text}, expected <header>:<json-path-expr>"
        )),
    }
}

/// What is shown of an object: everything but who managed which field.
pub(crate) fn shown(object: &Object) -> Value {
    let mut tree = object.tree().clone();
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    tree
}

/// Writes one object (`single`), or a `List` of them.
pub(crate) fn write(
    console: &mut Console,
    format: &Format,
    objects: &[Object],
    single: bool,
) -> Outcome {
    let whole = || match objects {
        [only] if single => shown(only),
        _ => list(objects),
    };
    let out = &mut console.out;
    match format {
        Format::Table { .. } => return Err(Failure::new("a table needs its kind")),
        Format::Json => {
            let text = serde_json::to_string_pretty(&whole())
                .map_err(|error| Failure::new(error.to_string()))?;
            // kubectl indents by four.
            writeln!(out, "{}", wider(&text))?;
        }
        Format::Yaml => console.yaml(&yaml::to_text(&whole())?)?,
        Format::Name => {
            for object in objects {
                writeln!(out, "{}", name_of(object))?;
            }
        }
        Format::JsonPath(template) => {
            out.write_all(template.render(&whole()).as_bytes())?;
        }
        Format::CustomColumns(columns) => {
            let mut rows = vec![columns.iter().map(|(title, _)| title.clone()).collect()];
            rows.extend(objects.iter().map(|object| custom_row(columns, object)));
            Columns::new().write(out, "", &rows)?;
        }
    }
    Ok(())
}

/// Writes one object of those that come one after the other: each begins a line of its own.
pub(crate) fn write_next(console: &mut Console, format: &Format, object: Object) -> Outcome {
    write(console, format, &[object], true)?;
    if matches!(format, Format::JsonPath(_)) {
        console.line("")?;
    }
    Ok(())
}

fn custom_row(columns: &[(String, Template)], object: &Object) -> Vec<String> {
    let tree = shown(object);
    let cell = |(_, template): &(String, Template)| {
        let values: Vec<String> = template
            .values(&tree)
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        if values.is_empty() {
            "<none>".to_owned()
        } else {
            values.join(",")
        }
    };
    columns.iter().map(cell).collect()
}

/// `daemonset.apps/web`, as commands print what they acted on.
pub(crate) fn name_of(object: &Object) -> String {
    match object.kind() {
        Some(kind) => format!("{}/{}", kind.qualified_singular(), object.name()),
        None => format!("{}/{}", object.kind_name().to_lowercase(), object.name()),
    }
}

fn list(objects: &[Object]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": objects.iter().map(shown).collect::<Vec<_>>(),
    })
}

/// Doubles the indentation of JSON text. Line breaks inside texts are escaped, so every line starts with its own.
fn wider(text: &str) -> String {
    let mut wide = String::with_capacity(text.len() * 5 / 4);
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            wide.push('\n');
        }
        let rest = line.trim_start_matches(' ');
        wide.push_str(&" ".repeat((line.len() - rest.len()) * 2));
        wide.push_str(rest);
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::POD;

    fn pods() -> Vec<Object> {
        ["a", "b"]
            .map(|name| {
                let mut object = Object::from_value(json!({
                    "metadata": {"name": name, "managedFields": [{}]}, "spec": {"nodeName": format!("n-{name}")}}))
                .unwrap();
                object.set_kind(&POD);
                object
            })
            .to_vec()
    }

    fn render(format: &str, objects: &[Object], single: bool) -> String {
        let (mut console, out, _) = Console::captured();
        let format = Format::parse(format).unwrap();
        write(&mut console, &format, objects, single).unwrap();
        out.text()
    }

    #[test]
    fn lists_are_lists_and_single_objects_are_not() {
        let pods = pods();
        assert!(render("json", &pods[..1], true).contains("\"kind\": \"Pod\""));
        let text = render("json", &pods[..1], false);
        assert!(
            text.starts_with("{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {"),
            "{text}"
        );
        assert!(
            text.contains("\"kind\": \"List\"") && !text.contains("managedFields"),
            "{text}"
        );
        assert_eq!(render("name", &pods, false), "pod/a\npod/b\n");
        assert_eq!(
            render("jsonpath={.items[*].metadata.name}", &pods, false),
            "a b"
        );
        assert_eq!(render("jsonpath={.metadata.name}", &pods[..1], true), "a");
    }

    #[test]
    fn custom_columns_make_a_table() {
        insta::assert_snapshot!(render("custom-columns=NAME:.metadata.name,ON:.spec.nodeName,IP:.status.podIP", &pods(), false), @r"
        NAME   ON    IP
        a      n-a   <none>
        b      n-b   <none>
        ");
    }

    #[test]
    fn an_unknown_format_names_those_there_are() {
        assert!(
            Format::parse("xml")
                .unwrap_err()
                .contains("allowed formats are")
        );
        assert!(
            Format::parse("jsonpath")
                .unwrap_err()
                .contains("template is missing")
        );
        assert!(
            Format::parse("custom-columns=a")
                .unwrap_err()
                .contains("expected <header>")
        );
    }
}
