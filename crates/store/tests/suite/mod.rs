//! The contract as functions over a store that the caller opens.

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use muster_store::{
    CommitError, Compare, Entry, Event, EventStream, Key, LogLimits, MemoryStore, Op, Options,
    Revision, SledStore, Store, Txn, WatchError,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A store and whatever must live as long as it does.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) _directory: Option<tempfile::TempDir>,
}

/// Opens stores of one engine.
pub(crate) struct Bench {
    open: Box<dyn Fn(LogLimits) -> Opened>,
}

pub(crate) fn memory(limits: LogLimits) -> Opened {
    Opened {
        store: Arc::new(MemoryStore::with_limits(limits)),
        _directory: None,
    }
}

pub(crate) fn sled(limits: LogLimits) -> Opened {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        log: limits,
        ..Options::default()
    };
    let store = SledStore::open(&directory.path().join("store"), options).unwrap();
    Opened {
        store: Arc::new(store),
        _directory: Some(directory),
    }
}

impl Bench {
    pub(crate) fn new(open: impl Fn(LogLimits) -> Opened + 'static) -> Self {
        Self {
            open: Box::new(open),
        }
    }

    fn store(&self) -> Opened {
        (self.open)(LogLimits::default())
    }

    fn short_log(&self, commits: usize) -> Opened {
        (self.open)(LogLimits {
            commits,
            bytes: usize::MAX,
        })
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text)
}

pub(crate) fn put(text: &str, value: &str) -> Op {
    Op::Put {
        key: key(text),
        value: Bytes::copy_from_slice(value.as_bytes()),
        soft: false,
    }
}

pub(crate) fn soft(text: &str, value: &str) -> Op {
    Op::Put {
        key: key(text),
        value: Bytes::copy_from_slice(value.as_bytes()),
        soft: true,
    }
}

pub(crate) fn delete(text: &str) -> Op {
    Op::Delete { key: key(text) }
}

pub(crate) fn ops(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        compares: vec![],
        ops: ops.into(),
    }
}

pub(crate) fn only_if(compare: Compare, op: Op) -> Txn {
    Txn {
        compares: vec![compare],
        ops: vec![op],
    }
}

impl Opened {
    async fn commit(&self, txn: Txn) -> Revision {
        self.store.commit(txn).await.unwrap()
    }

    async fn get(&self, text: &str) -> Option<Entry> {
        self.store.get(&key(text)).await
    }

    async fn value(&self, text: &str) -> Option<Bytes> {
        self.get(text).await.map(|entry| entry.value)
    }

    async fn list(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<Vec<(String, String, u64)>, WatchError> {
        let listing = self.store.list(prefix, at).await?;
        if let Some(at) = at {
            assert_eq!(listing.revision, at);
        }
        let line = |entry: Entry| {
            let value = String::from_utf8(entry.value.to_vec()).unwrap();
            (entry.key.to_string(), value, entry.modified.0)
        };
        Ok(listing.entries.into_iter().map(line).collect())
    }

    fn watch(&self, prefix: &str, after: Revision) -> EventStream {
        self.store.watch(prefix, after).unwrap()
    }
}

/// The next item, within a time that only a broken watch needs.
pub(crate) async fn next(stream: &mut EventStream) -> Option<Result<Vec<Event>, WatchError>> {
    tokio::time::timeout(Duration::from_secs(30), stream.next())
        .await
        .expect("the watch says nothing")
}

async fn next_events(stream: &mut EventStream) -> Vec<Event> {
    next(stream)
        .await
        .expect("the watch ended")
        .expect("the watch failed")
}

fn shown(events: &[Event]) -> Vec<(u64, String, Option<String>)> {
    let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
    events
        .iter()
        .map(|e| (e.revision.0, e.key.to_string(), e.value.as_ref().map(text)))
        .collect()
}

pub(crate) async fn a_commit_is_all_or_nothing(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("a", "1")])).await;
    let txn = Txn {
        compares: vec![Compare::Present(key("a")), Compare::Present(key("missing"))],
        ops: vec![put("a", "2"), put("b", "2"), delete("a")],
    };
    assert!(matches!(
        store.store.commit(txn).await,
        Err(CommitError::Conflict { .. })
    ));
    assert_eq!(
        store.list("", None).await.unwrap(),
        [("a".to_owned(), "1".to_owned(), 1)]
    );
    assert_eq!(store.store.revision(), Revision(1));
    let txn = Txn {
        compares: vec![Compare::Present(key("a"))],
        ops: vec![put("b", "2"), delete("a")],
    };
    assert_eq!(store.commit(txn).await, Revision(2));
    assert_eq!(
        store.list("", None).await.unwrap(),
        [("b".to_owned(), "2".to_owned(), 2)]
    );
}

