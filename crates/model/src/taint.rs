//! Taints and tolerations: which toleration tolerates which taint, and what every daemon pod tolerates by
//! itself (spec/daemonset.md 7).

use crate::k8s::api::core::v1::{Taint, Toleration};
use crate::reason::taint as key;

/// New pods that do not tolerate it stay away.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// As [`NO_SCHEDULE`], only as a wish: never looked at here.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Pods that do not tolerate it have to leave.
pub const NO_EXECUTE: &str = "NoExecute";

/// Whether `toleration` tolerates `taint` (spec/daemonset.md 7.2). `tolerationSeconds` plays no part here.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = text(&toleration.effect);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = text(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    let (wanted, found) = (text(&toleration.value), text(&taint.value));
    match text(&toleration.operator) {
        "" | "Equal" => wanted == found,
        "Exists" => true,
        "Lt" => both(found, wanted).is_some_and(|(found, wanted)| found < wanted),
        "Gt" => both(found, wanted).is_some_and(|(found, wanted)| found > wanted),
        _ => false,
    }
}

/// The first taint with one of `effects` that no toleration tolerates; `None` when all are tolerated.
pub fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    effects: &[&str],
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| {
            !tolerations
                .iter()
                .any(|toleration| tolerates(toleration, taint))
        })
}

/// The tolerations that every daemon pod gets, in their order (spec/daemonset.md 7.1).
pub fn automatic(host_network: bool) -> Vec<Toleration> {
    let mut list = vec![
        exists(key::NOT_READY, NO_EXECUTE),
        exists(key::UNREACHABLE, NO_EXECUTE),
        exists(key::DISK_PRESSURE, NO_SCHEDULE),
        exists(key::MEMORY_PRESSURE, NO_SCHEDULE),
        exists(key::PID_PRESSURE, NO_SCHEDULE),
        exists(key::UNSCHEDULABLE, NO_SCHEDULE),
    ];
    if host_network {
        list.push(exists(key::NETWORK_UNAVAILABLE, NO_SCHEDULE));
    }
    list
}

/// A template's tolerations with the [`automatic`] ones after them. One that is already there, with the same
/// key, effect, operator and value, is replaced in its place, which drops its `tolerationSeconds`; none
/// appears twice.
pub fn with_automatic(own: &[Toleration], host_network: bool) -> Vec<Toleration> {
    let mut list = own.to_vec();
    for added in automatic(host_network) {
        match list.iter().position(|present| same_rule(present, &added)) {
            None => list.push(added),
            Some(first) => {
                let mut index = 0;
                list.retain(|present| {
                    let keep = index <= first || !same_rule(present, &added);
                    index += 1;
                    keep
                });
                list[first] = added;
            }
        }
    }
    list
}

