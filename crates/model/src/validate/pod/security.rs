//! Security contexts of pods and containers, sysctls.

use std::collections::BTreeSet;

use super::super::view::{Faults, View};
use super::container::check_descending_path;

const MAX_ID: i64 = i32::MAX as i64;
const BAD_SYSCTL: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn check_pod(spec: &View, faults: &mut Faults) {
    let context = spec.child("securityContext");
    if spec.child("shareProcessNamespace").is_true() && spec.child("hostPID").is_true() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.push(spec.child("shareProcessNamespace").invalid(detail));
    }
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.child(field).check_range(0, MAX_ID, faults);
    }
    for group in context.child("supplementalGroups").items() {
        group.check_range(0, MAX_ID, faults);
    }
    check_sysctls(&context.child("sysctls"), faults);
    context
        .child("fsGroupChangePolicy")
        .check_one_of(&["Always", "OnRootMismatch"], faults);
    context
        .child("supplementalGroupsPolicy")
        .check_one_of(&["Merge", "Strict"], faults);
    check_profile(
        &context.child("seccompProfile"),
        "seccompProfile",
        "seccomp",
        faults,
    );
    check_profile(
        &context.child("appArmorProfile"),
        "appArmorProfile",
        "AppArmor",
        faults,
    );
}

pub(super) fn check_container(context: &View, faults: &mut Faults) {
    for field in ["runAsUser", "runAsGroup"] {
        context.child(field).check_range(0, MAX_ID, faults);
    }
    context
        .child("procMount")
        .check_one_of(&["Default", "Unmasked"], faults);
    check_profile(
        &context.child("seccompProfile"),
        "seccompProfile",
        "seccomp",
        faults,
    );
    check_profile(
        &context.child("appArmorProfile"),
        "appArmorProfile",
        "AppArmor",
        faults,
    );
    if context.child("allowPrivilegeEscalation").is_false() {
        if context.child("privileged").is_true() {
            faults.push(context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            ));
        }
        let added = context.down(&["capabilities", "add"]).items();
        if added
            .iter()
            .any(|capability| capability.text() == "CAP_SYS_ADMIN")
        {
            faults.push(context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ));
        }
    }
}

fn check_profile(profile: &View, field: &str, system: &str, faults: &mut Faults) {
    if !profile.is_present() {
        return;
    }
    let (kind, local) = (profile.child("type"), profile.child("localhostProfile"));
    match kind.text() {
        "" => faults.push(kind.required(&format!("type is required when {field} is set"))),
        "Localhost" if local.is_empty() => {
            faults.push(local.required(&format!("must be set when {system} type is Localhost")));
        }
        "Localhost" if system == "seccomp" => check_descending_path(&local, faults),
        "Localhost" => {}
        "RuntimeDefault" | "Unconfined" if local.is_present() => {
            faults.push(local.invalid(&format!("can only be set when {system} type is Localhost")));
        }
        "RuntimeDefault" | "Unconfined" => {}
        _ => faults.push(kind.not_supported(&["Localhost", "RuntimeDefault", "Unconfined"])),
    }
}

fn check_sysctls(sysctls: &View, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.child("name");
        if name.is_empty() {
            faults.push(name.required(""));
        } else if !is_sysctl(name.text()) {
            faults.push(name.invalid(BAD_SYSCTL));
        } else if !seen.insert(name.text().replace('/', ".")) {
            faults.push(name.duplicate());
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|c| edge(*c))
                && bytes.last().is_some_and(|c| edge(*c))
                && bytes.iter().all(|c| edge(*c) || b"-_".contains(c))
        })
}