pub(crate) async fn a_conflict_names_what_was_expected_and_found(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("a", "1")])).await;
    let cases = [
        (Compare::Absent(key("a")), Some(Revision(1))),
        (Compare::At(key("a"), Revision(9)), Some(Revision(1))),
        (Compare::At(key("b"), Revision(1)), None),
        (Compare::Present(key("b")), None),
    ];
    for (compare, found) in cases {
        let error = store
            .store
            .commit(only_if(compare.clone(), put("x", "x")))
            .await
            .unwrap_err();
        let (Compare::Absent(at) | Compare::At(at, _) | Compare::Present(at)) = compare.clone();
        assert_eq!(
            error,
            CommitError::Conflict {
                expected: compare,
                key: at,
                found
            }
        );
    }
}

pub(crate) async fn comparisons_hold_the_line(bench: Bench) {
    let store = bench.store();
    let first = store
        .commit(only_if(Compare::Absent(key("a")), put("a", "1")))
        .await;
    let second = store
        .commit(only_if(Compare::At(key("a"), first), put("a", "2")))
        .await;
    store
        .store
        .commit(only_if(Compare::At(key("a"), first), put("a", "3")))
        .await
        .unwrap_err();
    store
        .commit(only_if(Compare::Present(key("a")), put("a", "4")))
        .await;
    store
        .store
        .commit(only_if(Compare::At(key("a"), second), delete("a")))
        .await
        .unwrap_err();
    assert_eq!(store.value("a").await, Some("4".into()));
}

pub(crate) async fn every_commit_has_a_larger_revision(bench: Bench) {
    let store = bench.store();
    let mut last = store.store.revision();
    for turn in 0..50 {
        let key = format!("k{}", turn % 7);
        let op = if turn % 3 == 0 {
            soft(&key, "v")
        } else {
            put(&key, "v")
        };
        let revision = store.commit(ops([op])).await;
        assert!(revision > last);
        assert_eq!(store.store.revision(), revision);
        last = revision;
    }
}

pub(crate) async fn an_entry_remembers_when_it_was_made(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("other", "")])).await;
    store.commit(ops([put("a", "1")])).await;
    store.commit(ops([put("a", "2")])).await;
    let entry = store.get("a").await.unwrap();
    assert_eq!(
        (entry.created, entry.modified, entry.value),
        (Revision(2), Revision(3), "2".into())
    );
}

pub(crate) async fn a_deleted_key_starts_anew(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("a", "1")])).await;
    store.commit(ops([delete("a")])).await;
    assert_eq!(store.get("a").await, None);
    store
        .commit(only_if(Compare::Absent(key("a")), put("a", "2")))
        .await;
    let entry = store.get("a").await.unwrap();
    assert_eq!((entry.created, entry.modified), (Revision(3), Revision(3)));
}

pub(crate) async fn a_commit_that_changes_nothing_takes_no_revision(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("a", "1")])).await;
    assert_eq!(store.commit(ops([])).await, Revision(1));
    assert_eq!(store.commit(ops([delete("b")])).await, Revision(1));
    assert_eq!(
        store
            .commit(only_if(Compare::Present(key("a")), delete("b")))
            .await,
        Revision(1)
    );
    store
        .store
        .commit(only_if(Compare::Absent(key("a")), delete("b")))
        .await
        .unwrap_err();
    assert_eq!(
        store.commit(ops([put("a", "1")])).await,
        Revision(2),
        "the same value is a new version all the same"
    );
}

