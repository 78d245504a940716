//! The shares of lanes and tenants within a scope: what they are measured by, and what is left of them.

use std::time::Duration;

use super::{Scope, TENANTS_MAX};
use crate::admission::bucket::Bucket;
use crate::admission::config::ScopeConfig;
use crate::admission::queue::{Ahead, Lane, TenantId, Ticket};
use crate::admission::settings::Settings;
use crate::signal::Mono;

impl Scope {
    /// What lanes are measured by, per second: tokens where they are limited, else requests.
    pub(super) fn lane_rate(&self) -> Option<f64> {
        let ScopeConfig { tpm, input_tpm, rpm, .. } = &self.config;
        tpm.or(*input_tpm).or(*rpm).map(|per_minute| per_minute / 60.0)
    }

    /// What one request takes of a lane's share.
    pub(in crate::admission) fn lane_amount(&self, tokens: f64) -> f64 {
        if self.is_by_tokens() { tokens } else { 1.0 }
    }

    /// Whether lanes are measured by tokens.
    pub(super) const fn is_by_tokens(&self) -> bool {
        self.config.tpm.is_some() || self.config.input_tpm.is_some()
    }

    /// Takes a request that starts off its lane's share.
    pub(in crate::admission) fn debit_lane(&mut self, ticket: &Ticket, now: Mono) {
        let amount = self.lane_amount(ticket.tokens);
        if ticket.lane == Lane::Batch
            && let Some(batch) = &mut self.batch
        {
            batch.take(amount, now);
        }
        if ticket.backfill
            && let Some(backfill) = &mut self.backfill
        {
            backfill.take(amount, now);
        }
    }

    /// Time until a lane's own share allows a request behind others of it; `None` when never.
    pub(super) fn lane_wait(&self, ticket: &Ticket, ahead: &Ahead, now: Mono) -> Option<Duration> {
        let ahead = if self.is_by_tokens() { ahead.tokens } else { ahead.requests };
        let mut wait = Duration::ZERO;
        let lanes = [
            self.batch.as_ref().filter(|_| ticket.lane == Lane::Batch),
            self.backfill.as_ref().filter(|_| ticket.backfill),
        ];
        for bucket in lanes.into_iter().flatten() {
            wait = wait.max(bucket.wait(self.lane_amount(ticket.tokens), ahead, now)?);
        }
        Some(wait)
    }

    /// Debits a tenant's share; false when it has none left.
    pub(in crate::admission) fn tenant_has_share(
        &mut self,
        tenant: TenantId,
        tokens: f64,
        settings: &Settings,
        now: Mono,
    ) -> bool {
        let Some(rate) = self.lane_rate().filter(|_| settings.tenant_cap_ratio < 1.0) else {
            return true;
        };
        let amount = self.lane_amount(tokens);
        let known = self.tenants.contains_key(&tenant) || self.tenants.len() < TENANTS_MAX;
        let key = if known { tenant } else { TenantId(u32::MAX) };
        let share = settings.rate_factor * settings.tenant_cap_ratio * self.instance_share();
        let rate = rate * share;
        let bucket =
            self.tenants.entry(key).or_insert_with(|| Bucket::new(rate, self.config.burst, now));
        let slack = rate * settings.queue_max_age_s;
        if bucket.level(now) + slack < amount {
            return false;
        }
        bucket.take(amount, now);
        true
    }

    /// Every tenant begins anew: the cap is another.
    pub(in crate::admission) fn forget_tenant_shares(&mut self) {
        self.tenants.clear();
    }
}
