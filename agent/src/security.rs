//! Users, capabilities and their kin (spec/node-agent.md 11.3).

use muster_model::k8s::api::core::v1::{
    AppArmorProfile, Container, SELinuxOptions, SeccompProfile,
};

use crate::facts::PodFacts;
use crate::runtime::{ImageView, Security};

/// The security of a container; its own settings win over its pod's.
///
/// # Errors
/// The message of `CreateContainerConfigError`: `runAsNonRoot` cannot be kept.
pub(crate) fn of(
    pod: &PodFacts,
    container: &Container,
    image: &ImageView,
    seccomp_text: Option<&str>,
) -> Result<Security, String> {
    let of_pod = pod.spec().security_context.as_ref();
    let own = container.security_context.as_ref();
    let user = own
        .and_then(|s| s.run_as_user)
        .or(of_pod.and_then(|s| s.run_as_user));
    let group = own
        .and_then(|s| s.run_as_group)
        .or(of_pod.and_then(|s| s.run_as_group));
    let non_root = own
        .and_then(|s| s.run_as_non_root)
        .or(of_pod.and_then(|s| s.run_as_non_root));
    if non_root == Some(true) {
        check_non_root(pod, container, user, image)?;
    }
    let privileged = own.and_then(|s| s.privileged) == Some(true);
    let capabilities = own.and_then(|s| s.capabilities.as_ref());
    let names = |list: Option<&Vec<String>>| {
        list.into_iter()
            .flatten()
            .map(|name| name.strip_prefix("CAP_").unwrap_or(name).to_owned())
            .collect()
    };
    let mut groups: Vec<String> = of_pod
        .and_then(|s| s.supplemental_groups.as_ref())
        .into_iter()
        .flatten()
        .map(i64::to_string)
        .collect();
    groups.extend(
        of_pod
            .and_then(|s| s.fs_group)
            .map(|group| group.to_string()),
    );
    Ok(Security {
        user: user_text(user, group, image),
        groups,
        privileged,
        cap_add: names(capabilities.and_then(|c| c.add.as_ref())),
        cap_drop: names(capabilities.and_then(|c| c.drop.as_ref())),
        read_only_root: own.and_then(|s| s.read_only_root_filesystem) == Some(true),
        options: options(pod, container, privileged, seccomp_text),
        unmasked: own.and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked"),
    })
}

/// The seccomp profile that applies: the container's own, else the pod's.
pub(crate) fn seccomp_profile<'a>(
    pod: &'a PodFacts,
    container: &'a Container,
) -> Option<&'a SeccompProfile> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|s| s.seccomp_profile.as_ref());
    own.or(pod
        .spec()
        .security_context
        .as_ref()
        .and_then(|s| s.seccomp_profile.as_ref()))
}

fn user_text(user: Option<i64>, group: Option<i64>, image: &ImageView) -> String {
    match (user, group) {
        (Some(user), Some(group)) => format!("{user}:{group}"),
        (Some(user), None) => user.to_string(),
        (None, Some(group)) => {
            let of_image = image.user.split(':').next().unwrap_or_default();
            let numeric = of_image.parse::<i64>().unwrap_or(0);
            format!("{numeric}:{group}")
        }
        (None, None) => String::new(),
    }
}

fn check_non_root(
    pod: &PodFacts,
    container: &Container,
    user: Option<i64>,
    image: &ImageView,
) -> Result<(), String> {
    let which = format!(
        "(pod: \"{}\", container: {})",
        pod.full_name(),
        container.name
    );
    match user {
        Some(0) => Err(format!(
            "container's runAsUser breaks non-root policy {which}"
        )),
        Some(_) => Ok(()),
        None => {
            let of_image = image.user.split(':').next().unwrap_or_default();
            match of_image.parse::<u32>() {
                Ok(0) => Err(format!(
                    "container has runAsNonRoot and image will run as root {which}"
                )),
                Ok(_) => Ok(()),
                Err(_) if of_image.is_empty() || of_image == "root" => Err(format!(
                    "container has runAsNonRoot and image will run as root {which}"
                )),
                Err(_) => Err(format!(
                    "container has runAsNonRoot and image has non-numeric user ({of_image}), cannot verify user is \
                     non-root {which}"
                )),
            }
        }
    }
}

fn options(
    pod: &PodFacts,
    container: &Container,
    privileged: bool,
    seccomp_text: Option<&str>,
) -> Vec<String> {
    let of_pod = pod.spec().security_context.as_ref();
    let own = container.security_context.as_ref();
    let mut options = Vec::new();
    if own.and_then(|s| s.allow_privilege_escalation) == Some(false) {
        options.push("no-new-privileges".to_owned());
    }
    if privileged {
        // The engine lifts seccomp and AppArmor for privileged containers by itself.
        return options;
    }
    match seccomp_profile(pod, container).map(|profile| profile.type_.as_str()) {
        Some("Unconfined") => options.push("seccomp=unconfined".to_owned()),
        Some("Localhost") => options.extend(seccomp_text.map(|text| format!("seccomp={text}"))),
        Some(_) => {}
        None if pod.host.seccomp_default => {}
        None => options.push("seccomp=unconfined".to_owned()),
    }
    let app_armor = own
        .and_then(|s| s.app_armor_profile.as_ref())
        .or(of_pod.and_then(|s| s.app_armor_profile.as_ref()));
    options.extend(app_armor.and_then(app_armor_option));
    let labels = own
        .and_then(|s| s.se_linux_options.as_ref())
        .or(of_pod.and_then(|s| s.se_linux_options.as_ref()));
    options.extend(labels.into_iter().flat_map(se_linux_options));
    options
}

fn app_armor_option(profile: &AppArmorProfile) -> Option<String> {
    match profile.type_.as_str() {
        "Unconfined" => Some("apparmor=unconfined".to_owned()),
        "Localhost" => profile
            .localhost_profile
            .as_ref()
            .map(|name| format!("apparmor={name}")),
        _ => None,
    }
}

fn se_linux_options(options: &SELinuxOptions) -> Vec<String> {
    [
        ("user", &options.user),
        ("role", &options.role),
        ("type", &options.type_),
        ("level", &options.level),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.as_ref().map(|value| format!("label={key}:{value}")))
    .collect()
}
