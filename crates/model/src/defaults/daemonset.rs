//! Defaults and generations of DaemonSets (spec/daemonset.md 3 and 5).

use serde_json::{Value, json};

use super::{default_text, default_value, mapping, mapping_or_new, pod, semantically_equal};
use crate::object::Object;
use crate::reason::annotation::TEMPLATE_GENERATION;

pub(super) fn apply(object: &mut Object) {
    let Some(spec) = mapping_or_new(object.tree_mut(), "spec") else {
        return;
    };
    default_value(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = mapping_or_new(spec, "updateStrategy") {
        default_text(strategy, "type", "RollingUpdate");
        if strategy
            .get("type")
            .is_some_and(|kind| kind == "RollingUpdate")
            && let Some(rolling) = mapping_or_new(strategy, "rollingUpdate")
        {
            default_value(rolling, "maxUnavailable", 1);
            default_value(rolling, "maxSurge", 0);
        }
    }
    if let Some(template) = mapping_or_new(spec, "template") {
        mapping_or_new(template, "metadata");
        if let Some(spec) = mapping_or_new(template, "spec") {
            pod::apply_spec(spec);
        }
    }
}

/// The status of a DaemonSet nobody has looked at yet: the four numbers that are always written.
pub fn empty_status() -> Value {
    json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0})
}

/// The template generation in the annotation; `None` when absent, an error (for a 400) when it is no integer.
pub fn annotated_generation(object: &Object) -> Result<Option<i64>, String> {
    let Some(text) = object.annotation(TEMPLATE_GENERATION) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        format!("metadata.annotations[{TEMPLATE_GENERATION}]: must be an integer, found {text:?}")
    })
}

/// The template generation that a write stores. On create the client's own, if it is at least 1, else 1. On
/// update the stored one, one more when the template changed; the client's own is ignored. Both objects defaulted.
pub fn template_generation(new: &Object, old: Option<&Object>) -> i64 {
    let annotated = |object| annotated_generation(object).ok().flatten();
    match old {
        None => annotated(new).unwrap_or(1).max(1),
        Some(old) => {
            let stored = annotated(old).unwrap_or(1).max(1);
            stored.saturating_add(i64::from(template_changed(old, new)))
        }
    }
}

/// Whether anything below `spec` changed, the template included. Both objects defaulted.
pub fn spec_changed(old: &Object, new: &Object) -> bool {
    !semantically_equal(old.at("/spec"), new.at("/spec"))
}

/// Whether the pod template changed. Both objects defaulted.
pub fn template_changed(old: &Object, new: &Object) -> bool {
    !semantically_equal(old.at("/spec/template"), new.at("/spec/template"))
}

/// What a create makes of a defaulted DaemonSet: empty status, generation 1, template generation written down.
pub fn prepare_create(object: &mut Object) {
    let template_generation = template_generation(object, None);
    object
        .tree_mut()
        .insert("status".to_owned(), empty_status());
    object
        .metadata_mut()
        .insert("generation".to_owned(), 1.into());
    object.set_annotation(TEMPLATE_GENERATION, &template_generation.to_string());
}

/// What an update of the main resource makes of a defaulted DaemonSet: the stored status, the generations.
pub fn prepare_update(new: &mut Object, old: &Object) {
    let template_generation = template_generation(new, Some(old));
    let generation = old
        .generation()
        .saturating_add(i64::from(spec_changed(old, new)));
    match old.at("/status") {
        Some(status) => new.tree_mut().insert("status".to_owned(), status.clone()),
        None => new.tree_mut().remove("status"),
    };
    new.metadata_mut()
        .insert("generation".to_owned(), generation.into());
    new.set_annotation(TEMPLATE_GENERATION, &template_generation.to_string());
}