pub(crate) async fn of_several_ops_on_a_key_the_last_happens(bench: Bench) {
    let store = bench.store();
    let mut watch = store.watch("", Revision(0));
    store
        .commit(ops([
            put("a", "1"),
            delete("a"),
            put("a", "2"),
            put("b", "1"),
            delete("b"),
        ]))
        .await;
    assert_eq!(
        shown(&next_events(&mut watch).await),
        [(1, "a".to_owned(), Some("2".to_owned()))]
    );
    assert_eq!(store.get("b").await, None);
}

pub(crate) async fn a_list_shows_its_prefix_in_order(bench: Bench) {
    let store = bench.store();
    store
        .commit(ops(
            ["/b/2", "/a/1", "/b/1", "/b", "/c"].map(|key| put(key, "v"))
        ))
        .await;
    let keys: Vec<String> = store
        .list("/b/", None)
        .await
        .unwrap()
        .into_iter()
        .map(|line| line.0)
        .collect();
    assert_eq!(keys, ["/b/1", "/b/2"]);
    assert_eq!(store.list("", None).await.unwrap().len(), 5);
    assert_eq!(store.list("/zzz", None).await.unwrap(), []);
    assert_eq!(
        store.store.list("", None).await.unwrap().revision,
        Revision(1)
    );
}

pub(crate) async fn a_list_at_an_earlier_revision_undoes_what_came_later(bench: Bench) {
    let store = bench.store();
    store
        .commit(ops([put("p/a", "1"), put("p/b", "1"), put("q", "1")]))
        .await;
    store.commit(ops([put("p/a", "2"), delete("p/b")])).await;
    store.commit(ops([put("p/c", "3"), soft("p/a", "3")])).await;
    store
        .commit(ops([put("p/b", "4"), delete("p/c"), put("q", "4")]))
        .await;
    let line = |key: &str, value: &str, at| (key.to_owned(), value.to_owned(), at);
    let expected = [
        (0, vec![]),
        (1, vec![line("p/a", "1", 1), line("p/b", "1", 1)]),
        (2, vec![line("p/a", "2", 2)]),
        (3, vec![line("p/a", "3", 3), line("p/c", "3", 3)]),
        (4, vec![line("p/a", "3", 3), line("p/b", "4", 4)]),
    ];
    for (at, lines) in expected {
        assert_eq!(
            store.list("p/", Some(Revision(at))).await.unwrap(),
            lines,
            "at {at}"
        );
    }
}

pub(crate) async fn a_list_out_of_reach_says_so(bench: Bench) {
    let store = bench.short_log(2);
    for turn in 1..=5 {
        store.commit(ops([put("a", &turn.to_string())])).await;
    }
    let too_old = WatchError::TooOld {
        asked: Revision(2),
        oldest: Revision(3),
    };
    assert_eq!(store.list("", Some(Revision(2))).await, Err(too_old));
    assert_eq!(store.list("", Some(Revision(3))).await.unwrap()[0].1, "3");
    let future = WatchError::Future {
        asked: Revision(6),
        current: Revision(5),
    };
    assert_eq!(store.list("", Some(Revision(6))).await, Err(future));
}

pub(crate) async fn a_watch_sees_what_happens_after_it(bench: Bench) {
    let store = bench.store();
    store.commit(ops([put("p/a", "1")])).await;
    let mut watch = store.watch("p/", store.store.revision());
    assert!(
        watch.next().now_or_never().is_none(),
        "nothing has happened yet"
    );
    store.commit(ops([put("q/a", "2")])).await;
    store.commit(ops([put("p/a", "3")])).await;
    store.commit(ops([delete("p/a")])).await;
    assert_eq!(
        shown(&next_events(&mut watch).await),
        [(3, "p/a".to_owned(), Some("3".to_owned()))]
    );
    assert_eq!(
        shown(&next_events(&mut watch).await),
        [(4, "p/a".to_owned(), None)]
    );
    assert!(watch.next().now_or_never().is_none());
}

pub(crate) async fn a_watch_catches_up_from_the_past_and_goes_on(bench: Bench) {
    let store = bench.store();
    for turn in 1..=200 {
        store.commit(ops([soft("a", &turn.to_string())])).await;
    }
    let mut watch = store.watch("", Revision(50));
    for turn in 201..=210 {
        store.commit(ops([soft("a", &turn.to_string())])).await;
    }
    for turn in 51..=210 {
        assert_eq!(
            shown(&next_events(&mut watch).await),
            [(turn, "a".to_owned(), Some(turn.to_string()))]
        );
    }
}

