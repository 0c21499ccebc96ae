//! What every client command has at hand: console, flags, clock, and the server once it is needed.

use std::time::Duration;

use muster_client::context::resolve;
use muster_client::{Connection, ContextFlags, Environment, Resources, Target};
use muster_model::kind::Kind;
use muster_model::object::NamespacedName;
use muster_model::time::{SharedClock, Timestamp};

use crate::args::GlobalFlags;
use crate::console::Console;
use crate::failure::{Failure, Outcome};

/// Runs one command.
pub(crate) struct Session {
    /// Output.
    pub(crate) console: Console,
    /// The flags every command has.
    pub(crate) flags: GlobalFlags,
    /// The process's surroundings.
    pub(crate) environment: Environment,
    /// Time.
    pub(crate) clock: SharedClock,
}

/// A server that answers, and the namespace to work in.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// The way to it.
    pub(crate) connection: Connection,
    /// Where it is and who we are.
    pub(crate) target: Target,
    /// From the flags, else from the kubeconfig, else `default`.
    pub(crate) namespace: String,
    /// Whether `-n` said so.
    pub(crate) namespace_was_given: bool,
}

impl Session {
    /// Finds out whom to talk to.
    pub(crate) fn target(&self) -> Outcome<Target> {
        let flags = ContextFlags {
            server: self.flags.server.clone(),
            kubeconfig: self.flags.kubeconfig.clone(),
            context: self.flags.context.clone(),
            namespace: self.flags.namespace.clone(),
        };
        Ok(resolve(&flags, &self.environment)?)
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Outcome<Server> {
        let mut target = self.target()?;
        let timeout = self.flags.request_timeout;
        if !timeout.is_zero() {
            target.options = target
                .options
                .with_connect_timeout(timeout.min(Duration::from_secs(10)));
        }
        let mut connection = target.connect().await?;
        if timeout.is_zero() {
            // No limit, as kubectl means it: a day is longer than anybody waits.
            connection = connection.with_deadline(Duration::from_secs(86_400));
        } else {
            connection = connection.with_deadline(timeout);
        }
        let namespace = target.namespace.clone();
        if namespace.is_empty() {
            return Err(Failure::new("the namespace must not be empty"));
        }
        Ok(Server {
            connection,
            target,
            namespace,
            namespace_was_given: self.flags.namespace.is_some(),
        })
    }

    /// The wall clock, for ages.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Server {
    /// Calls on objects.
    pub(crate) fn resources(&self) -> Resources {
        self.connection.resources()
    }

    /// A name in the namespace of this command, or in none when the kind has none.
    pub(crate) fn named(&self, kind: &Kind, name: &str) -> NamespacedName {
        NamespacedName::new(
            if kind.namespaced {
                self.namespace.as_str()
            } else {
                ""
            },
            name,
        )
    }

    /// The namespace to list a kind in: empty means all.
    pub(crate) fn scope(&self, kind: &Kind, all_namespaces: bool) -> &str {
        if kind.namespaced && !all_namespaces {
            &self.namespace
        } else {
            ""
        }
    }
}
