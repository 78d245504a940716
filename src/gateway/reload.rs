//! Takes over what has changed in the configuration while the gateway runs. Opens and closes no socket, and
//! loses nothing of what is counted, open or waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admin::Admin;
use super::config::{ConfigError, GatewayConfig, ScopeEntry};
use super::proxy::{Proxy, Terms};
use super::server;
use super::shell::Shell;

/// What can take over a new configuration for a gateway that runs.
pub struct Reloader {
    pub(super) begun_with: GatewayConfig,
    pub(super) proxy: Arc<Proxy>,
    pub(super) admin: Arc<Admin>,
    pub(super) shell: Arc<Shell>,
}

impl Reloader {
    /// Takes over callers, keys, times, sizes, base values of flags, and the limits and models of scopes.
    /// Returns the keys that differ from those of the start and stay as they were until a restart.
    ///
    /// # Errors
    /// [`ConfigError`] names the key; nothing has changed then.
    pub fn take(
        &self,
        config: &GatewayConfig,
        scopes: &[ScopeEntry],
    ) -> Result<Vec<&'static str>, ConfigError> {
        config.check()?;
        let gate_scopes = server::gate_scopes(config, scopes)?;
        let base = config.base_settings()?;
        let keys = server::callers_keys(config)?;
        let terms = Terms::new(config, scopes, &keys, server::upstream_key(config, scopes)?);
        let now = self.shell.now();
        self.shell.with(|gate, _| gate.reconfigure(gate_scopes, now)).map_err(|error| {
            let remedy = "restart the gateway to add, remove, rename or reorder scopes";
            ConfigError::new("scope", error.to_string(), remedy)
        })?;
        self.proxy.take(terms);
        let settings = self.admin.rebase(base);
        self.shell.with(|gate, now| gate.apply(settings, now));
        self.admin.config_revision.store(config.revision(scopes), Ordering::Relaxed);
        Ok(self.stays(config))
    }

    /// What has changed and cannot be taken over.
    fn stays(&self, config: &GatewayConfig) -> Vec<&'static str> {
        let was = &self.begun_with;
        let differs = |one: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| {
            format!("{one:?}") != format!("{other:?}")
        };
        let all = [
            ("gateway.instance", was.instance != config.instance),
            ("gateway.listen", was.listen != config.listen),
            ("gateway.admin_listen", was.admin_listen != config.admin_listen),
            ("gateway.upstream", differs(&was.upstream, &config.upstream)),
            ("gateway.admin_token_env", was.admin_token_env != config.admin_token_env),
            ("gateway.admin_token", differs(&was.admin_tokens, &config.admin_tokens)),
            (
                "gateway.break_glass_token_env",
                was.break_glass_token_env != config.break_glass_token_env,
            ),
            (
                "gateway.break_glass_token_file",
                was.break_glass_token_file != config.break_glass_token_file,
            ),
            ("gateway.tls", differs(&was.tls, &config.tls)),
            ("gateway.transport", differs(&was.transport, &config.transport)),
            ("gateway.store", differs(&was.store, &config.store)),
            ("gateway.deferred", differs(&was.deferred, &config.deferred)),
            ("gateway.state_file", was.state_file != config.state_file),
            ("gateway.faults", differs(&was.faults, &config.faults)),
        ];
        all.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}
