//! Which store `weir flag` speaks to, and where the evidence for its guards comes from.
//!
//! As `weir watch` does: the store of `-c FILE`, else of `weir.toml` in this folder. An admin API that
//! is named, on the command line or in the environment, comes before a file that is only there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{WrapErr, bail};
use serde::Serialize;

use super::Connection;
use crate::cli::config::{self, Place};
use crate::cli::{live, out};
use crate::flag::{Capabilities, Store, Token, WeirAdmin};
use crate::signal::Snapshot;

/// The admin API where nothing else is said.
const ADMIN_URL: &str = "http://127.0.0.1:9901";
/// The environment variable that names another.
pub(super) const ADMIN_URL_ENV: &str = "WEIR_ADMIN_URL";
/// The environment variable with the second token, which passes interlocks.
const GLASS_ENV: &str = "WEIR_BREAK_GLASS_TOKEN";
/// The file that is read where it is there.
const FILE: &str = "weir.toml";
/// How long the sources are watched for evidence: rates need two looks.
const LOOK: Duration = Duration::from_secs(3);

/// A store, and who knows the signals.
pub(super) struct Reached {
    pub(super) store: Arc<dyn Store>,
    /// The environment, where a file names it.
    pub(super) environment: Option<String>,
    witness: Witness,
}

/// Who knows the signals that guards ask for.
enum Witness {
    /// The store itself.
    Admin(Arc<WeirAdmin>),
    /// The sources of this file.
    Sources(PathBuf),
    /// Nobody, and why.
    Nobody(&'static str),
}

/// The store as it stands in a document.
#[derive(Serialize)]
pub(super) struct StoreBody {
    name: String,
    lacks: Vec<&'static str>,
}

/// A document, and the store that it is about.
#[derive(Serialize)]
pub(super) struct Of<T> {
    #[serde(flatten)]
    pub(super) body: T,
    pub(super) store: StoreBody,
}

impl Reached {
    pub(super) fn body(&self) -> StoreBody {
        let lacks = self.able().lacks();
        StoreBody { name: self.store.name().to_owned(), lacks }
    }

    /// A document about this store.
    pub(super) fn of<T>(&self, body: T) -> Of<T> {
        Of { body, store: self.body() }
    }

    /// Whether its interlocks can be passed at all.
    pub(super) const fn has_glass(&self) -> bool {
        matches!(self.witness, Witness::Admin(_))
    }

    /// Why they cannot be passed, where they cannot.
    pub(super) fn no_glass(&self) -> String {
        format!(
            "--break-glass needs weir's own admin API, which checks the second token and keeps what \
             was passed; {} does neither",
            self.store.name()
        )
    }

    /// The same store, whose every change passes interlocks for the reason `why`, with the second token
    /// of a file or of the environment.
    ///
    /// # Errors
    /// When the store knows no second token, or none is given, or no reason.
    pub(super) fn breaking(
        &self,
        token_file: Option<&Path>,
        why: &str,
    ) -> color_eyre::Result<Arc<dyn Store>> {
        let Witness::Admin(admin) = &self.witness else { bail!(self.no_glass()) };
        if why.trim().is_empty() {
            bail!("--break-glass needs a reason; it stands in the history for good");
        }
        let token = match token_file {
            Some(file) => read_token(file)?,
            None => std::env::var(GLASS_ENV).unwrap_or_default(),
        };
        if token.trim().is_empty() {
            bail!(
                "--break-glass needs the gateway's second token: set {GLASS_ENV}, or name a file \
                 with --break-glass-token-file"
            );
        }
        Ok(Arc::new(WeirAdmin::clone(admin).breaking_glass(Token::new(&token), why.trim())))
    }

    pub(super) fn able(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// The newest snapshots, one per scope. Without any, guards are unknown: that refuses what is risky
    /// and nothing else.
    pub(super) async fn scopes(&self) -> Vec<Arc<Snapshot>> {
        let told = match &self.witness {
            Witness::Admin(admin) => admin.snapshots().await.map_err(|error| error.to_string()),
            Witness::Sources(path) => live::look(path, LOOK, |_| {})
                .await
                .map(|observation| observation.scopes.clone())
                .map_err(|error| error.to_string()),
            Witness::Nobody(why) => Err((*why).to_owned()),
        };
        told.unwrap_or_else(|error| {
            out::note(format_args!("weir: guards cannot be told: {error}"));
            Vec::new()
        })
    }
}

/// Finds the store. Asks it nothing yet.
///
/// # Errors
/// When the file or an address is wrong, or there is no token.
pub(super) fn reach(connection: &Connection) -> color_eyre::Result<Reached> {
    let Connection { url, token_file, config, .. } = connection;
    let names_admin = url.is_some() || token_file.is_some();
    if let Some(path) = config {
        let from_environment = std::env::var(ADMIN_URL_ENV).ok();
        if token_file.is_some() || *url != from_environment {
            bail!("-c FILE names a store, and so do --url and --token-file; give one of them");
        }
        if let Some(reached) = of_file(path)? {
            return Ok(reached);
        }
        let remedy = "add [flags], or leave -c out and name --url";
        return Err(config::load(path)?.wrong("flags", "there is none, so no store", remedy));
    }
    let usual = Path::new(FILE);
    if !names_admin
        && usual.is_file()
        && let Some(reached) = of_file(usual)?
    {
        return Ok(reached);
    }
    let url = url.as_deref().unwrap_or(ADMIN_URL);
    Ok(of_admin(admin(url, token_file.as_deref())?))
}

fn of_admin(admin: WeirAdmin) -> Reached {
    let admin = Arc::new(admin);
    let store = Arc::clone(&admin) as Arc<dyn Store>;
    Reached { store, environment: None, witness: Witness::Admin(admin) }
}

/// The store of a file, if it names one.
fn of_file(path: &Path) -> color_eyre::Result<Option<Reached>> {
    let loaded = config::load(path)?;
    let reached = |place| match place {
        Place::Weir(admin) => of_admin(*admin),
        Place::Other(store) if loaded.toml.sources.is_empty() => {
            let why = "the store tells no signals, and the file has no [[source]]";
            Reached { store, environment: None, witness: Witness::Nobody(why) }
        }
        Place::Other(store) => {
            Reached { store, environment: None, witness: Witness::Sources(path.to_owned()) }
        }
    };
    let environment = Some(loaded.environment_name());
    Ok(loaded.flag_place()?.map(|place| Reached { environment, ..reached(place) }))
}

/// The admin API at `url`, with the token of a file or of the environment.
///
/// # Errors
/// When there is no token, or the address is none.
pub(in crate::cli) fn admin(url: &str, token_file: Option<&Path>) -> color_eyre::Result<WeirAdmin> {
    let token = match token_file {
        Some(file) => read_token(file)?,
        // Not an option: what stands in an argument list is seen by everyone on the machine.
        None => std::env::var("WEIR_ADMIN_TOKEN").unwrap_or_default(),
    };
    if token.trim().is_empty() {
        match token_file {
            Some(file) => bail!("the token file {} is empty", file.display()),
            None => bail!(
                "WEIR_ADMIN_TOKEN is not set; set it, name a file with --token-file, or a store \
                 with -c FILE"
            ),
        }
    }
    Ok(WeirAdmin::new(url, Token::new(&token))?)
}

fn read_token(file: &Path) -> color_eyre::Result<String> {
    std::fs::read_to_string(file)
        .wrap_err_with(|| format!("cannot read the token file {}", file.display()))
}
