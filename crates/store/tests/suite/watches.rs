//! Watches, soft writes, many writers, and the end of a store.

use super::*;

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
