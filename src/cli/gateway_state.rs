//! What `weir gateway` keeps in the user's state directory when its file names no other place: the
//! overrides and the admin token. One gateway of a name at a time, or they would mix.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use color_eyre::eyre::{Result, WrapErr as _, bail};

use crate::incident;

/// The files of one instance, held as long as this lives.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    instance: String,
    _lock: File,
}

impl State {
    /// Takes the files of `instance`; `None`, and a loud word, when they cannot be written.
    ///
    /// # Errors
    /// When another gateway of that name runs.
    pub fn claim(instance: &str) -> Result<Option<Self>> {
        let instance = file_name(instance);
        let opened = folder().and_then(|folder| {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&folder)?;
            let lock = folder.join(format!("gateway-{instance}.lock"));
            let lock = private().truncate(false).open(lock)?;
            Ok((folder, lock))
        });
        let (folder, lock) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!(
                    %error,
                    "OVERRIDES OF FLAGS WILL NOT SURVIVE A RESTART: there is no `gateway.state_file`, \
                     and the state directory cannot be written"
                );
                return Ok(None);
            }
        };
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { folder, instance, _lock: lock })),
            Err(TryLockError::WouldBlock) => bail!(
                "another gateway `{instance}` runs on this machine and keeps its overrides in {}; \
                 give this one another `gateway.instance`",
                folder.display()
            ),
            Err(TryLockError::Error(error)) => Err(error).wrap_err("cannot lock the overrides"),
        }
    }

    /// The file of the overrides.
    #[must_use]
    pub fn overrides(&self) -> PathBuf {
        self.folder.join(format!("gateway-{}.json", self.instance))
    }

    /// Writes the admin token to `named`, else beside the overrides, for its owner only.
    ///
    /// # Errors
    /// When it cannot be written; nobody could then change a flag.
    pub fn write_token(
        state: Option<&Self>,
        named: Option<PathBuf>,
        token: &str,
    ) -> Result<PathBuf> {
        let own =
            || state.map(|state| state.folder.join(format!("gateway-{}.token", state.instance)));
        let Some(path) = named.or_else(own) else {
            bail!(
                "no place for the admin token; name one with --token-file, or set `admin_token_env`"
            );
        };
        put(&path, token).wrap_err_with(|| {
            let file = path.display();
            format!("cannot write the admin token to {file}; name another with --token-file")
        })?;
        Ok(path)
    }
}

/// Replaces the file, so that one that others could read does not keep its mode.
fn put(path: &Path, token: &str) -> io::Result<()> {
    let new = path.with_extension("token-new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private().create_new(true).open(&new)?.write_all(token.as_bytes())?;
    std::fs::rename(&new, path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn folder() -> io::Result<PathBuf> {
    let journal = incident::default_path().map_err(io::Error::other)?;
    Ok(journal.parent().map_or_else(PathBuf::new, Path::to_owned))
}

/// The instance's name with everything replaced that a file name should not hold.
fn file_name(instance: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    instance.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect()
}
