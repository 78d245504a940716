//! Standard output and standard error of every command: each write is checked, none panics.
//!
//! A reader of standard output that has gone (`| head -1`) is no failure, anything else is. A line for
//! a person on standard error that cannot be written is dropped: there is nowhere left to say so.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use color_eyre::eyre::eyre;
use thiserror::Error;

/// Standard output could not be written.
#[derive(Debug, Error)]
#[error("cannot write to standard output: {0}")]
pub struct OutputError(io::Error);

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

impl OutputError {
    /// Whether the reader has gone, which ends a command quietly.
    #[must_use]
    pub fn reader_left(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }

    /// Nothing when the reader has gone; for a command that has more to say than its output.
    ///
    /// # Errors
    /// Any other error, itself.
    pub fn unless_left(self) -> Result<(), Self> {
        if self.reader_left() { Ok(()) } else { Err(self) }
    }
}

/// Writes to standard output by `body`, and flushes.
///
/// # Errors
/// [`OutputError`] when not everything could be written.
pub fn write(body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
    let mut out = BufWriter::new(io::stdout().lock());
    body(&mut out)?;
    out.flush()?;
    Ok(())
}

/// Writes one line.
///
/// # Errors
/// As [`write`].
pub fn line(line: impl Display) -> Result<(), OutputError> {
    write(|out| writeln!(out, "{line}"))
}

/// Writes text that has its line ends.
///
/// # Errors
/// As [`write`].
pub fn text(text: &str) -> Result<(), OutputError> {
    write(|out| out.write_all(text.as_bytes()))
}

/// Says that a service listens. Here a reader who has left is a failure too: nobody knows the address.
///
/// # Errors
/// In words, when it could not be said.
pub fn ready(ready: &str) -> color_eyre::Result<()> {
    line(ready).map_err(|error| eyre!("nobody can be told that it listens: {error}"))
}

/// Says a line to a person, on standard error.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Asks a person on standard error and reads the line that is typed.
///
/// # Errors
/// When the question cannot be shown or nothing can be read.
pub fn ask(question: &str) -> io::Result<String> {
    let mut err = io::stderr();
    write!(err, "{question}").and_then(|()| err.flush())?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line)
}