/// What a write of the `status` subresource makes of a DaemonSet: the stored spec.
pub fn prepare_status_update(new: &mut Object, old: &Object) {
    let tree = new.tree_mut();
    match old.at("/spec") {
        Some(spec) => tree.insert("spec".to_owned(), spec.clone()),
        None => tree.remove("spec"),
    };
    if let Some(status) = mapping(tree, "status")
        && let Value::Object(numbers) = empty_status()
    {
        for (name, zero) in numbers {
            default_value(status, &name, zero);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults;
    use crate::kind;

    fn minimal() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "img:1"}]}
                }
            }
        })
    }

    fn defaulted(tree: Value) -> Object {
        let mut object = Object::from_value(tree).unwrap();
        defaults::apply(&kind::DAEMON_SET, &mut object);
        object
    }

    fn created(tree: Value) -> Object {
        let mut object = defaulted(tree);
        prepare_create(&mut object);
        object
    }

    fn updated(old: &Object, change: impl FnOnce(&mut Value)) -> Object {
        let mut tree = old.clone().into_tree();
        change(&mut tree);
        let mut new = defaulted(tree);
        prepare_update(&mut new, old);
        new
    }

    fn generations(object: &Object) -> (i64, &str) {
        (
            object.generation(),
            object.annotation(TEMPLATE_GENERATION).unwrap_or_default(),
        )
    }

    #[test]
    fn ds_103_a_create_ignores_status_and_generation_of_the_body() {
        let mut tree = minimal();
        tree["metadata"]["generation"] = json!(9);
        tree["status"] = json!({"numberReady": 5, "observedGeneration": 9});
        let object = created(tree);
        assert_eq!(generations(&object), (1, "1"));
        assert_eq!(
            object.at("/status"),
            Some(&json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0
            }))
        );
    }

    #[test]
    fn ds_104_generations_count_what_changed() {
        let first = created(minimal());
        let second = updated(&first, |tree| {
            tree["spec"]["template"]["spec"]["containers"][0]["image"] = json!("img:2");
            tree["spec"]["template"]["spec"]["containers"][0]["tty"] = json!(true);
            tree["spec"]["minReadySeconds"] = json!(3);
        });
        assert_eq!(generations(&second), (2, "2"));
        let third = updated(&second, |tree| {
            tree["spec"]["revisionHistoryLimit"] = json!(3)
        });
        assert_eq!(generations(&third), (3, "2"));
        let fourth = updated(&third, |tree| {
            tree["metadata"]["labels"] = json!({"team": "a"});
            tree["status"] = json!({"numberReady": 7});
        });
        assert_eq!(generations(&fourth), (3, "2"));
        assert_eq!(
            fourth.at("/status"),
            third.at("/status"),
            "a main write ignores the status it carries"
        );
        let again = updated(&first, |tree| *tree = minimal());
        assert_eq!(again, first, "the same file again changes nothing");
        let longhand = updated(&first, |tree| {
            tree["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
            tree["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
        });
        assert_eq!(
            generations(&longhand),
            (1, "1"),
            "saying a default changes nothing"
        );
    }

    #[test]
    fn ds_105_the_template_generation_is_the_clients_only_on_create() {
        let mut tree = minimal();
        tree["metadata"]["annotations"] = json!({(TEMPLATE_GENERATION): "77"});
        let first = created(tree);
        assert_eq!(generations(&first), (1, "77"));
        let second = updated(&first, |tree| {
            tree["metadata"]["annotations"] = json!({(TEMPLATE_GENERATION): "5"})
        });
        assert_eq!(generations(&second), (1, "77"));
        let third = updated(&second, |tree| {
            tree["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("annotations");
            tree["spec"]["template"]["metadata"]["annotations"] = json!({"a": "b"});
        });
        assert_eq!(generations(&third), (2, "78"));
        for (text, stored) in [("0", "1"), ("-3", "1")] {
            let mut tree = minimal();
            tree["metadata"]["annotations"] = json!({(TEMPLATE_GENERATION): text});
            assert_eq!(generations(&created(tree)), (1, stored));
        }
        let mut tree = minimal();
        tree["metadata"]["annotations"] = json!({(TEMPLATE_GENERATION): "x"});
        let object = Object::from_value(tree).unwrap();
        assert!(annotated_generation(&object).is_err());
    }

    #[test]
    fn ds_106_a_minimal_manifest_shows_every_default() {
        assert_eq!(
            created(minimal()).into_tree(),
            json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {
                    "name": "web", "namespace": "default", "generation": 1,
                    "annotations": {"deprecated.daemonset.template.generation": "1"}
                },
                "spec": {
                    "revisionHistoryLimit": 10,
                    "selector": {"matchLabels": {"app": "web"}},
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {
                            "containers": [{
                                "name": "main", "image": "img:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
                            }],
                            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                            "schedulerName": "default-scheduler", "securityContext": {},
                            "terminationGracePeriodSeconds": 30
                        }
                    }
                },
                "status": {
                    "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0
                }
            })
        );
        for (image, policy) in [
            ("img", "Always"),
            ("img:latest", "Always"),
            ("img@sha256:ab", "IfNotPresent"),
        ] {
            let mut tree = minimal();
            tree["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            let object = defaulted(tree);
            assert_eq!(
                object.text_at("/spec/template/spec/containers/0/imagePullPolicy"),
                policy,
                "{image}"
            );
        }
    }

    #[test]
    fn an_on_delete_strategy_gets_no_rolling_update() {
        let mut tree = minimal();
        tree["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        assert_eq!(
            defaulted(tree).at("/spec/updateStrategy"),
            Some(&json!({"type": "OnDelete"}))
        );
        let mut tree = minimal();
        tree["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": 1}});
        assert_eq!(
            defaulted(tree).at("/spec/updateStrategy"),
            Some(
                &json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}})
            )
        );
    }

    #[test]
    fn a_status_write_ignores_the_spec_it_carries() {
        let old = created(minimal());
        let mut new = old.clone();
        new.tree_mut()
            .insert("spec".to_owned(), json!({"minReadySeconds": 99}));
        new.tree_mut()
            .insert("status".to_owned(), json!({"numberReady": 2}));
        prepare_status_update(&mut new, &old);
        assert_eq!(new.at("/spec"), old.at("/spec"));
        assert_eq!(
            new.at("/status"),
            Some(&json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 2
            }))
        );
    }
}
