//! `muster store`: a server's store while no server runs.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_store as store;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::document::{self, FormatArg};
use crate::session::Session;

/// Check, save and restore a store.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Check that everything that was acknowledged is there and whole
    Verify(VerifyArgs),
    /// Write every object as text: a backup
    Export(ExportArgs),
    /// Make a store from an export
    Import(ImportArgs),
}

#[derive(Debug, Args)]
struct Place {
    /// The server's data directory [default: /var/lib/muster as root, else ~/.local/share/muster]
    #[arg(long, value_name = "DIR", env = "MUSTER_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    fn store(&self, session: &Session) -> PathBuf {
        self.data_dir
            .clone()
            .unwrap_or_else(|| session.environment.data_dir())
            .join("store")
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster store verify                          the store of this machine's server, which must not run
  muster store verify --data-dir /mnt/backup/muster
  muster store verify -o json                  for scripts; what does not pass is exit code 1")]
struct VerifyArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: FormatArg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster store export backup.jsonl             Secrets are in it: keep it safe
  muster store export - | zstd > backup.zst")]
struct ExportArgs {
    /// The file to write, or - for standard output; an existing one is not overwritten
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster store import backup.jsonl             into a data directory that has no store yet
  zstd -d < backup.zst | muster store import -")]
struct ImportArgs {
    /// The file to read, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: Place,
}

impl StoreArgs {
    /// Runs the command. It blocks: nothing else is going on.
    pub(crate) fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            StoreCommand::Verify(args) => verify(&args, session),
            StoreCommand::Export(args) => export(&args, session),
            StoreCommand::Import(args) => import(&args, session),
        }
    }
}

fn verify(args: &VerifyArgs, session: &mut Session) -> Outcome {
    let directory = args.place.store(session);
    let report = store::verify(&directory)
        .map_err(|error| super::chain("the store did not pass", &error))?;
    if let Some(format) = args.output.format {
        let found = json!({
            "directory": directory.display().to_string(), "storeId": report.store_id, "objects": report.keys,
            "bytes": report.value_bytes, "revision": report.revision.0,
        });
        return document::write(&mut session.console, format, &found);
    }
    session.console.line(format!(
        "{}: whole: {} objects, {} bytes, revision {}, store {}",
        directory.display(),
        report.keys,
        report.value_bytes,
        report.revision,
        report.store_id
    ))?;
    Ok(())
}

fn export(args: &ExportArgs, session: &mut Session) -> Outcome {
    let directory = args.place.store(session);
    let to_stdout = args.file.as_os_str() == "-";
    let count = if to_stdout {
        store::export(&directory, &mut session.console.out)
    } else {
        let file = private(&args.file).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", args.file.display()))
        })?;
        let exported = store::export(&directory, &file);
        if exported.is_err() {
            // Half an export is none.
            drop(fs::remove_file(&args.file));
        } else {
            file.sync_all()?;
        }
        exported
    };
    let count = count.map_err(|error| super::chain("the store cannot be exported", &error))?;
    session.console.flush()?;
    session.console.note(format!("{count} objects exported"));
    Ok(())
}

/// A new file for its owner only.
fn private(path: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn import(args: &ImportArgs, session: &mut Session) -> Outcome {
    let directory = args.place.store(session);
    let count = if args.file.as_os_str() == "-" {
        store::import(io::stdin().lock(), &directory)
    } else {
        let file = File::open(&args.file).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", args.file.display()))
        })?;
        store::import(BufReader::new(file), &directory)
    };
    let count = count.map_err(|error| super::chain("the export cannot be imported", &error))?;
    session
        .console
        .line(format!("{}: {count} objects imported", directory.display()))?;
    session.console.out.flush()?;
    Ok(())
}
