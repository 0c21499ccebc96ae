//! What people mean by `ds web`, `ds/web node/n1`, `ds,pods`, `all`.

use muster_client::ListOptions;
use muster_model::kind::{self, KINDS, Kind, NODE};
use muster_model::object::{NamespacedName, Object};

use crate::failure::{Failure, Outcome};
use crate::session::{Server, Session};

/// What the words of a command line select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Every object of these kinds.
    Kinds(Vec<&'static Kind>),
    /// These objects, in order.
    Objects(Vec<(&'static Kind, String)>),
}

impl Selection {
    /// Whether more than one kind was asked for: then names are printed with their kind.
    pub(crate) fn has_several_kinds(&self) -> bool {
        match self {
            Self::Kinds(kinds) => kinds.len() > 1,
            Self::Objects(objects) => objects.iter().any(|(kind, _)| *kind != objects[0].0),
        }
    }
}

/// The kind a word means.
pub(crate) fn kind_of(word: &str) -> Outcome<&'static Kind> {
    kind::by_word(word)
        .ok_or_else(|| Failure::new(format!("the server doesn't have a resource type {word:?}")))
}

/// Kinds of a comma-separated list; `all` stands for what users mostly look at.
fn kinds_of(words: &str) -> Outcome<Vec<&'static Kind>> {
    let mut kinds: Vec<&'static Kind> = Vec::new();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let found = if word.eq_ignore_ascii_case("all") {
            KINDS.iter().copied().filter(|kind| kind.in_all).collect()
        } else {
            vec![kind_of(word)?]
        };
        for kind in found {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    Ok(kinds)
}

/// The nodes that are meant: by their names, or all with these labels when there are no names. One that is missing is
/// told and does not hide the others; then the second value is true.
pub(crate) async fn nodes(
    session: &mut Session,
    server: &Server,
    names: &[String],
    label_selector: &str,
) -> Outcome<(Vec<Object>, bool)> {
    let resources = server.resources();
    if names.is_empty() {
        let options = ListOptions {
            label_selector: label_selector.to_owned(),
            ..ListOptions::default()
        };
        return Ok((resources.list(&NODE, "", &options).await?.items, false));
    }
    let (mut nodes, mut failed) = (Vec::new(), false);
    for name in names {
        match resources.get(&NODE, &NamespacedName::new("", name)).await {
            Ok(node) => nodes.push(node),
            Err(error) => {
                failed = true;
                session.console.note(Failure::from(error).text);
            }
        }
    }
    Ok((nodes, failed))
}

/// Reads the words after `get`, `describe`, `delete`, ...
pub(crate) fn parse(words: &[String]) -> Outcome<Selection> {
    let Some(first) = words.first() else {
        return Err(Failure::new(
            "you must say which kind of resource, such as `ds`, `pods` or `ds/NAME` (`all` for the usual ones)",
        ));
    };
    if words.iter().any(|word| word.contains('/')) {
        let mut objects = Vec::new();
        for word in words {
            let Some((kinds, name)) = word.split_once('/') else {
                return Err(Failure::new(
                    "there is no need to specify a resource type as a separate argument when passing arguments in \
                     resource/name form (e.g. 'muster get resource/<resource_name>' instead of 'muster get resource \
                     resource/<resource_name>')",
                ));
            };
            if name.is_empty() || name.contains('/') {
                return Err(Failure::new(format!(
                    "{word:?} is not of the form KIND/NAME"
                )));
            }
            objects.push((kind_of(kinds)?, name.to_owned()));
        }
        return Ok(Selection::Objects(objects));
    }
    let kinds = kinds_of(first)?;
    if words.len() == 1 {
        return Ok(Selection::Kinds(kinds));
    }
    let names = &words[1..];
    Ok(Selection::Objects(
        kinds
            .iter()
            .flat_map(|kind| names.iter().map(|name| (*kind, name.clone())))
            .collect(),
    ))
}

/// A name stands for one object, and `-A` for many of that name: refused, rather than taken for the present namespace.
pub(crate) fn one_namespace(objects: &[(&'static Kind, String)], all_namespaces: bool) -> Outcome {
    if all_namespaces && objects.iter().any(|(kind, _)| kind.namespaced) {
        return Err(Failure::new(
            "a resource cannot be retrieved by name across all namespaces",
        ));
    }
    Ok(())
}

/// Exactly one object: `ds/web`, `ds web`, or only `web` when `default` says which kind is meant.
pub(crate) fn parse_one(
    words: &[String],
    default: Option<&'static Kind>,
) -> Outcome<(&'static Kind, String)> {
    if let ([only], Some(kind)) = (words, default)
        && !only.contains('/')
    {
        return Ok((kind, only.clone()));
    }
    match parse(words)? {
        Selection::Objects(mut objects) if objects.len() == 1 => Ok(objects.remove(0)),
        _ => Err(Failure::new(
            "exactly one object is expected here, such as `ds/NAME`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::{DAEMON_SET, NODE, POD};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_select_what_kubectl_would_select() {
        assert_eq!(
            parse(&words("ds")).unwrap(),
            Selection::Kinds(vec![&DAEMON_SET])
        );
        assert_eq!(
            parse(&words("po,ds,pods")).unwrap(),
            Selection::Kinds(vec![&POD, &DAEMON_SET])
        );
        assert_eq!(
            parse(&words("all")).unwrap(),
            Selection::Kinds(vec![&POD, &DAEMON_SET])
        );
        let one = Selection::Objects(vec![(&DAEMON_SET, "web".into())]);
        assert_eq!(parse(&words("ds web")).unwrap(), one);
        assert_eq!(parse(&words("DaemonSet.apps/web")).unwrap(), one);
        let two = parse(&words("ds/web node/n1")).unwrap();
        assert_eq!(
            two,
            Selection::Objects(vec![(&DAEMON_SET, "web".into()), (&NODE, "n1".into())])
        );
        assert!(two.has_several_kinds() && !one.has_several_kinds());
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for (text, part) in [
            ("deploy", "doesn't have a resource type \"deploy\""),
            ("ds/", "not of the form KIND/NAME"),
            ("ds web node/n1", "no need to specify a resource type"),
            ("", "which kind of resource"),
        ] {
            let failure = parse(&words(text)).unwrap_err();
            assert!(failure.text.contains(part), "{text}: {}", failure.text);
        }
    }

    #[test]
    fn one_object_may_go_without_its_kind() {
        assert_eq!(
            parse_one(&words("web"), Some(&DAEMON_SET)).unwrap(),
            (&DAEMON_SET, "web".into())
        );
        assert!(parse_one(&words("web"), None).is_err());
        assert!(parse_one(&words("ds/a ds/b"), None).is_err());
    }
}