pub(crate) async fn a_watch_from_too_long_ago_or_the_future_is_refused(bench: Bench) {
    let store = bench.short_log(3);
    for _ in 0..10 {
        store.commit(ops([put("a", "v")])).await;
    }
    let refused = |after: u64| store.store.watch("", Revision(after)).err();
    assert_eq!(
        refused(6),
        Some(WatchError::TooOld {
            asked: Revision(6),
            oldest: Revision(7)
        })
    );
    assert_eq!(refused(7), None);
    assert_eq!(refused(10), None);
    assert_eq!(
        refused(11),
        Some(WatchError::Future {
            asked: Revision(11),
            current: Revision(10)
        })
    );
}

pub(crate) async fn a_watch_left_behind_ends_with_too_old(bench: Bench) {
    let store = bench.short_log(10);
    let mut watch = store.watch("", Revision(0));
    for _ in 0..100 {
        store.commit(ops([put("a", "v")])).await;
    }
    let error = next(&mut watch).await.unwrap().unwrap_err();
    assert_eq!(
        error,
        WatchError::TooOld {
            asked: Revision(0),
            oldest: Revision(90)
        }
    );
    assert!(
        next(&mut watch).await.is_none(),
        "after an error the stream ends"
    );
}

pub(crate) async fn a_slow_watch_within_the_log_misses_nothing(bench: Bench) {
    let store = bench.short_log(100);
    let mut watch = store.watch("", Revision(0));
    let mut seen = 0;
    for turn in 1..=1000_u64 {
        store.commit(ops([soft("a", "v")])).await;
        if turn % 90 == 0 {
            while seen < turn {
                let events = next_events(&mut watch).await;
                assert_eq!(events[0].revision.0, seen + 1);
                seen += 1;
            }
        }
    }
}

pub(crate) async fn several_ops_are_one_batch_of_events(bench: Bench) {
    let store = bench.store();
    let mut all = store.watch("", Revision(0));
    let mut some = store.watch("p/", Revision(0));
    store
        .commit(ops([
            put("p/a", "1"),
            put("q", "1"),
            put("p/b", "1"),
            delete("missing"),
        ]))
        .await;
    let value = Some("1".to_owned());
    let events = next_events(&mut all).await;
    assert_eq!(
        shown(&events),
        [
            (1, "p/a".to_owned(), value.clone()),
            (1, "q".to_owned(), value.clone()),
            (1, "p/b".to_owned(), value)
        ]
    );
    assert_eq!(next_events(&mut some).await.len(), 2);
}

pub(crate) async fn events_carry_the_entry_before(bench: Bench) {
    let store = bench.store();
    let mut watch = store.watch("", Revision(0));
    store.commit(ops([put("a", "1")])).await;
    store.commit(ops([put("a", "2")])).await;
    store.commit(ops([delete("a")])).await;
    assert_eq!(next_events(&mut watch).await[0].previous, None);
    let entry = |value: &'static str, modified| Entry {
        key: key("a"),
        value: value.into(),
        created: Revision(1),
        modified: Revision(modified),
    };
    assert_eq!(
        next_events(&mut watch).await[0].previous,
        Some(entry("1", 1))
    );
    assert_eq!(
        next_events(&mut watch).await[0].previous,
        Some(entry("2", 2))
    );
}

pub(crate) async fn soft_writes_are_like_others_while_the_store_lives(bench: Bench) {
    let store = bench.store();
    let mut watch = store.watch("", Revision(0));
    store
        .commit(ops([soft("lease", "1"), put("node", "1")]))
        .await;
    store
        .commit(only_if(
            Compare::At(key("lease"), Revision(1)),
            soft("lease", "2"),
        ))
        .await;
    store.commit(ops([delete("lease")])).await;
    let revisions: Vec<u64> = [
        next_events(&mut watch).await,
        next_events(&mut watch).await,
        next_events(&mut watch).await,
    ]
    .iter()
    .map(|events| events[0].revision.0)
    .collect();
    assert_eq!(revisions, [1, 2, 3]);
    assert_eq!(store.get("lease").await, None);
}

