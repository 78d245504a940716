//! What the data plane takes from its configuration and can change while it runs: callers, times, sizes, and
//! which request is counted on which scope. A request that is under way keeps what it has read.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::caller::Callers;
use crate::admission::ScopeId;
use crate::dialect::Provider;
use crate::gateway::config::{GatewayConfig, KeyConfig, ScopeEntry};

/// The terms of one reading of the configuration.
pub struct Terms {
    /// What stands in for the callers' own key.
    pub(super) upstream_key: Option<(HeaderName, HeaderValue)>,
    pub(super) attempt_timeout: Duration,
    pub(super) default_deadline: Duration,
    pub(super) body_max: usize,
    /// Says 402 where the account's quota is spent for good.
    pub(super) payment_required: bool,
    pub(super) by_model: BTreeMap<String, ScopeId>,
    pub(super) other_models: Option<ScopeId>,
    /// Scopes by name, for APIs whose requests name no model.
    pub(super) by_name: BTreeMap<String, ScopeId>,
    /// Whose dialect answers are read in, by scope.
    dialects: Vec<Provider>,
    pub(super) callers: Callers,
}

impl Terms {
    /// The terms of a checked configuration. `keys` are the values of the configured callers' keys.
    #[must_use]
    pub fn new(
        config: &GatewayConfig,
        scopes: &[ScopeEntry],
        keys: &[(KeyConfig, String)],
        upstream_key: Option<(HeaderName, HeaderValue)>,
    ) -> Self {
        let mut by_model = BTreeMap::new();
        let mut other_models = None;
        for (place, scope) in scopes.iter().enumerate() {
            if scope.models.is_empty() {
                other_models = Some(ScopeId(place));
            }
            by_model.extend(scope.models.iter().map(|model| (model.clone(), ScopeId(place))));
        }
        let named = |(place, scope): (usize, &ScopeEntry)| (scope.name.clone(), ScopeId(place));
        let dialect = |scope: &ScopeEntry| scope.dialect().unwrap_or(Provider::GENERIC);
        Self {
            upstream_key,
            attempt_timeout: config.attempt_timeout(),
            default_deadline: config.default_deadline(),
            body_max: config.body_max,
            payment_required: config.payment_required,
            by_model,
            other_models,
            by_name: scopes.iter().enumerate().map(named).collect(),
            dialects: scopes.iter().map(dialect).collect(),
            callers: Callers::new(keys),
        }
    }

    /// Whose dialect the answers of a scope are read in.
    pub(super) fn dialect(&self, scope: ScopeId) -> Provider {
        self.dialects.get(scope.0).copied().unwrap_or(Provider::GENERIC)
    }
}
