//! The objects of `-f`: files, folders, standard input.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use muster_client::FieldValidation;
use muster_model::codec;
use muster_model::kind::{KINDS, Kind, by_api_version};
use muster_model::object::{NamespacedName, Object};
use muster_model::selector::Selector;

use crate::args::LabelSelector;
use crate::console::Console;
use crate::failure::{Failure, Outcome};

/// Largest manifest that is read, in bytes: far above what a server takes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Where manifests come from.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FileArgs {
    /// A manifest: a file, a folder, or - for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) filenames: Vec<String>,
    /// Go into the folders of folders
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// What to do about fields that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Validate {
    /// Refuse the object
    #[default]
    #[value(alias = "true")]
    Strict,
    /// Drop the field and warn
    Warn,
    /// Drop the field
    #[value(alias = "false")]
    Ignore,
}

impl Validate {
    /// As the server is told.
    pub(crate) fn for_server(self) -> FieldValidation {
        match self {
            Self::Strict => FieldValidation::Strict,
            Self::Warn => FieldValidation::Warn,
            Self::Ignore => FieldValidation::Ignore,
        }
    }

    fn for_codec(self) -> codec::FieldValidation {
        match self {
            Self::Strict => codec::FieldValidation::Strict,
            Self::Warn => codec::FieldValidation::Warn,
            Self::Ignore => codec::FieldValidation::Ignore,
        }
    }
}

/// One object of a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// What to do.
    pub(crate) object: Object,
    /// Its kind.
    pub(crate) kind: &'static Kind,
    /// The file, as messages name it.
    pub(crate) source: String,
}

impl Manifest {
    /// Namespace and name.
    pub(crate) fn name(&self) -> NamespacedName {
        let namespace = if self.kind.namespaced {
            self.object.namespace()
        } else {
            ""
        };
        NamespacedName::new(namespace, self.object.name())
    }
}

/// The namespace of this command, and whether the user named it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefaultNamespace<'a> {
    /// Where objects without a namespace go.
    pub(crate) name: &'a str,
    /// Then objects of other namespaces are refused.
    pub(crate) was_given: bool,
}

/// Reads every object. One fault refuses everything, before anything is sent.
pub(crate) fn load(
    files: &FileArgs,
    namespace: DefaultNamespace<'_>,
    validate: Validate,
    console: &mut Console,
) -> Outcome<Vec<Manifest>> {
    if files.filenames.is_empty() {
        return Err(Failure::new(
            "must specify one of -f: a file, a folder, or - for standard input",
        ));
    }
    let mut manifests = Vec::new();
    for (name, bytes) in read_all(files)? {
        let documents = codec::read_manifests(&name, &bytes)
            .map_err(|error| Failure::new(format!("cannot read {error}")))?;
        for document in documents {
            let (object, kind) = judged(document, &name, validate, console)?;
            manifests.push(placed(
                Manifest {
                    object,
                    kind,
                    source: name.clone(),
                },
                namespace,
            )?);
        }
    }
    if manifests.is_empty() {
        return Err(Failure::new(format!(
            "no objects passed: {} holds none",
            files.filenames.join(", ")
        )));
    }
    Ok(manifests)
}

/// The manifests whose labels `-l` asks for; without `-l` all of them.
pub(crate) fn selected(
    mut manifests: Vec<Manifest>,
    selector: &LabelSelector,
) -> Outcome<Vec<Manifest>> {
    let parsed = Selector::parse(&selector.text).map_err(|error| {
        Failure::new(format!(
            "the provided selector {:?} is not valid: {error}",
            selector.text
        ))
    })?;
    manifests.retain(|manifest| parsed.matches(&manifest.object.labels()));
    Ok(manifests)
}

fn judged(
    document: codec::Document,
    source: &str,
    validate: Validate,
    console: &mut Console,
) -> Outcome<(Object, &'static Kind)> {
    let place = if document.line > 1 {
        format!("{source}: line {}", document.line)
    } else {
        source.to_owned()
    };
    let (api_version, kind_name) = (document.object.api_version(), document.object.kind_name());
    for (field, value) in [("apiVersion", api_version), ("kind", kind_name)] {
        if value.is_empty() {
            return Err(Failure::new(format!(
                "error validating {place:?}: {field} not set"
            )));
        }
    }
    let Some(kind) = by_api_version(api_version, kind_name) else {
        let served: Vec<String> = KINDS
            .iter()
            .filter(|kind| kind.kind == kind_name)
            .map(|kind| kind.api_version())
            .collect();
        let hint = if served.is_empty() {
            "Muster serves no such kind".to_owned()
        } else {
            format!("Muster serves it as {}", served.join(", "))
        };
        let name = document.object.name();
        return Err(Failure::new(format!(
            "no matches for kind {kind_name:?} in version {api_version:?} (object {name:?} of {place:?}): {hint}"
        )));
    };
    let decoded = codec::decode_tree(
        kind,
        document.object.into_tree(),
        &document.duplicates,
        validate.for_codec(),
    )
    .map_err(|error| Failure::new(format!("error validating {place:?}: {error}")))?;
    console.warnings(&decoded.warnings);
    Ok((decoded.object, kind))
}

