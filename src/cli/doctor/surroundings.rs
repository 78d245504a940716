//! What an incident needs beside its sources: limits, flags, alerts, the journal, the user's adapters.

use std::path::Path;
use std::time::Duration;

use crate::cli::board;
use crate::cli::config::{FlagStoreKind, Loaded};
use crate::flag::StoreError;
use crate::gateway::{self, GatewayConfig};
use crate::ingest::{Access, Adapters, FOLDER, TransportError};

use super::finding::Finding;

/// Adapters of the user, which nothing may name yet, and which must load on the night that one does.
pub fn adapters(adapters: &Adapters, config: &Path) -> Finding {
    const WHAT: &str = "adapters";
    let folder = config.parent().unwrap_or(Path::new("")).join(FOLDER);
    let known = adapters.names();
    let broken = known.iter().find_map(|name| adapters.get(name).err());
    match broken {
        Some(error) => Finding::error(WHAT, error),
        None if folder.is_dir() => {
            let said = format!("{} load, those in {} included", known.len(), folder.display());
            Finding::good(WHAT, said)
        }
        None => Finding::good(WHAT, format!("{} ship with weir", known.len())),
    }
}

/// Scopes whose limits are not written: their headroom is known only where a provider says it.
pub fn scopes(file: &Loaded) -> Vec<Finding> {
    const WHAT: &str = "scopes";
    let scopes = &file.toml.scopes;
    if scopes.is_empty() {
        let said = "no [[scope]]: limits are known only where a source tells them";
        let next = "add [[scope]] with `name`, `owner`, and `rpm` or `tpm`";
        return vec![Finding::note(WHAT, said, next)];
    }
    let bare: Vec<&str> = scopes
        .iter()
        .filter(|scope| !scope.is_limited())
        .map(|scope| scope.name.as_str())
        .collect();
    let ownerless: Vec<&str> = scopes
        .iter()
        .filter(|scope| scope.owner.is_none())
        .map(|scope| scope.name.as_str())
        .collect();
    let mut findings = Vec::new();
    if let Err(error) = gateway::scopes(scopes) {
        findings.push(Finding::error(WHAT, file.refused(&error)));
    }
    let store = file.toml.gateway.as_ref().map_or(Ok(()), GatewayConfig::check);
    if let Err(error) = store {
        findings.push(Finding::error(WHAT, file.refused(&error)));
    }
    if !bare.is_empty() {
        let said = format!("without a limit: {}", bare.join(", "));
        findings.push(Finding::note(WHAT, said, "add `rpm` or `tpm`, as the contract says"));
    }
    if !ownerless.is_empty() {
        let said = format!("nobody answers for: {}", ownerless.join(", "));
        findings.push(Finding::note(WHAT, said, "add `owner`: who raises its quota at night"));
    }
    if findings.is_empty() {
        findings.push(Finding::good(WHAT, format!("{} with limits and owners", scopes.len())));
    }
    findings
}

/// Whether flags can be read, and what their store cannot do. Nothing is changed to find out more.
pub async fn flags(file: &Loaded) -> Vec<Finding> {
    const WHAT: &str = "flags";
    let (store, kind) = match (file.flag_store(), &file.toml.flags) {
        (Ok(Some(store)), Some(entry)) => (store, entry.kind),
        (Ok(_), _) => {
            let next = "add [flags] with `url` and `token_env` to flip from the dashboard";
            return vec![Finding::note(WHAT, "no [flags]: the dashboard only watches", next)];
        }
        (Err(error), _) => return vec![Finding::error(WHAT, error)],
    };
    let name = store.name();
    let read = match store.list().await {
        Ok(table) if file.toml.read_only => {
            let said = format!("{name} has {} flags; `read_only` is set", table.flags.len());
            Finding::note(WHAT, said, "remove `read_only` to change them from here")
        }
        Ok(table) => Finding::good(WHAT, format!("{name} has {} flags", table.flags.len())),
        Err(error) => Finding::wrong(WHAT, error.to_string(), remedy(kind, &error)),
    };
    let lacks = store.capabilities().lacks();
    let able = if lacks.is_empty() {
        Finding::good(WHAT, "the store lacks nothing: lock, timer, history, values in use, reasons")
    } else {
        let next = "the plan says so again where it matters";
        Finding::note(WHAT, format!("the store lacks: {}", lacks.join("; ")), next)
    };
    vec![read, able]
}

