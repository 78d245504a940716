//! Takes over what has changed in the configuration while the gateway runs. Opens and closes no socket, and
//! loses nothing of what is counted, open or waiting.

use std::fmt::Debug;
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
        self.shell.with(|gate, now| gate.reconfigure(gate_scopes, now)).map_err(|error| {
            let remedy = "restart the gateway to add, remove, rename or reorder scopes";
            ConfigError::new("scope", error.to_string(), remedy)
        })?;
        self.proxy.take(terms);
        let settings = self.admin.rebase(base);
        self.shell.with(|gate, now| gate.apply(settings, now));
        self.admin.config_revision.store(config.revision(scopes), Ordering::Relaxed);
        self.admin.config_taken.store(true, Ordering::Relaxed);
        Ok(self.stays(config))
    }

    /// Counts that what was read is not in force, for whoever could not even read it or was refused.
    pub fn refused(&self) {
        self.admin.config_taken.store(false, Ordering::Relaxed);
    }

    /// What has changed and cannot be taken over. Every key is named here or there: a new one does not
    /// compile until somebody has said which it is.
    fn stays(&self, config: &GatewayConfig) -> Vec<&'static str> {
        let GatewayConfig {
            instance,
            listen,
            admin_listen,
            upstream,
            admin_token_env,
            admin_tokens,
            admin_requests_per_s,
            break_glass_token_env,
            break_glass_token_file,
            tls,
            transport,
            store,
            deferred,
            state_file,
            seed,
            drill,
            faults,
            // Taken over.
            upstream_key_env: _,
            attempt_timeout_s: _,
            default_deadline_s: _,
            body_max: _,
            payment_required: _,
            keys: _,
            flags: _,
        } = config;
        let was = &self.begun_with;
        let pairs: [(&str, &dyn Debug, &dyn Debug); 17] = [
            ("gateway.instance", instance, &was.instance),
            ("gateway.listen", listen, &was.listen),
            ("gateway.admin_listen", admin_listen, &was.admin_listen),
            ("gateway.upstream", upstream, &was.upstream),
            ("gateway.admin_token_env", admin_token_env, &was.admin_token_env),
            ("gateway.admin_token", admin_tokens, &was.admin_tokens),
            ("gateway.admin_requests_per_s", admin_requests_per_s, &was.admin_requests_per_s),
            ("gateway.break_glass_token_env", break_glass_token_env, &was.break_glass_token_env),
            ("gateway.break_glass_token_file", break_glass_token_file, &was.break_glass_token_file),
            ("gateway.tls", tls, &was.tls),
            ("gateway.transport", transport, &was.transport),
            ("gateway.store", store, &was.store),
            ("gateway.deferred", deferred, &was.deferred),
            ("gateway.state_file", state_file, &was.state_file),
            ("gateway.seed", seed, &was.seed),
            ("gateway.drill", drill, &was.drill),
            ("gateway.faults", faults, &was.faults),
        ];
        let differs = |(_, new, old): &(_, _, _)| format!("{new:?}") != format!("{old:?}");
        pairs.into_iter().filter(differs).map(|(key, ..)| key).collect()
    }
}
