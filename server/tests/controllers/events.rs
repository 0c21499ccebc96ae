//! Events, from the recorder to the registry (spec/daemonset.md 10.4, event bookkeeping).

use std::sync::Arc;

use muster_model::kind::{CONFIG_MAP, EVENT};
use muster_model::object::Object;
use muster_model::time::Clock;
use muster_server::events::Note;
use serde_json::json;

use crate::world::World;

struct Scene {
    world: World,
    about: Arc<Object>,
}

impl Scene {
    async fn new() -> Self {
        let world = World::start().await;
        let tree = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}});
        let about = world.create(&CONFIG_MAP, tree).await.unwrap();
        let about = Arc::clone(about.object());
        Self { world, about }
    }

    fn say(&self, message: &str) {
        let recorder = self.world.recorder();
        recorder.normal("tester", &self.about, "Tried", message);
    }

    /// Message and count of each event.
    fn events(&self) -> Vec<(String, u64)> {
        let events = self.world.cache().list(&EVENT).items;
        let mut found: Vec<(String, u64)> = events
            .iter()
            .map(|event| {
                let count = event.object().at("/count").unwrap().as_u64().unwrap();
                (event.object().text_at("/message").to_owned(), count)
            })
            .collect();
        found.sort();
        found
    }

    async fn until(&self, wanted: &[(&str, u64)]) {
        let holds = || {
            let found = self.events();
            found.len() == wanted.len()
                && wanted
                    .iter()
                    .zip(&found)
                    .all(|((message, count), found)| found.0 == *message && found.1 == *count)
        };
        self.world.until("events", 5, holds).await;
    }
}

#[tokio::test(start_paused = true)]
async fn equal_events_are_counted_in_one_batch_and_over_many() {
    let scene = Scene::new().await;
    (0..3).for_each(|_| scene.say("a"));
    scene.until(&[("a", 3)]).await;
    let first = scene.world.cache().list(&EVENT).items[0].clone();
    scene.world.pass(10).await;
    // Two repeats of a stored event in one batch.
    (0..2).for_each(|_| scene.say("a"));
    scene.say("b");
    scene.until(&[("a", 5), ("b", 1)]).await;
    let events = scene.world.cache().list(&EVENT).items;
    let now = events.iter().find(|event| event.key == first.key).unwrap();
    let text = |pointer: &str| now.object().text_at(pointer).to_owned();
    assert_eq!(
        text("/firstTimestamp"),
        first.object().text_at("/firstTimestamp")
    );
    assert!(text("/lastTimestamp").as_str() > first.object().text_at("/lastTimestamp"));
    assert_eq!(text("/involvedObject/uid"), scene.about.uid());
    assert_eq!(text("/source/component"), "tester");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_a_person_deleted_is_made_again_with_its_count() {
    let scene = Scene::new().await;
    scene.say("a");
    scene.until(&[("a", 1)]).await;
    let key = scene.world.cache().list(&EVENT).items[0].key.clone();
    scene
        .world
        .delete(&EVENT, key, Default::default())
        .await
        .unwrap();
    scene.say("a");
    scene.until(&[("a", 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_that_resemble_each_other_become_one() {
    let scene = Scene::new().await;
    for n in 10..25 {
        scene.say(&format!("m{n}"));
        if n % 4 == 0 {
            scene.world.pass(1).await;
        }
    }
    let messages: Vec<String> = (10..20).map(|n| format!("m{n}")).collect();
    let mut wanted: Vec<(&str, u64)> = vec![("(combined from similar events): m24", 5)];
    wanted.extend(messages.iter().map(|message| (message.as_str(), 1)));
    scene.until(&wanted).await;
}

#[tokio::test(start_paused = true)]
async fn one_source_says_25_things_of_an_object_at_once() {
    let scene = Scene::new().await;
    (0..60).for_each(|_| scene.say("a"));
    scene.until(&[("a", 25)]).await;
    scene.world.pass(301).await;
    (0..5).for_each(|_| scene.say("a"));
    scene.until(&[("a", 26)]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_an_hour_after_it_last_happened_whatever_the_clocks_say() {
    let mut scene = Scene::new().await;
    scene.say("a");
    scene.say("b");
    // An agent whose clock is a day behind.
    let skewed = scene.world.clock.now() - std::time::Duration::from_secs(86_400);
    let note = Note::normal("agent", &scene.about, "Late", "c");
    scene.world.recorder().note(note, skewed);
    scene.until(&[("a", 1), ("b", 1), ("c", 1)]).await;
    scene
        .world
        .clock
        .step(std::time::Duration::from_secs(86_400));
    scene.world.pass(1_800).await;
    scene.until(&[("a", 1), ("b", 1), ("c", 1)]).await;
    scene.say("a");
    scene.world.pass(1_500).await;
    scene.until(&[("a", 2), ("b", 1), ("c", 1)]).await;
    scene.world.pass(600).await;
    scene.until(&[("a", 2)]).await;
    // A restart keeps what is young, and forgets what is old.
    scene.world.restart().await;
    scene.world.pass(600).await;
    scene.until(&[("a", 2)]).await;
    scene.world.pass(1_800).await;
    scene.until(&[]).await;
}