/// What to do when the flags of a store cannot be read.
const fn remedy(kind: FlagStoreKind, error: &StoreError) -> &'static str {
    use FlagStoreKind::{Envoy, Etcd, Flagd, Litellm, Unleash, Weir};
    match (kind, error) {
        (_, StoreError::File { .. }) | (Flagd, _) => {
            "name the file in `flags.file`, and let weir read it"
        }
        (Weir, StoreError::Refused { status: 401 | 403, .. }) => {
            "give [flags] the token of the gateway's `admin_token_env`"
        }
        (Weir, StoreError::Refused { .. } | StoreError::Malformed { .. }) => {
            "name the gateway's `admin_listen` address in `flags.url`"
        }
        (Weir, _) => "start the gateway, or correct `flags.url`",
        (Etcd, StoreError::Refused { .. }) => {
            "correct `flags.user` and its password; the user needs `readwrite` on the namespace"
        }
        (Etcd, _) => "correct `flags.url`: it takes etcd's client address, 3.4 or newer",
        (Unleash, StoreError::Refused { status: 401 | 403, .. }) => {
            "give [flags] an admin or personal token of Unleash, not an SDK token"
        }
        (Unleash, StoreError::Refused { .. }) => {
            "correct `flags.project`, `flags.environment` and `flags.prefix`"
        }
        (Unleash, _) => "correct `flags.url`, and see whether Unleash is up",
        (Envoy, StoreError::Refused { .. }) => {
            "correct `flags.layer`, or add an admin layer to `layered_runtime`"
        }
        (Litellm, _) => "name a store that can hold flags in `flags.kind`",
        (Envoy, _) => "correct `flags.instances`: each is the admin port of an Envoy that is up",
    }
}

/// Whether Alertmanager answers, where one is configured.
pub async fn alertmanager(file: &Loaded, timeout: Duration) -> Option<Finding> {
    const WHAT: &str = "alertmanager";
    let (url, access) = match file.alertmanager() {
        Ok(configured) => configured?,
        Err(error) => {
            return Some(Finding::error(WHAT, error));
        }
    };
    let next = "correct `alertmanager.url` or its access keys, or start it";
    Some(match status(&url, &access, timeout).await {
        Ok(200) => Finding::good(WHAT, format!("answers at {url}")),
        Ok(status) => Finding::wrong(WHAT, format!("answered HTTP {status} at {url}"), next),
        Err(why) => Finding::wrong(WHAT, format!("{url}: {why}"), next),
    })
}

/// The status of the v2 API's own status page.
async fn status(url: &str, access: &Access, timeout: Duration) -> Result<u16, String> {
    let client = access.client().map_err(|error| error.to_string())?;
    let page = format!("{}/api/v2/status", url.trim_end_matches('/'));
    let answer = access.apply(client.get(page)).timeout(timeout).send().await;
    let answer = answer.map_err(|error| TransportError::of(&error).to_string())?;
    Ok(answer.status().as_u16())
}

/// Whether flips can be written down; without that none is offered.
pub fn journal() -> Finding {
    const WHAT: &str = "journal";
    match board::journal() {
        Ok((journal, _)) => {
            Finding::good(WHAT, format!("can be written at {}", journal.path().display()))
        }
        Err(why) => {
            let next = "without it no flip is offered: free the place, or set XDG_STATE_HOME";
            Finding::wrong(WHAT, why, next)
        }
    }
}
