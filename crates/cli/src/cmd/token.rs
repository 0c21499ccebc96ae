//! `muster token`: the tokens that nodes join with, kept as Kubernetes bootstrap tokens.

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{DeleteOptions, ListOptions, Target, WriteOptions};
use muster_model::bootstrap_token::{self, field};
use muster_model::kind::{NAMESPACE, SECRET};
use muster_model::object::Object;
use muster_model::table::NONE;
use muster_model::time::{Timestamp, age_text, parse, to_seconds_text};
use muster_pki::{CaHash, JoinToken, pem};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::args::duration;
use crate::failure::{Failure, Outcome};
use crate::output::document::{self, FormatArg};
use crate::output::table::Columns;
use crate::session::{Server, Session};

/// Join tokens.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token and print the command that joins a node with it
    Create(CreateArgs),
    /// List the tokens
    List(ListArgs),
    /// Delete a token: who has joined stays
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster token create                          good for a day, for any number of nodes
  muster token create --ttl=1h --description='the two new ones in the shed'
  ssh pi-1 \"$(muster token create --print=command)\"")]
struct CreateArgs {
    /// How long it is good for; 0: for ever
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    ttl: Duration,
    /// What it is for
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    description: String,
    /// Print everything, only the token, or only the command
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    print: Print,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Print {
    #[default]
    All,
    Token,
    Command,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster token list                            ids and times; never the secrets
  muster token list -o json                    for scripts")]
struct ListArgs {
    #[command(flatten)]
    output: FormatArg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster token delete x7k2pa                   by its id (the part after `muster1.`)")]
struct DeleteArgs {
    /// Ids, or whole tokens
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl TokenArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            TokenCommand::Create(args) => create(args, session).await,
            TokenCommand::List(args) => list(&args, session).await,
            TokenCommand::Delete(args) => delete(args, session).await,
        }
    }
}

async fn create(args: CreateArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let (token, expires) = make(&server, session.now(), args.ttl, &args.description).await?;
    let text = token.text();
    let command = join_command(&server.target, text.expose_secret());
    let console = &mut session.console;
    match args.print {
        Print::Token => console.line(text.expose_secret())?,
        Print::Command => console.line(command)?,
        Print::All => {
            let until = expires.map_or_else(
                || "never expires".to_owned(),
                |at| format!("expires {}", to_seconds_text(at)),
            );
            console.line(format!("token {} created, {until}\n", token.id()))?;
            console.line(format!("On the machine that is to join:\n\n  {command}"))?;
            if is_loopback(&server.target) {
                console.note(format!(
                    "\nThe kubeconfig says {}: from another machine use an address of this one (the server must \
                     listen there: `muster server --listen`).",
                    server.target.options.address
                ));
            }
        }
    }
    Ok(())
}

/// Makes a token and keeps it on the server. A `ttl` of zero is for ever.
pub(crate) async fn make(
    server: &Server,
    now: Timestamp,
    ttl: Duration,
    description: &str,
) -> Outcome<(JoinToken, Option<Timestamp>)> {
    let token = JoinToken::generate(&mut rand::rng(), ca_hash(&server.target)?);
    let expires =
        if ttl.is_zero() {
            None
        } else {
            let until = now.checked_add(ttl);
            Some(until.map_err(|_| {
                Failure::new("--ttl is too long: use 0 for a token that never expires")
            })?)
        };
    let secret = bootstrap_token::secret(
        token.id(),
        token.secret().expose_secret(),
        expires,
        description,
    );
    let options = WriteOptions {
        field_manager: "muster-token".to_owned(),
        ..WriteOptions::default()
    };
    match server.resources().create(&SECRET, &secret, &options).await {
        Err(error) if error.is_not_found() => {
            ensure_namespace(server).await?;
            server
                .resources()
                .create(&SECRET, &secret, &options)
                .await?;
        }
        other => drop(other?),
    }
    Ok((token, expires))
}

/// The command line that joins a node.
fn join_command(target: &Target, token: &str) -> String {
    format!(
        "muster agent --server {} --token {token}",
        target.options.address
    )
}

fn is_loopback(target: &Target) -> bool {
    let host = target.options.address.host();
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn ca_hash(target: &Target) -> Outcome<CaHash> {
    let certificates = pem::certificates(&target.ca_pem).map_err(|error| {
        Failure::new(format!(
            "{}: the CA cannot be read: {error}",
            target.file.display()
        ))
    })?;
    match certificates.first() {
        Some(ca) => Ok(CaHash::of(ca)),
        None => Err(Failure::new(format!(
            "{}: the CA holds no certificate",
            target.file.display()
        ))),
    }
}

async fn ensure_namespace(server: &Server) -> Outcome {
    let tree = json!({"metadata": {"name": bootstrap_token::NAMESPACE}});
    let mut namespace =
        Object::from_value(tree).map_err(|error| Failure::new(error.to_string()))?;
    namespace.set_kind(&NAMESPACE);
    match server
        .resources()
        .create(&NAMESPACE, &namespace, &WriteOptions::default())
        .await
    {
        Err(error) if !error.has_reason("AlreadyExists") => Err(error.into()),
        _ => Ok(()),
    }
}

/// What may be known of a token: everything but its secret.
struct Known {
    id: String,
    /// None: it is good for ever.
    expires: Option<Timestamp>,
    description: String,
}

impl Known {
    fn of(secret: &Object) -> Self {
        let read = |field: &str| bootstrap_token::read(secret, field).unwrap_or_default();
        Self {
            id: read(field::ID),
            expires: parse(&read(field::EXPIRATION)),
            description: read(field::DESCRIPTION),
        }
    }

    fn row(self, now: Timestamp) -> Vec<String> {
        let expires = match self.expires {
            None => "never".to_owned(),
            Some(at) if at <= now => "expired".to_owned(),
            Some(at) => format!("in {}", age_text(at.as_second() - now.as_second())),
        };
        let description = if self.description.is_empty() {
            NONE.to_owned()
        } else {
            self.description
        };
        vec![self.id, expires, description]
    }

    fn value(&self, now: Timestamp) -> Value {
        json!({
            "id": self.id, "description": self.description, "expires": self.expires.map(to_seconds_text),
            "expired": self.expires.is_some_and(|at| at <= now),
        })
    }
}

async fn list(args: &ListArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let options = ListOptions {
        field_selector: format!("type={}", bootstrap_token::SECRET_TYPE),
        ..ListOptions::default()
    };
    let secrets = server
        .resources()
        .list(&SECRET, bootstrap_token::NAMESPACE, &options)
        .await?
        .items;
    let now = session.now();
    let known = secrets.iter().map(Known::of);
    if let Some(format) = args.output.format {
        let tokens: Vec<Value> = known.map(|token| token.value(now)).collect();
        return document::write(&mut session.console, format, &json!({"tokens": tokens}));
    }
    if secrets.is_empty() {
        session
            .console
            .note("No tokens. `muster token create` makes one.");
        return Ok(());
    }
    let mut rows = vec![["ID", "EXPIRES", "DESCRIPTION"].map(str::to_owned).to_vec()];
    rows.extend(known.map(|token| token.row(now)));
    Columns::new().write(&mut session.console.out, "", &rows)?;
    Ok(())
}

async fn delete(args: DeleteArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    for id in &args.ids {
        let id = match JoinToken::parse(id) {
            Ok(token) => token.id().to_owned(),
            Err(_) => id.clone(),
        };
        let name = bootstrap_token::key(&id);
        match server
            .resources()
            .delete(&SECRET, &name, &DeleteOptions::default())
            .await
        {
            Ok(_) => session.console.line(format!("token {id:?} deleted"))?,
            Err(error) if error.is_not_found() => {
                return Err(Failure::new(format!(
                    "there is no token with the id {id:?}: `muster token list` shows them"
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
