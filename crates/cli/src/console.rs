//! Where output goes: the process's own streams, or buffers in tests.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
#[cfg(test)]
use std::sync::{Arc, Mutex};

/// Standard output and standard error of one command.
pub(crate) struct Console {
    /// What was asked for.
    pub(crate) out: Box<dyn Write + Send>,
    /// What a person should know besides.
    pub(crate) err: Box<dyn Write + Send>,
    /// Whether `out` is a terminal.
    pub(crate) is_terminal: bool,
    /// Whether to colour `out`.
    pub(crate) color: bool,
    /// Whether `out` has a YAML document already.
    has_yaml: bool,
}

/// Whether to colour what goes to this stream.
pub(crate) fn is_colored(stream: &impl IsTerminal) -> bool {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    wants_color(
        stream.is_terminal(),
        &variable("NO_COLOR"),
        &variable("TERM"),
    )
}

/// Only a terminal that knows colours gets them, and none when `NO_COLOR` is set to anything.
fn wants_color(is_terminal: bool, no_color: &OsStr, term: &OsStr) -> bool {
    is_terminal && no_color.is_empty() && term != "dumb"
}

impl Console {
    /// The process's streams.
    pub(crate) fn of_process() -> Self {
        let stdout = io::stdout();
        let (is_terminal, color) = (stdout.is_terminal(), is_colored(&stdout));
        Self {
            out: Box::new(io::BufWriter::new(io::stdout())),
            err: Box::new(io::stderr()),
            is_terminal,
            color,
            has_yaml: false,
        }
    }

    /// Buffers, to be read through the returned handles.
    #[cfg(test)]
    pub(crate) fn captured() -> (Self, Captured, Captured) {
        let (out, err) = (Captured::default(), Captured::default());
        let console = Self {
            out: Box::new(out.clone()),
            err: Box::new(err.clone()),
            is_terminal: false,
            color: false,
            has_yaml: false,
        };
        (console, out, err)
    }

    /// A line on standard output.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", text.as_ref())
    }

    /// Writes a YAML document. Every later one is set off from the one before, so that all of them are one stream.
    pub(crate) fn yaml(&mut self, document: &str) -> io::Result<()> {
        if self.has_yaml {
            self.line("---")?;
        }
        self.has_yaml = true;
        self.out.write_all(document.as_bytes())
    }

    /// A line on standard error. That it cannot be written is nobody's loss.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        let _ = self.out.flush();
        let _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// `Warning: ...` lines, as kubectl prints a server's warnings.
    pub(crate) fn warnings(&mut self, warnings: &[String]) {
        for warning in warnings {
            self.note(format!("Warning: {warning}"));
        }
    }

    /// Sends what is buffered on its way: before waiting for more.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A shared buffer.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
    /// What was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[cfg(test)]
impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .map_err(|_| io::Error::other("a writer panicked"))?
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_knows_colours_gets_them() {
        let wants = |is_terminal, no_color: &str, term: &str| {
            wants_color(is_terminal, no_color.as_ref(), term.as_ref())
        };
        assert!(wants(true, "", "xterm-256color"));
        assert!(!wants(false, "", "xterm-256color"));
        assert!(!wants(true, "1", "xterm-256color"));
        assert!(!wants(true, "", "dumb"));
    }
}
