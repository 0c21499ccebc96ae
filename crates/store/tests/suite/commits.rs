//! Commits, reads, and lists at an earlier revision.

use super::*;

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
