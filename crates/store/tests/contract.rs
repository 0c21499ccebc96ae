//! What every engine promises, run over each of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

mod suite;

/// One module per engine: the suite's functions as tests.
macro_rules! contract {
    ($engine:ident, $open:expr) => {
        mod $engine {
            use super::suite;

            contract!(@each $open,
                a_commit_is_all_or_nothing
                a_conflict_names_what_was_expected_and_found
                comparisons_hold_the_line
                every_commit_has_a_larger_revision
                an_entry_remembers_when_it_was_made
                a_deleted_key_starts_anew
                a_commit_that_changes_nothing_takes_no_revision
                of_several_ops_on_a_key_the_last_happens
                a_list_shows_its_prefix_in_order
                a_list_at_an_earlier_revision_undoes_what_came_later
                a_list_out_of_reach_says_so
                a_watch_sees_what_happens_after_it
                a_watch_catches_up_from_the_past_and_goes_on
                a_watch_from_too_long_ago_or_the_future_is_refused
                a_watch_left_behind_ends_with_too_old
                a_slow_watch_within_the_log_misses_nothing
                several_ops_are_one_batch_of_events
                events_carry_the_entry_before
                soft_writes_are_like_others_while_the_store_lives
                a_committed_event_is_there_when_the_commit_answers
                closing_ends_watches_and_refuses_commits
                closing_waits_for_what_is_waiting
                dropping_the_store_ends_watches
                many_writers_get_different_revisions_and_watchers_see_them_in_order
                of_many_that_compare_only_one_wins
            );
        }
    };
    (@each $open:expr, $($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let bench = suite::Bench::new($open);
                suite::$name(bench).await;
            }
        )*
    };
}

contract!(memory, suite::memory);
contract!(sled, suite::sled);
