//! The file of a recording while it is written: whole frames at its end, or none.
//!
//! Makes a new file for its owner only, holds its lock, and takes back what could not be written whole.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::BYTES_MAX;
use super::error::RecordingError;

/// An open file.
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl FileWriter {
    /// Makes the file.
    ///
    /// # Errors
    /// [`RecordingError::Exists`] rather than write over anything.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let mut options = OpenOptions::new();
        let opened = options.append(true).create_new(true).mode(0o600).open(path);
        let file = opened.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
            _ => cannot("make it", path, source),
        })?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), file, bytes: 0 }),
            Err(TryLockError::WouldBlock) => Err(RecordingError::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(cannot("lock it", path, source)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long it is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends whole frames.
    ///
    /// # Errors
    /// When the disk is full or the file has become too long. Nothing of them is left behind then.
    pub fn append(&mut self, frames: &[u8]) -> Result<(), RecordingError> {
        let bytes = self.bytes + frames.len() as u64;
        if bytes > BYTES_MAX {
            let limit = format!("{} MiB", BYTES_MAX >> 20);
            return Err(RecordingError::Full { path: self.path.clone(), limit });
        }
        if let Err(source) = self.file.write_all(frames) {
            // Where even that fails a reader finds an unfinished frame, as after a crash.
            let _ = self.file.set_len(self.bytes);
            return Err(cannot("write it", &self.path, source));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn close(self) -> Result<(), RecordingError> {
        self.file.sync_all().map_err(|source| cannot("make it durable", &self.path, source))
    }
}

fn cannot(doing: &'static str, path: &Path, source: std::io::Error) -> RecordingError {
    RecordingError::Io { path: path.to_owned(), doing, source }
}
