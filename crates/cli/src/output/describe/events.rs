//! The last part: what happened to the object.

use muster_model::object::Object;
use muster_model::table::{NONE, event_source};
use muster_model::time::{Timestamp, age_of, parse};
use serde_json::Value;

use super::tabs::Text;
use super::text;

/// When it happened last, RFC 3339.
pub(crate) fn last_seen(event: &Value) -> Option<&str> {
    [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["firstTimestamp"],
        &event["eventTime"],
    ]
    .into_iter()
    .find_map(|time| time.as_str().filter(|text| !text.is_empty()))
}

fn first_seen(event: &Value) -> Option<&str> {
    [&event["firstTimestamp"], &event["eventTime"]]
        .into_iter()
        .find_map(|time| time.as_str().filter(|text| !text.is_empty()))
}

/// `5m`, or `5m (x4 over 20m)` when it happened several times.
pub(crate) fn seen_text(event: &Value, now: Timestamp) -> String {
    let age = |time: Option<&str>| age_of(time.and_then(parse), now);
    let count = [&event["series"]["count"], &event["count"]]
        .into_iter()
        .find_map(Value::as_i64)
        .unwrap_or(1);
    let last = age(last_seen(event));
    if count > 1 {
        format!("{last} (x{count} over {})", age(first_seen(event)))
    } else {
        last
    }
}

/// The events of an object, oldest first.
pub(crate) fn events(out: &mut Text, events: &[Object], now: Timestamp) {
    if events.is_empty() {
        out.line(0, format!("Events:\t{NONE}"));
        return;
    }
    let mut events: Vec<&Object> = events.iter().collect();
    events.sort_by_key(|event| last_seen(event.tree()).and_then(parse));
    out.line(0, "Events:");
    out.line(1, "Type\tReason\tAge\tFrom\tMessage");
    out.line(1, "----\t------\t----\t----\t-------");
    for event in events {
        let tree = event.tree();
        out.line(
            1,
            format!(
                "{}\t{}\t{}\t{}\t{}",
                text(&tree["type"]),
                text(&tree["reason"]),
                seen_text(tree, now),
                event_source(tree),
                text(&tree["message"]).trim().replace(['\n', '\t'], " ")
            ),
        );
    }
}
