//! What a container of the in-memory engine does: its script, by image.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::runtime::{ExecOutcome, RuntimeError};

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

/// What a command inside does. The last entry that fits counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecAnswer {
    /// The command, its words joined by blanks.
    pub command: String,
    /// From this age of the container on.
    pub after: Duration,
    /// How long it takes.
    pub takes: Duration,
    /// How it ends.
    pub exit_code: i32,
    /// What it prints.
    pub output: String,
}

impl ExecAnswer {
    /// Ends at once with this code, from this age of the container on.
    pub fn new(command: &str, after: Duration, exit_code: i32) -> Self {
        Self {
            command: command.to_owned(),
            after,
            takes: Duration::ZERO,
            exit_code,
            output: String::new(),
        }
    }
}

/// What an HTTP request is answered. The last entry that fits counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// On this port.
    pub port: u16,
    /// For this path, without a query.
    pub path: String,
    /// From this age of the container on.
    pub after: Duration,
    /// The status.
    pub status: u16,
    /// Where it redirects to; empty: nowhere.
    pub location: String,
}

impl HttpAnswer {
    /// This status for a path on port 8080, from this age of the container on.
    pub fn new(path: &str, after: Duration, status: u16) -> Self {
        Self {
            port: 8080,
            path: path.to_owned(),
            after,
            status,
            location: String::new(),
        }
    }
}

/// What containers of one image do. What is not scripted goes well: commands end with 0, every port takes connections,
/// every HTTP path is answered with 200.
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
    /// Commands run inside.
    pub execs: Vec<ExecAnswer>,
    /// HTTP requests.
    pub http: Vec<HttpAnswer>,
    /// Ports on which nothing listens.
    pub closed_ports: BTreeSet<u16>,
    /// The number of the status with which gRPC health checks are answered on every port: 1 is SERVING.
    pub grpc_health: u8,
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
            execs: Vec::new(),
            http: Vec::new(),
            closed_ports: BTreeSet::new(),
            grpc_health: 1,
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

    /// How long a command takes at this age of the container, and how it ends.
    pub(super) fn exec_answer(&self, command: &str, age: Duration) -> (Duration, ExecOutcome) {
        let scripted = self
            .execs
            .iter()
            .rfind(|answer| answer.command == command && answer.after <= age);
        let well = ExecOutcome {
            exit_code: Some(0),
            ..ExecOutcome::default()
        };
        scripted.map_or((Duration::ZERO, well), |answer| {
            let outcome = ExecOutcome {
                exit_code: Some(answer.exit_code),
                output: answer.output.clone(),
            };
            (answer.takes, outcome)
        })
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
    Exec,
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