/// A taint as people write it: `key=value:Effect`, or `key:Effect` without a value.
pub fn taint_text(taint: &Taint) -> String {
    match text(&taint.value) {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

fn exists(key: &str, effect: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        value: None,
        toleration_seconds: None,
    }
}

fn same_rule(a: &Toleration, b: &Toleration) -> bool {
    text(&a.key) == text(&b.key)
        && text(&a.effect) == text(&b.effect)
        && text(&a.operator) == text(&b.operator)
        && text(&a.value) == text(&b.value)
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// Both as signed decimals; `None` unless both are in their one canonical form (`007` and `+7` are not).
fn both(a: &str, b: &str) -> Option<(i64, i64)> {
    Some((decimal(a)?, decimal(b)?))
}

fn decimal(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: None,
        }
    }

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    #[test]
    fn the_matching_table_of_operators() {
        let cases = [
            (
                "equal value",
                toleration("k", "Equal", "v", ""),
                taint("k", "v", NO_SCHEDULE),
                true,
            ),
            (
                "no operator means Equal",
                toleration("k", "", "v", ""),
                taint("k", "v", NO_SCHEDULE),
                true,
            ),
            (
                "other value",
                toleration("k", "Equal", "v2", ""),
                taint("k", "v", NO_SCHEDULE),
                false,
            ),
            (
                "both without value",
                toleration("k", "Equal", "", ""),
                taint("k", "", NO_SCHEDULE),
                true,
            ),
            (
                "exists",
                toleration("k", "Exists", "", ""),
                taint("k", "v", NO_EXECUTE),
                true,
            ),
            (
                "other key",
                toleration("x", "Exists", "", ""),
                taint("k", "v", NO_EXECUTE),
                false,
            ),
            (
                "other effect",
                toleration("k", "Exists", "", NO_EXECUTE),
                taint("k", "v", NO_SCHEDULE),
                false,
            ),
            (
                "everything",
                toleration("", "Exists", "", ""),
                taint("k", "v", NO_EXECUTE),
                true,
            ),
            (
                "greater",
                toleration("prio", "Gt", "5", ""),
                taint("prio", "10", NO_SCHEDULE),
                true,
            ),
            (
                "not greater",
                toleration("prio", "Gt", "5", ""),
                taint("prio", "5", NO_SCHEDULE),
                false,
            ),
            (
                "less",
                toleration("prio", "Lt", "5", ""),
                taint("prio", "3", NO_SCHEDULE),
                true,
            ),
            (
                "no number",
                toleration("prio", "Lt", "5", ""),
                taint("prio", "abc", NO_SCHEDULE),
                false,
            ),
            (
                "leading zeros",
                toleration("prio", "Gt", "5", ""),
                taint("prio", "007", NO_SCHEDULE),
                false,
            ),
            (
                "a fraction",
                toleration("prio", "Gt", "1", ""),
                taint("prio", "1.5", NO_SCHEDULE),
                false,
            ),
            (
                "empty number",
                toleration("prio", "Gt", "", ""),
                taint("prio", "7", NO_SCHEDULE),
                false,
            ),
            (
                "negative",
                toleration("prio", "Gt", "-5", ""),
                taint("prio", "-4", NO_SCHEDULE),
                true,
            ),
            (
                "unknown operator",
                toleration("k", "Near", "v", ""),
                taint("k", "v", NO_SCHEDULE),
                false,
            ),
        ];
        for (name, toleration, taint, expected) in cases {
            assert_eq!(tolerates(&toleration, &taint), expected, "{name}");
        }
    }

    #[test]
    fn only_taints_with_the_asked_effects_are_looked_at() {
        let taints = [
            taint("a", "", PREFER_NO_SCHEDULE),
            taint("b", "1", NO_SCHEDULE),
            taint("c", "", NO_EXECUTE),
        ];
        assert_eq!(
            first_untolerated(&taints, &[], &[NO_SCHEDULE, NO_EXECUTE])
                .unwrap()
                .key,
            "b"
        );
        assert_eq!(
            first_untolerated(&taints, &[], &[NO_EXECUTE]).unwrap().key,
            "c"
        );
        let everything = [toleration("", "Exists", "", "")];
        assert_eq!(
            first_untolerated(&taints, &everything, &[NO_SCHEDULE, NO_EXECUTE]),
            None
        );
    }

    #[test]
    fn automatic_tolerations_come_last_and_replace_equal_ones_in_place() {
        let mut own = toleration(key::NOT_READY, "Exists", "", NO_EXECUTE);
        own.toleration_seconds = Some(30);
        let other = toleration("k", "Exists", "", "");
        let merged = with_automatic(&[own.clone(), other.clone(), own], false);
        assert_eq!(merged.len(), 7);
        assert_eq!(merged[0], exists(key::NOT_READY, NO_EXECUTE));
        assert_eq!(merged[1], other);
        assert_eq!(merged[2], exists(key::UNREACHABLE, NO_EXECUTE));
        assert_eq!(merged[6], exists(key::UNSCHEDULABLE, NO_SCHEDULE));
        assert_eq!(with_automatic(&[], true).len(), 7);
        assert_eq!(
            with_automatic(&[], true)[6],
            exists(key::NETWORK_UNAVAILABLE, NO_SCHEDULE)
        );
    }

    #[test]
    fn a_taint_reads_as_people_write_it() {
        assert_eq!(
            taint_text(&taint("dedicated", "x", NO_SCHEDULE)),
            "dedicated=x:NoSchedule"
        );
        assert_eq!(
            taint_text(&taint("dedicated", "", NO_EXECUTE)),
            "dedicated:NoExecute"
        );
    }
}
