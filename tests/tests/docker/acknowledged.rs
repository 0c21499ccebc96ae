//! An acknowledged write is never lost, and no reader sees a revision go back, however often the server is killed.

use std::collections::BTreeMap;

use muster_client::{ListOptions, Resources, WriteOptions};
use muster_model::kind::CONFIG_MAP;
use muster_model::object::Object;
use muster_testkit::Fleet;
use serde_json::json;
use tokio::sync::watch;

const KILLS: usize = 50;

/// Name -> the revision that the server acknowledged.
type Acknowledged = BTreeMap<String, u64>;

fn revision(object: &Object) -> u64 {
    object.resource_version().parse().unwrap()
}

/// Creates one object after another until the server is gone; says after each how many there are.
async fn write(resources: Resources, round: usize, count: watch::Sender<usize>) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    for number in 0.. {
        let name = format!("round-{round}-{number}");
        let tree = json!({
            "metadata": {"name": name, "namespace": "default"}, "data": {"text": "x".repeat(2_000)},
        });
        let object = Object::from_value(tree).unwrap();
        let written = resources
            .create(&CONFIG_MAP, &object, &WriteOptions::default())
            .await;
        match written {
            Ok(written) => drop(acknowledged.insert(name, revision(&written.object))),
            Err(_) => break,
        }
        count.send_replace(acknowledged.len());
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_acknowledged_survives_50_kills_of_it() {
    let mut fleet = Fleet::start(&[]).await.unwrap();
    let mut acknowledged = Acknowledged::new();
    let mut newest = 0;
    for round in 0..KILLS {
        let (count, mut counted) = watch::channel(0);
        let writer = tokio::spawn(write(fleet.resources(), round, count));
        // Killed after a different number of writes each time, always with the next one under way.
        let enough = 1 + round * 7 % 23;
        counted.wait_for(|count| *count >= enough).await.unwrap();
        fleet.kill_server();
        let written = writer.await.unwrap();
        let first = *written.values().min().unwrap();
        assert!(
            first > newest,
            "round {round}: revision {first} after {newest}"
        );
        newest = *written.values().max().unwrap();
        acknowledged.extend(written);
        fleet.start_server().await.unwrap();
        let list = fleet
            .resources()
            .list(&CONFIG_MAP, "default", &ListOptions::default())
            .await
            .unwrap();
        let seen: u64 = list.resource_version.parse().unwrap();
        assert!(
            seen >= newest,
            "round {round}: the list is of {seen}, after {newest}"
        );
        newest = seen;
        let found: Acknowledged = list
            .items
            .iter()
            .map(|object| (object.name().to_owned(), revision(object)))
            .collect();
        for (name, revision) in &acknowledged {
            assert_eq!(found.get(name), Some(revision), "{name}, round {round}");
        }
    }
}
