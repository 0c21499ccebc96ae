//! Volumes and their sources.

use super::super::node::check_quantity;
use super::super::view::{Faults, View};
use super::container::{check_descending_path, check_no_backsteps};
use super::env::check_field;
use super::resources;
use crate::names;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const DOWNWARD_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

/// Judges the volumes; answers the names of those that can be mounted.
pub(super) fn check<'a>(volumes: &View<'a>, faults: &mut Faults) -> Vec<&'a str> {
    let mut usable = Vec::new();
    for volume in volumes.items() {
        let before = faults.len();
        let name = volume.child("name");
        check_source(&volume, faults);
        name.require_text(names::check_label, faults);
        if usable.contains(&name.text()) {
            faults.push(name.duplicate());
        }
        if faults.len() == before {
            usable.push(name.text());
        }
    }
    usable
}

fn check_source(volume: &View, faults: &mut Faults) {
    let given: Vec<(&str, View)> = (volume.entries().into_iter())
        .map(|(key, _)| (key, volume.child(key)))
        .filter(|(key, source)| *key != "name" && source.is_present())
        .collect();
    if given.is_empty() {
        faults.push(volume.required("must specify a volume type"));
    }
    for (index, (kind, source)) in given.iter().enumerate() {
        if index > 0 {
            faults.push(source.forbidden("may not specify more than 1 volume type"));
            continue;
        }
        match *kind {
            "hostPath" => check_host_path(source, faults),
            "emptyDir" => check_empty_dir(source, faults),
            "configMap" => {
                source.child("name").require(faults);
                check_mode(&source.child("defaultMode"), faults);
                check_items(source, faults);
            }
            "secret" => {
                source.child("secretName").require(faults);
                check_mode(&source.child("defaultMode"), faults);
                check_items(source, faults);
            }
            "downwardAPI" => {
                check_mode(&source.child("defaultMode"), faults);
                check_downward_items(source, faults);
            }
            "projected" => check_projected(source, faults),
            "persistentVolumeClaim" => source.child("claimName").require(faults),
            "nfs" => {
                source.child("server").require(faults);
                source.child("path").require(faults);
            }
            "csi" => source.child("driver").require(faults),
            _ => {}
        }
    }
}

fn check_host_path(source: &View, faults: &mut Faults) {
    let path = source.child("path");
    if path.is_empty() {
        faults.push(path.required(""));
        return;
    }
    check_no_backsteps(&path, faults);
    source.child("type").check_one_of(&HOST_PATH_TYPES, faults);
}

fn check_empty_dir(source: &View, faults: &mut Faults) {
    let (medium, limit) = (source.child("medium"), source.child("sizeLimit"));
    if !medium.text().starts_with("HugePages") {
        medium.check_one_of(&["", "Memory", "HugePages"], faults);
    }
    if limit.is_present() {
        check_quantity(&limit, faults);
    }
}

/// Keys of a ConfigMap or Secret and the files they go to.
fn check_items(source: &View, faults: &mut Faults) {
    for item in source.child("items").items() {
        item.child("key").require(faults);
        check_file(&item.child("path"), faults);
        check_mode(&item.child("mode"), faults);
    }
}

fn check_downward_items(source: &View, faults: &mut Faults) {
    for item in source.child("items").items() {
        check_file(&item.child("path"), faults);
        let (field, resource) = (item.child("fieldRef"), item.child("resourceFieldRef"));
        if field.is_present() {
            check_field(&field, &DOWNWARD_FIELDS, faults);
            if resource.is_present() {
                faults.push(
                    item.invalid(
                        "fieldRef and resourceFieldRef can not be specified simultaneously",
                    ),
                );
            }
        } else if resource.is_present() {
            resources::check_reference(&resource, true, faults);
        } else {
            faults.push(item.required("one of fieldRef and resourceFieldRef is required"));
        }
        check_mode(&item.child("mode"), faults);
    }
}

fn check_projected(projected: &View, faults: &mut Faults) {
    check_mode(&projected.child("defaultMode"), faults);
    for source in projected.child("sources").items() {
        let given: Vec<(&str, View)> = (source.entries().into_iter())
            .map(|(key, _)| (key, source.child(key)))
            .filter(|(_, view)| view.is_present())
            .collect();
        for (index, (kind, view)) in given.iter().enumerate() {
            if index > 0 {
                faults.push(view.forbidden("may not specify more than 1 volume type per source"));
                continue;
            }
            match *kind {
                "configMap" | "secret" => {
                    view.child("name").require(faults);
                    check_items(view, faults);
                }
                "downwardAPI" => check_downward_items(view, faults),
                "serviceAccountToken" => check_token(view, faults),
                _ => {}
            }
        }
        if given.is_empty() {
            faults.push(source.required("must specify a volume type"));
        }
    }
}

fn check_token(token: &View, faults: &mut Faults) {
    let seconds = token.child("expirationSeconds");
    if seconds
        .number()
        .is_some_and(|number| number < MIN_TOKEN_SECONDS)
    {
        faults.push(seconds.invalid("may not specify a duration less than 10 minutes"));
    } else if seconds
        .number()
        .is_some_and(|number| number > MAX_TOKEN_SECONDS)
    {
        faults.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
    }
    check_file(&token.child("path"), faults);
}

/// A file below the volume, away from the names the atomic writer keeps for itself.
fn check_file(path: &View, faults: &mut Faults) {
    path.require(faults);
    let before = faults.len();
    check_descending_path(path, faults);
    if faults.len() == before && path.text().starts_with("..") {
        faults.push(path.invalid("must not start with '..'"));
    }
}

fn check_mode(mode: &View, faults: &mut Faults) {
    if mode
        .number()
        .is_some_and(|mode| !(0..=0o777).contains(&mode))
    {
        faults.push(mode.invalid(FILE_MODE));
    }
}
