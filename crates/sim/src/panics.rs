//! Panics of a run, wherever in it they happen: a task that panics is somebody's dead task, and no result says so.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static COLLECTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Begins to collect the panics of this thread instead of printing them.
pub(crate) fn collect() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let collected = COLLECTED.with_borrow_mut(|list| match list {
                Some(list) => {
                    list.push(info.to_string().replace('\n', " "));
                    true
                }
                None => false,
            });
            if !collected {
                usual(info);
            }
        }));
    });
    COLLECTED.set(Some(Vec::new()));
}

/// The panics since the last call.
pub(crate) fn take() -> Vec<String> {
    COLLECTED.with_borrow_mut(|list| list.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Ends collecting.
pub(crate) fn release() {
    COLLECTED.set(None);
}
