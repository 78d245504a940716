//! Why a recording cannot be read, written or made.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a recording cannot be read or written.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The system refused.
    #[error("recording {}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is at that place already.
    #[error("recording {}: there is a file already; name another one, none is overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is being written by another weir.
    #[error("recording {}: another weir writes to it; wait until that has ended", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{} is no recording: {what}; `weir watch --record` and `weir drill --record` make one",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it begins with, in words.
        what: String,
    },
    /// It was made by a weir that is newer than this.
    #[error(
        "recording {}: its format is {version}, and this weir reads {}: use a newer weir",
        path.display(),
        super::frame::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u8,
    },
    /// Some bytes are not those that were written.
    #[error(
        "recording {}, byte {offset}: {why}; `weir recording cut --to {}s` keeps what is before it",
        path.display(),
        whole_until.as_secs_f64()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the bad frame begins.
        offset: u64,
        /// What is wrong.
        why: String,
        /// Until when it is whole.
        whole_until: Duration,
    },
    /// It ends before anything was seen.
    #[error("recording {}: it ends before the first look; nothing can be shown", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A moment that it does not hold.
    #[error(
        "recording {}: nothing at {}s; it holds {}s to {}s",
        path.display(),
        at.as_secs_f64(),
        from.as_secs_f64(),
        to.as_secs_f64()
    )]
    Outside {
        /// The file.
        path: PathBuf,
        /// The moment.
        at: Duration,
        /// Its first look.
        from: Duration,
        /// Its last look.
        to: Duration,
    },
    /// A source that cannot be read as it was.
    #[error("recording {}: source `{name}`: {why}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The source.
        name: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// It has grown as large or as long as a recording may be.
    #[error("recording {}: {limit} is the most, so it has ended here; the screen goes on", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The limit that was reached.
        limit: String,
    },
}
