//! What is in configMap, secret, downwardAPI and projected volumes.

use std::collections::BTreeMap;

use muster_model::k8s::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume};

use super::Setting;
use super::atomic::{File, Files};
use crate::downward;
use crate::env;
use crate::facts::PodFacts;
use crate::objects::{Lookup, Needed};

const DEFAULT_MODE: u32 = 0o644;

/// The files of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Content {
    /// By relative path.
    pub(super) files: Files,
    /// Whether a Secret is among them: it must not reach the disk.
    pub(super) secret: bool,
}

/// The directory name of the volume's kind.
pub(super) fn plugin(volume: &Volume) -> Option<&'static str> {
    if volume.config_map.is_some() {
        Some("configmap")
    } else if volume.secret.is_some() {
        Some("secret")
    } else if volume.downward_api.is_some() {
        Some("downward-api")
    } else if volume.projected.is_some() {
        Some("projected")
    } else {
        None
    }
}

/// The objects that the volume reads.
pub(super) fn needed(volume: &Volume) -> Vec<Needed> {
    let mut needed = Vec::new();
    needed.extend(
        volume
            .config_map
            .as_ref()
            .map(|source| Needed::config_map(&source.name)),
    );
    let secret = volume
        .secret
        .as_ref()
        .and_then(|source| source.secret_name.as_deref());
    needed.extend(secret.map(Needed::secret));
    for source in volume
        .projected
        .iter()
        .flat_map(|p| p.sources.iter().flatten())
    {
        needed.extend(
            source
                .config_map
                .as_ref()
                .map(|map| Needed::config_map(&map.name)),
        );
        needed.extend(
            source
                .secret
                .as_ref()
                .map(|secret| Needed::secret(&secret.name)),
        );
    }
    needed
}

/// The files, by the directory name of the volume's kind; `None` when it is another kind of volume.
pub(super) fn of(
    pod: &PodFacts,
    volume: &Volume,
    setting: &Setting<'_>,
) -> Result<Option<(&'static str, Content)>, String> {
    let Some(plugin) = plugin(volume) else {
        return Ok(None);
    };
    let mut content = Content::default();
    if let Some(source) = &volume.config_map {
        let rule = Rule::new(
            source.items.as_deref(),
            source.default_mode,
            source.optional,
        );
        add_object(
            &mut content,
            setting,
            &Needed::config_map(&source.name),
            &rule,
        )?;
    } else if let Some(source) = &volume.secret {
        content.secret = true;
        let name = source.secret_name.as_deref().unwrap_or_default();
        let rule = Rule::new(
            source.items.as_deref(),
            source.default_mode,
            source.optional,
        );
        add_object(&mut content, setting, &Needed::secret(name), &rule)?;
    } else if let Some(source) = &volume.downward_api {
        add_downward(
            &mut content,
            pod,
            setting,
            source.items.as_deref(),
            source.default_mode,
        )?;
    } else if let Some(projected) = &volume.projected {
        for source in projected.sources.iter().flatten() {
            if let Some(map) = &source.config_map {
                let rule = Rule::new(map.items.as_deref(), projected.default_mode, map.optional);
                add_object(&mut content, setting, &Needed::config_map(&map.name), &rule)?;
            }
            if let Some(secret) = &source.secret {
                content.secret = true;
                let rule = Rule::new(
                    secret.items.as_deref(),
                    projected.default_mode,
                    secret.optional,
                );
                add_object(&mut content, setting, &Needed::secret(&secret.name), &rule)?;
            }
            if let Some(api) = &source.downward_api {
                add_downward(
                    &mut content,
                    pod,
                    setting,
                    api.items.as_deref(),
                    projected.default_mode,
                )?;
            }
        }
    }
    Ok(Some((plugin, content)))
}

/// Which keys become which files.
struct Rule<'a> {
    items: Option<&'a [KeyToPath]>,
    mode: u32,
    optional: bool,
}

impl<'a> Rule<'a> {
    fn new(items: Option<&'a [KeyToPath]>, mode: Option<i32>, optional: Option<bool>) -> Self {
        let items = items.filter(|items| !items.is_empty());
        Self {
            items,
            mode: mode_of(mode, DEFAULT_MODE),
            optional: optional == Some(true),
        }
    }
}

fn mode_of(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok())
        .unwrap_or(default)
}

fn add_object(
    content: &mut Content,
    setting: &Setting<'_>,
    needed: &Needed,
    rule: &Rule<'_>,
) -> Result<(), String> {
    let object = match setting.objects.lookup(needed) {
        Lookup::Found(object) => object,
        Lookup::Missing if rule.optional => return Ok(()),
        Lookup::Missing => return Err(needed.not_found()),
        Lookup::Unreachable(message) => return Err(message),
    };
    let data: BTreeMap<String, Vec<u8>> = env::data(&object).into_iter().collect();
    let Some(items) = rule.items else {
        let files = data.into_iter().map(|(key, bytes)| {
            (
                key,
                File {
                    bytes,
                    mode: rule.mode,
                },
            )
        });
        content.files.extend(files);
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => {
                let file = File {
                    bytes: bytes.clone(),
                    mode: mode_of(item.mode, rule.mode),
                };
                add(content, &item.path, file)?;
            }
            None if rule.optional => {}
            None => {
                let kind = if needed.secret { "secret" } else { "config" };
                return Err(format!("references non-existent {kind} key: {}", item.key));
            }
        }
    }
    Ok(())
}

fn add_downward(
    content: &mut Content,
    pod: &PodFacts,
    setting: &Setting<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    default_mode: Option<i32>,
) -> Result<(), String> {
    for item in items.unwrap_or_default() {
        let text = if let Some(field) = &item.field_ref {
            downward::field(pod, &field.field_path, setting.pod_ip)?
        } else if let Some(field) = &item.resource_field_ref {
            downward::resource(pod, None, field)?
        } else {
            continue;
        };
        let mode = mode_of(item.mode, mode_of(default_mode, DEFAULT_MODE));
        add(
            content,
            &item.path,
            File {
                bytes: text.into_bytes(),
                mode,
            },
        )?;
    }
    Ok(())
}

fn add(content: &mut Content, path: &str, file: File) -> Result<(), String> {
    let bad = path.starts_with("..") || path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        return Err(format!("invalid path: {path}"));
    }
    content.files.insert(path.to_owned(), file);
    Ok(())
}
