//! What a container of the in-memory engine does: its script, by image.

use std::time::Duration;

use crate::runtime::RuntimeError;

/// One scripted end of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// How long after its start.
    pub after: Duration,
    /// With which code.
    pub code: i32,
    /// Whether the kernel is to blame (`OOMKilled`; the code is then 137).
    pub oom_killed: bool,
}

impl Exit {
    /// An exit with this code that long after the start.
    pub fn new(after: Duration, code: i32) -> Self {
        Self {
            after,
            code,
            oom_killed: false,
        }
    }
}

/// What containers of one image do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// How long the start call takes.
    pub start_delay: Duration,
    /// The start is refused: exit code (127, 126, 128) and the engine's words.
    pub start_failure: Option<(i32, String)>,
    /// The n-th start of one container name of one pod ends by the n-th entry; past the list it runs on.
    pub exits: Vec<Exit>,
    /// Past the list, the last entry again and again.
    pub repeat_last_exit: bool,
    /// Nothing but SIGKILL ends it.
    pub ignore_term: bool,
    /// From SIGTERM to the end.
    pub term_delay: Duration,
    /// Exit code after SIGTERM.
    pub term_code: i32,
    /// Written to its log at the start.
    pub log_lines: Vec<String>,
    /// User of the image; empty is root.
    pub user: String,
}

impl Default for Behaviour {
    /// Starts at once, runs until told to stop, then ends with 0.
    fn default() -> Self {
        Self {
            start_delay: Duration::ZERO,
            start_failure: None,
            exits: Vec::new(),
            repeat_last_exit: false,
            ignore_term: false,
            term_delay: Duration::ZERO,
            term_code: 0,
            log_lines: Vec::new(),
            user: String::new(),
        }
    }
}

impl Behaviour {
    /// Ends that long after each start with this code, for ever.
    pub fn crashing(after: Duration, code: i32) -> Self {
        Self {
            exits: vec![Exit::new(after, code)],
            repeat_last_exit: true,
            ..Self::default()
        }
    }

    /// Cannot be started: the command is not there.
    pub fn command_missing(command: &str) -> Self {
        let message = format!("exec: \"{command}\": executable file not found in $PATH: unknown");
        Self {
            start_failure: Some((127, message)),
            ..Self::default()
        }
    }

    /// The end of the n-th run, counted from 0.
    pub(super) fn exit_of_run(&self, run: u32) -> Option<&Exit> {
        let scripted = self.exits.get(run as usize);
        scripted.or_else(|| {
            if self.repeat_last_exit {
                self.exits.last()
            } else {
                None
            }
        })
    }
}

/// How pulling an image goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullScript {
    /// How long each try takes.
    pub delay: Duration,
    /// What the first tries fail with; after these it succeeds.
    pub failures: Vec<RuntimeError>,
}

/// A call of the runtime, for faults to order and for the call log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the methods of Runtime")]
pub enum Call {
    Version,
    List,
    ListPod,
    RunSandbox,
    Create,
    Start,
    Stop,
    Remove,
    Image,
    Pull,
    Logs,
    Events,
}

/// One call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// By which node.
    pub node: String,
    /// Which call.
    pub call: Call,
    /// Container name, container id, pod UID or image reference; empty where the call has none.
    pub target: String,
}
