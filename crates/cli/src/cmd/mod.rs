//! One command, one file.

#[cfg(feature = "agent")]
pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod completion;
pub(crate) mod cordon;
pub(crate) mod coverage;
pub(crate) mod delete;
#[cfg(all(feature = "server", feature = "agent"))]
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod label;
pub(crate) mod logs;
pub(crate) mod rollout;
#[cfg(feature = "server")]
pub(crate) mod server;
pub(crate) mod set;
pub(crate) mod store;
pub(crate) mod taint;
pub(crate) mod token;
#[cfg(all(feature = "server", feature = "agent"))]
pub(crate) mod up;
pub(crate) mod version;

use crate::failure::Failure;

/// An error with everything beneath it, on one line.
pub(crate) fn chain(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut text = format!("{what}: {error}");
    let mut next = error.source();
    while let Some(source) = next {
        let line = source.to_string();
        if !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        next = source.source();
    }
    Failure::new(text)
}
