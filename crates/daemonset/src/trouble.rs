//! What a pod says about why it is not Ready, in words.

use std::time::Duration;

use muster_model::k8s::api::core::v1::{ContainerStatus, Pod};
use muster_model::time::{Timestamp, to_seconds_text};

/// Waiting reasons that every healthy start goes through.
const ORDINARY_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// The waiting reason of a container that keeps ending.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// What keeps a pod from being Ready, by its own status; empty when that does not say.
pub(crate) fn of_pod(pod: &Pod) -> String {
    let Some(status) = pod.status.as_ref() else {
        return String::new();
    };
    if let Some(reason) = given(status.reason.as_deref()) {
        return with_message(reason, status.message.as_deref());
    }
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    all.filter_map(of_container).next().unwrap_or_default()
}

fn of_container(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason =
            given(waiting.reason.as_deref()).filter(|reason| !ORDINARY_WAITS.contains(reason))?;
        let why = with_message(reason, waiting.message.as_deref());
        let crash = if reason == CRASH_LOOP {
            crash(status, waiting.message.as_deref().unwrap_or_default())
        } else {
            String::new()
        };
        return Some(format!("container {} waits: {why}{crash}", status.name));
    }
    let ended = state
        .terminated
        .as_ref()
        .filter(|ended| ended.exit_code != 0)?;
    Some(format!(
        "container {} ended with exit code {}",
        status.name, ended.exit_code
    ))
}

/// How the last run ended and when the next one begins: the message has only the length of the whole pause, which
/// counts from that end.
fn crash(status: &ContainerStatus, message: &str) -> String {
    let Some(ended) = status
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
    else {
        return String::new();
    };
    let pause = message
        .strip_prefix("back-off ")
        .and_then(|rest| pause(rest.split(' ').next()?));
    let again_at: Option<Timestamp> = ended
        .finished_at
        .as_ref()
        .zip(pause)
        .and_then(|(end, pause)| end.0.checked_add(pause).ok());
    let again = again_at.map_or_else(String::new, |at| {
        format!(" and is started again at {}", to_seconds_text(at))
    });
    format!("; it ended with exit code {}{again}", ended.exit_code)
}

/// `5m0s`, as agents write a pause: hours, minutes and whole seconds.
fn pause(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest.as_bytes()[digits] {
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    Some(Duration::from_secs(seconds))
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn with_message(reason: &str, message: Option<&str>) -> String {
    match given(message) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(status: Value) -> String {
        of_pod(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
    }

    fn waiting(reason: &str, message: &str) -> String {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        said(json!({"containerStatuses": [container(&state, &json!({}))]}))
    }

    fn container(state: &Value, last: &Value) -> Value {
        json!({
            "name": "web", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state, "lastState": last,
        })
    }

    #[test]
    fn a_waiting_container_is_quoted_and_an_ordinary_start_is_not() {
        assert_eq!(
            waiting("ImagePullBackOff", "Back-off pulling image \"img:1\""),
            "container web waits: ImagePullBackOff: Back-off pulling image \"img:1\""
        );
        assert_eq!(
            waiting("CreateContainerConfigError", "configmap \"conf\" not found"),
            "container web waits: CreateContainerConfigError: configmap \"conf\" not found"
        );
        assert_eq!(waiting("ContainerCreating", ""), "");
    }

    #[test]
    fn a_crash_loop_says_how_it_ended_and_when_it_goes_on() {
        let waiting = json!({"waiting": {
            "reason": "CrashLoopBackOff",
            "message": "back-off 1m20s restarting failed container=web pod=p_default(u)",
        }});
        let last = json!({"terminated": {"exitCode": 7, "finishedAt": "2026-01-31T10:00:00Z"}});
        assert_eq!(
            said(json!({"containerStatuses": [container(&waiting, &last)]})),
            "container web waits: CrashLoopBackOff: back-off 1m20s restarting failed container=web \
             pod=p_default(u); it ended with exit code 7 and is started again at 2026-01-31T10:01:20Z"
        );
    }

    #[test]
    fn a_pod_that_was_turned_away_gives_its_own_reason() {
        assert_eq!(
            said(
                json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: too much cpu"})
            ),
            "OutOfcpu: Pod was rejected: too much cpu"
        );
    }

    #[test]
    fn pauses_read_as_they_are_written() {
        let seconds = |text| pause(text).map(|pause| pause.as_secs());
        assert_eq!(seconds("10s"), Some(10));
        assert_eq!(seconds("5m0s"), Some(300));
        assert_eq!(seconds("1h0m1s"), Some(3_601));
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("10"), None);
    }
}