pub(crate) async fn a_committed_event_is_there_when_the_commit_answers(bench: Bench) {
    let store = bench.store();
    let mut watch = store.watch("", Revision(0));
    for turn in 1..=20 {
        let op = if turn % 2 == 0 {
            put("a", "v")
        } else {
            soft("a", "v")
        };
        let revision = store.commit(ops([op])).await;
        let events = watch
            .next()
            .now_or_never()
            .expect("the event is there at once")
            .unwrap()
            .unwrap();
        assert_eq!(events[0].revision, revision);
    }
}

pub(crate) async fn closing_ends_watches_and_refuses_commits(bench: Bench) {
    let store = bench.store();
    let mut watch = store.watch("", Revision(0));
    store.commit(ops([put("a", "1")])).await;
    store.store.close().await;
    store.store.close().await;
    assert_eq!(
        next_events(&mut watch).await.len(),
        1,
        "what there was is still delivered"
    );
    assert_eq!(next(&mut watch).await, Some(Err(WatchError::Closed)));
    assert_eq!(next(&mut watch).await, None);
    let error = store.store.commit(ops([put("a", "2")])).await.unwrap_err();
    assert_eq!(error.to_string(), "the store is closed: it was shut down");
    assert_eq!(
        store.store.watch("", Revision(1)).err(),
        Some(WatchError::Closed)
    );
    assert_eq!(store.value("a").await, Some("1".into()), "reading goes on");
}

pub(crate) async fn closing_waits_for_what_is_waiting(bench: Bench) {
    let opened = bench.store();
    let mut tasks = tokio::task::JoinSet::new();
    for turn in 0..200 {
        let store = Arc::clone(&opened.store);
        tasks.spawn(async move { store.commit(ops([put(&format!("k{turn:03}"), "v")])).await });
    }
    tokio::task::yield_now().await;
    opened.store.close().await;
    let mut acknowledged = 0;
    while let Some(result) = tasks.join_next().await {
        match result.unwrap() {
            Ok(_) => acknowledged += 1,
            Err(error) => assert!(matches!(error, CommitError::Closed(_)), "{error}"),
        }
    }
    assert_eq!(opened.list("k", None).await.unwrap().len(), acknowledged);
}

pub(crate) async fn dropping_the_store_ends_watches(bench: Bench) {
    let Opened { store, _directory } = bench.store();
    let mut watch = store.watch("", Revision(0)).unwrap();
    drop(store);
    assert_eq!(next(&mut watch).await, Some(Err(WatchError::Closed)));
}

pub(crate) async fn many_writers_get_different_revisions_and_watchers_see_them_in_order(
    bench: Bench,
) {
    const TASKS: u64 = 64;
    const EACH: u64 = 20;
    let opened = bench.store();
    let mut watch = opened.watch("", Revision(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(&opened.store);
        tasks.spawn(async move {
            let mut revisions = Vec::new();
            for turn in 0..EACH {
                revisions.push(
                    store
                        .commit(ops([put(&format!("k{task}"), &turn.to_string())]))
                        .await
                        .unwrap()
                        .0,
                );
            }
            revisions
        });
    }
    let mut all = BTreeSet::new();
    while let Some(revisions) = tasks.join_next().await {
        let revisions = revisions.unwrap();
        assert!(
            revisions.is_sorted(),
            "each task's own commits are in order"
        );
        all.extend(revisions);
    }
    assert_eq!(all, (1..=TASKS * EACH).collect());
    for revision in 1..=TASKS * EACH {
        assert_eq!(next_events(&mut watch).await[0].revision.0, revision);
    }
}

pub(crate) async fn of_many_that_compare_only_one_wins(bench: Bench) {
    let opened = bench.store();
    let mut at = opened.commit(ops([put("a", "start")])).await;
    for _ in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..16 {
            let store = Arc::clone(&opened.store);
            tasks.spawn(async move {
                store
                    .commit(only_if(
                        Compare::At(key("a"), at),
                        put("a", &task.to_string()),
                    ))
                    .await
            });
        }
        let results: Vec<_> = tasks.join_all().await;
        let won: Vec<Revision> = results.into_iter().filter_map(Result::ok).collect();
        assert_eq!(won.len(), 1);
        at = won[0];
    }
}
