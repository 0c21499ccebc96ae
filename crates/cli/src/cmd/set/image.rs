//! `muster set image`.

use std::collections::BTreeMap;

use clap::Args;
use muster_model::kind::Kind;
use muster_model::object::Object;

use super::change::{ChangeArgs, containers, name, pod_spec, split};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::targets::Outcomes;

/// Which containers get which image.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster set image ds/web web=nginx:1.28               the container `web` of the DaemonSet `web`
  muster set image ds/web web=nginx:1.28 log=fluent:3  two of its containers
  muster set image ds/web '*=nginx:1.28'               all of its containers
  muster set image ds --all web=nginx:1.28             in every DaemonSet of the namespace
  muster set image -f web.yaml web=nginx:1.28          in the object that a file names
  muster set image ds/web web=nginx:1.28 --dry-run=server -o yaml")]
pub(super) struct ImageArgs {
    /// KIND NAME..., KIND/NAME..., or KIND with -l or --all, then CONTAINER=IMAGE; * for every container
    #[arg(value_name = "WORDS", required = true, num_args = 1..)]
    words: Vec<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Image by container name, in the order of the names; `*` stands for all.
type Images = BTreeMap<String, String>;

impl ImageArgs {
    /// Runs the command.
    pub(super) async fn run(self, session: &mut Session) -> Outcome {
        let (targets, changes) = split(&self.words, |word| word.contains('='), "image")?;
        let images = images(changes)?;
        let server = session.connect().await?;
        let mut outcomes = Outcomes::default();
        let found = self
            .change
            .objects(targets, session, &server, &mut outcomes);
        for (kind, before) in found.await? {
            let mut after = before.clone();
            let missing = match set(kind, &mut after, &images) {
                Ok(missing) => missing,
                Err(failure) => {
                    outcomes.add(&mut session.console, Err(failure))?;
                    continue;
                }
            };
            for container in missing {
                let failure = Failure::new(format!("unable to find container named {container:?}"));
                outcomes.add(&mut session.console, Err(failure))?;
            }
            let both = (&before, after);
            let sending = self
                .change
                .send(session, &server, kind, both, "image updated");
            let sent = sending.await;
            outcomes.add(&mut session.console, sent)?;
        }
        outcomes.end()
    }
}

fn images(changes: &[String]) -> Outcome<Images> {
    let mut images = Images::new();
    for change in changes {
        let (container, image) = change.split_once('=').unwrap_or((change, ""));
        if container.is_empty() {
            return Err(Failure::new(format!(
                "{change:?} names no container: write CONTAINER=IMAGE"
            )));
        }
        images.insert(container.to_owned(), image.to_owned());
    }
    if images.is_empty() {
        return Err(Failure::new("at least one image update is required"));
    }
    if images.len() > 1 && images.contains_key("*") {
        return Err(Failure::new(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs",
        ));
    }
    Ok(images)
}

/// Writes the images into the object; returns the containers it does not have.
fn set<'i>(kind: &Kind, object: &mut Object, images: &'i Images) -> Outcome<Vec<&'i str>> {
    let mut missing: Vec<&str> = images.keys().map(String::as_str).collect();
    for container in containers(pod_spec(kind, object)?) {
        let found = images.get_key_value(name(container));
        if let Some((key, image)) = found.or_else(|| images.get_key_value("*")) {
            missing.retain(|name| name != key);
            container.insert("image".to_owned(), image.clone().into());
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::{CONFIG_MAP, DAEMON_SET};
    use serde_json::json;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn web() -> Object {
        let mut object = Object::from_value(json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {
            "initContainers": [{"name": "init", "image": "init:1"}],
            "containers": [{"name": "web", "image": "nginx:1.27"}, {"name": "side", "image": "side:1"}],
        }}}}))
        .unwrap();
        object.set_kind(&DAEMON_SET);
        object
    }

    #[test]
    fn images_go_to_the_containers_that_are_named() {
        let mut object = web();
        let images = images(&words("web=a:1 init=b:2 nobody=c")).unwrap();
        assert_eq!(set(&DAEMON_SET, &mut object, &images).unwrap(), ["nobody"]);
        let spec = &object.tree()["spec"]["template"]["spec"];
        assert_eq!(
            (
                &spec["containers"][0]["image"],
                &spec["containers"][1]["image"],
                &spec["initContainers"][0]["image"]
            ),
            (&json!("a:1"), &json!("side:1"), &json!("b:2"))
        );
    }

    #[test]
    fn a_star_is_every_container_and_stands_alone() {
        let mut object = web();
        let all = images(&words("*=x:1")).unwrap();
        assert!(set(&DAEMON_SET, &mut object, &all).unwrap().is_empty());
        assert_eq!(object.tree().to_string().matches("x:1").count(), 3);
        for (text, part) in [
            ("*=x web=y", "all containers are already specified by *"),
            ("", "at least one image update is required"),
            ("=x", "names no container"),
        ] {
            let failure = images(&words(text)).unwrap_err();
            assert!(failure.text.contains(part), "{text}: {}", failure.text);
        }
    }

    #[test]
    fn an_object_without_a_pod_template_is_refused_in_kubectls_words() {
        let mut object = Object::from_value(json!({"metadata": {"name": "cm"}})).unwrap();
        let all = images(&words("*=x:1")).unwrap();
        assert_eq!(
            set(&CONFIG_MAP, &mut object, &all).unwrap_err().text,
            "error: configmaps/cm the object is not a pod or does not have a pod template: *v1.ConfigMap"
        );
    }
}