fn placed(mut manifest: Manifest, namespace: DefaultNamespace<'_>) -> Outcome<Manifest> {
    let own = manifest.object.namespace().to_owned();
    if manifest.object.name().is_empty()
        && manifest.object.text_at("/metadata/generateName").is_empty()
    {
        return Err(Failure::new(format!(
            "error validating {:?}: metadata.name: Required value: {} has no name",
            manifest.source, manifest.kind.kind
        )));
    }
    if !manifest.kind.namespaced {
        return Ok(manifest);
    }
    if own.is_empty() {
        manifest
            .object
            .metadata_mut()
            .insert("namespace".to_owned(), namespace.name.into());
    } else if namespace.was_given && own != namespace.name {
        return Err(Failure::new(format!(
            "the namespace from the provided object {own:?} does not match the namespace {:?}. You must pass \
             '--namespace={own}' to perform this operation.",
            namespace.name
        )));
    }
    Ok(manifest)
}

fn read_all(files: &FileArgs) -> Outcome<Vec<(String, Vec<u8>)>> {
    let mut texts = Vec::new();
    for name in &files.filenames {
        if name == "-" {
            let mut bytes = Vec::new();
            std::io::stdin()
                .take(MAX_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
            texts.push(("STDIN".to_owned(), bytes));
            continue;
        }
        if name.starts_with("http://") || name.starts_with("https://") {
            return Err(Failure::new(format!(
                "{name:?} is a URL, and manifests are read from files only: download it, look at it, then apply the file"
            )));
        }
        let path = Path::new(name);
        let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
        if metadata.is_dir() {
            let mut found = Vec::new();
            walk(path, files.recursive, &mut found)?;
            for path in found {
                texts.push((path.display().to_string(), read(&path)?));
            }
        } else {
            texts.push((name.clone(), read(path)?));
        }
    }
    Ok(texts)
}

/// The manifests of a folder, by name.
fn walk(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Outcome {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect()
        })
        .map_err(|error| cannot_read(folder, &error))?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if recursive {
                walk(&path, recursive, found)?;
            }
        } else if path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
        {
            found.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let file = fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, &error))?;
    Ok(bytes)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::NotFound {
        Failure::new(format!(
            "the path {:?} does not exist",
            path.display().to_string()
        ))
    } else {
        Failure::new(format!(
            "cannot read {:?}: {error}",
            path.display().to_string()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: DefaultNamespace<'_> = DefaultNamespace {
        name: "default",
        was_given: false,
    };

    fn load_texts(texts: &[(&str, &str)], validate: Validate) -> Outcome<Vec<Manifest>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = FileArgs {
            filenames: vec![folder.path().display().to_string()],
            recursive: false,
        };
        load(&files, NAMESPACE, validate, &mut Console::captured().0)
    }

    fn fault(text: &str) -> String {
        load_texts(&[("f.yaml", text)], Validate::Strict)
            .unwrap_err()
            .text
    }

    #[test]
    fn a_folder_is_read_by_name_without_what_is_no_manifest() {
        let map =
            |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let (b, a, c) = (map("b"), map("a"), map("c"));
        let found = load_texts(
            &[
                ("2.yml", &b),
                ("1.yaml", &a),
                ("note.txt", "x"),
                ("deep/3.yaml", &c),
            ],
            Validate::Strict,
        )
        .unwrap();
        let names: Vec<_> = found.iter().map(|m| m.name().to_string()).collect();
        assert_eq!(names, ["default/a", "default/b"]);
    }

    #[test]
    fn bad_manifests_say_what_and_where() {
        for (text, parts) in [
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\n",
                vec!["f.yaml", "line"],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n\tname: a\n",
                vec!["f.yaml", "tab"],
            ),
            ("kind: ConfigMap\n", vec!["apiVersion not set"]),
            (
                "apiVersion: v1\nmetadata: {name: a}\n",
                vec!["kind not set"],
            ),
            (
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
                vec!["no matches for kind \"Deployment\""],
            ),
            (
                "apiVersion: extensions/v1beta1\nkind: DaemonSet\nmetadata: {name: a}\n",
                vec!["Muster serves it as apps/v1"],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
                vec!["metadata.name", "has no name"],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}\n",
                vec!["unknown field \"datum\""],
            ),
            ("- a\n", vec!["expected an object"]),
            ("", vec!["no objects passed"]),
        ] {
            let failure = fault(text);
            for part in parts {
                assert!(failure.contains(part), "{part:?} is not in {failure:?}");
            }
        }
    }

    #[test]
    fn a_namespace_that_contradicts_the_flag_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.yaml");
        fs::write(
            &path,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: one}\n",
        )
        .unwrap();
        let files = FileArgs {
            filenames: vec![path.display().to_string()],
            recursive: false,
        };
        let given = DefaultNamespace {
            name: "two",
            was_given: true,
        };
        let failure =
            load(&files, given, Validate::Strict, &mut Console::captured().0).unwrap_err();
        assert!(
            failure.text.contains("You must pass '--namespace=one'"),
            "{}",
            failure.text
        );
    }

    #[test]
    fn a_url_and_a_missing_path_are_told_apart() {
        let load_name = |name: &str| {
            let files = FileArgs {
                filenames: vec![name.to_owned()],
                recursive: false,
            };
            load(
                &files,
                NAMESPACE,
                Validate::Strict,
                &mut Console::captured().0,
            )
            .unwrap_err()
            .text
        };
        assert!(load_name("https://example.org/a.yaml").contains("is a URL"));
        assert_eq!(
            load_name("/does/not/exist"),
            "error: the path \"/does/not/exist\" does not exist"
        );
    }
}
