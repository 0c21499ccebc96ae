//! Volumes of pods: one file per type (spec/node-agent.md 14).
//!
//! Setting up is repeatable: what is there and right is left alone, so that a refresh, a restart of the agent and
//! a half-made pod are all the same call.

mod atomic;
mod content;
mod empty_dir;
mod host_path;
mod ownership;
mod sub_path;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_model::k8s::api::core::v1::{Container, Volume, VolumeMount};
use muster_model::time::Timestamp;

pub use sub_path::SubPathError;

use crate::facts::PodFacts;
use crate::objects::{Needed, ObjectSet};
use crate::runtime::Mount;

/// A volume that could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume \"{volume}\" : {cause}")]
pub struct VolumeError {
    /// Its name.
    pub volume: String,
    /// Why.
    pub cause: String,
}

/// What setting up needs beside the pod.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// The pod's directory.
    pub directory: &'a Path,
    /// ConfigMaps and Secrets, fetched.
    pub objects: &'a ObjectSet,
    /// The pod's address, for the downward API; may be empty.
    pub pod_ip: &'a str,
    /// Whether secrets may lie on disk.
    pub secrets_on_disk: bool,
    /// Names the new version of changed content.
    pub now: Timestamp,
}

/// Where each volume is, by name.
pub type Places = BTreeMap<String, PathBuf>;

/// Sets up every volume of the pod, all of them even after a failure. Blocks: files, mounts.
pub fn set_up(pod: &PodFacts, setting: &Setting<'_>) -> (Places, Vec<VolumeError>) {
    let (mut places, mut errors) = (Places::new(), Vec::new());
    let security = pod.spec().security_context.as_ref();
    let group = security
        .and_then(|s| s.fs_group)
        .and_then(|group| u32::try_from(group).ok());
    let on_mismatch =
        security.and_then(|s| s.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
    for volume in pod.spec().volumes.iter().flatten() {
        let made = set_up_one(pod, volume, setting, group).and_then(|(place, owned)| {
            match group.filter(|_| owned) {
                Some(group) => ownership::give(&place, group, on_mismatch).map(|()| place),
                None => Ok(place),
            }
        });
        match made {
            Ok(place) => {
                places.insert(volume.name.clone(), place);
            }
            Err(cause) => errors.push(VolumeError {
                volume: volume.name.clone(),
                cause,
            }),
        }
    }
    (places, errors)
}

/// The place, and whether `fsGroup` is applied to it afterwards.
fn set_up_one(
    pod: &PodFacts,
    volume: &Volume,
    setting: &Setting<'_>,
    group: Option<u32>,
) -> Result<(PathBuf, bool), String> {
    if let Some(source) = &volume.host_path {
        return host_path::set_up(source).map(|place| (place, false));
    }
    if let Some(source) = &volume.empty_dir {
        let place = directory(setting.directory, "empty-dir", &volume.name);
        return empty_dir::set_up(pod, source, &place).map(|()| (place, true));
    }
    let Some((plugin, content)) = content::of(pod, volume, setting)? else {
        return Err("this kind of volume is not supported by this node agent".to_owned());
    };
    let place = directory(setting.directory, plugin, &volume.name);
    if content.secret && !setting.secrets_on_disk {
        empty_dir::mount_tmpfs(&place, None)?;
    }
    atomic::write(&place, &content.files, group, setting.now).map_err(|error| error.to_string())?;
    Ok((place, false))
}

fn directory(pod: &Path, plugin: &str, name: &str) -> PathBuf {
    pod.join("volumes")
        .join(format!("kubernetes.io~{plugin}"))
        .join(name)
}

/// Where the pod's volumes lie, derived from the pod alone.
pub fn places(pod: &PodFacts, pod_directory: &Path) -> Places {
    let volumes = pod.spec().volumes.iter().flatten();
    volumes
        .filter_map(|volume| {
            let place = match &volume.host_path {
                Some(source) => PathBuf::from(&source.path),
                None => directory(pod_directory, plugin(volume)?, &volume.name),
            };
            Some((volume.name.clone(), place))
        })
        .collect()
}

fn plugin(volume: &Volume) -> Option<&'static str> {
    if volume.empty_dir.is_some() {
        Some("empty-dir")
    } else {
        content::plugin(volume)
    }
}

/// Unmounts what was mounted and removes the pod's directory. A directory that still holds a mount is never removed.
///
/// # Errors
/// What stands in the way; it is tried again.
pub fn tear_down(pod_directory: &Path) -> std::io::Result<()> {
    if !pod_directory.exists() {
        return Ok(());
    }
    for mount in empty_dir::mounts_below(pod_directory)? {
        rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::empty())?;
    }
    if let Some(left) = empty_dir::mounts_below(pod_directory)?.first() {
        return Err(std::io::Error::other(format!(
            "{} is still mounted",
            left.display()
        )));
    }
    std::fs::remove_dir_all(pod_directory)
}

/// The bind mounts of a container's volumes.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub fn mounts(
    container: &Container,
    env: &[(String, String)],
    places: &Places,
) -> Result<Vec<Mount>, String> {
    container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| one_mount(container, mount, env, places))
        .collect()
}

fn one_mount(
    container: &Container,
    mount: &VolumeMount,
    env: &[(String, String)],
    places: &Places,
) -> Result<Mount, String> {
    let base = places
        .get(&mount.name)
        .ok_or_else(|| format!("volume \"{}\" is not mounted", mount.name))?;
    let which = || {
        format!(
            "volumeMount \"{}\" of container \"{}\"",
            mount.name, container.name
        )
    };
    if mount.recursive_read_only.as_deref() == Some("Enabled") {
        return Err(format!(
            "{}: recursiveReadOnly is not supported by this node agent",
            which()
        ));
    }
    let below = match (&mount.sub_path, &mount.sub_path_expr) {
        (_, Some(expression)) if !expression.is_empty() => Some(sub_path::expand(expression, env)?),
        (Some(path), _) if !path.is_empty() => Some(path.clone()),
        _ => None,
    };
    let source = match below {
        None => base.clone(),
        Some(path) => sub_path::resolve(base, &path)
            .map_err(|error| format!("failed to prepare subPath for {}: {error}", which()))?,
    };
    let target = match mount.mount_path.starts_with('/') {
        true => mount.mount_path.clone(),
        false => format!("/{}", mount.mount_path),
    };
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => "rslave",
        Some("Bidirectional") => "rshared",
        _ => "rprivate",
    };
    Ok(Mount {
        source,
        target,
        read_only: mount.read_only == Some(true),
        propagation,
    })
}

/// Which ConfigMaps and Secrets the pod's volumes read.
pub fn needed(pod: &PodFacts) -> BTreeSet<Needed> {
    pod.spec()
        .volumes
        .iter()
        .flatten()
        .flat_map(content::needed)
        .collect()
}

/// The field of a volume that this agent cannot serve; `None` when it can.
pub fn unsupported(volume: &Volume) -> Option<String> {
    let projected = volume
        .projected
        .iter()
        .flat_map(|source| source.sources.iter().flatten())
        .enumerate();
    for (index, source) in projected {
        let field = if source.service_account_token.is_some() {
            "serviceAccountToken"
        } else if source.cluster_trust_bundle.is_some() {
            "clusterTrustBundle"
        } else if source.pod_certificate.is_some() {
            "podCertificate"
        } else {
            continue;
        };
        return Some(format!("projected.sources[{index}].{field}"));
    }
    let medium = volume
        .empty_dir
        .as_ref()
        .and_then(|source| source.medium.as_deref());
    if medium.is_some_and(|medium| medium.starts_with("HugePages")) {
        return Some("emptyDir.medium".to_owned());
    }
    if volume.host_path.is_some() || plugin(volume).is_some() {
        return None;
    }
    let tree = serde_json::to_value(volume).unwrap_or_default();
    let field = tree
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.clone())
        .find(|key| key != "name");
    field.or_else(|| Some("name".to_owned()))
}

#[cfg(test)]
mod tests;
