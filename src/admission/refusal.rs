//! What the gate says when it refuses: which limit of which scope, when to come back, how to change it.

use std::time::Duration;

use super::shared::Binding;
use crate::dialect::Meter;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The token budget is spent for longer than the queue may hold a request.
    QuotaTokens,
    /// The same for a meter of one kind of tokens.
    QuotaInputTokens,
    /// The same for the tokens of answers.
    QuotaOutputTokens,
    /// A meter of the day is spent.
    QuotaDay,
    /// The request budget is spent for longer than the queue may hold a request.
    QuotaRequests,
    /// All permits are taken for longer than the queue may hold a request.
    Concurrency,
    /// The provider asked the whole scope to wait for longer than that.
    Paused,
    /// The queue is full.
    QueueFull,
    /// It waited longer than `queue.max_age_s`, or its deadline came.
    QueueExpired,
    /// The breaker is open.
    Breaker,
    /// The account is exhausted, and the breaker open for that.
    AccountDead,
    /// It cannot be answered before its caller's deadline.
    Deadline,
    /// The same original is already under way.
    InProgress,
    /// The original has used up its attempts.
    Attempts,
    /// The scope has used up its retry budget, and this is a repeat.
    RetryBudget,
    /// Larger than one request may be. It will never fit.
    TooLarge,
    /// Its lane is switched off.
    LaneOff,
    /// Its tenant uses more than its share.
    TenantCap,
    /// The shared budget cannot be reached, and this lane does not work without it.
    StoreLost,
    /// The gate is going down.
    Draining,
}

impl Reason {
    /// The reason for which a meter refuses.
    #[must_use]
    pub const fn of(meter: Meter) -> Self {
        match meter {
            Meter::Requests | Meter::RequestsPerSecond => Self::QuotaRequests,
            Meter::InputTokens => Self::QuotaInputTokens,
            Meter::OutputTokens => Self::QuotaOutputTokens,
            Meter::RequestsPerHour
            | Meter::RequestsPerDay
            | Meter::TokensPerDay
            | Meter::RequestsPerMonth
            | Meter::TokensPerMonth => Self::QuotaDay,
            Meter::Concurrency => Self::Concurrency,
            Meter::Tokens | Meter::Spend => Self::QuotaTokens,
        }
    }

    /// The reason for which the keeper of the scope's state lets nobody start.
    #[must_use]
    pub const fn bound_by(binding: Binding) -> Self {
        match binding {
            Binding::Meter(meter) => Self::of(meter),
            Binding::Pause => Self::Paused,
            Binding::Breaker => Self::Breaker,
        }
    }

    /// The label in metrics: the error code without `weir_`.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.code().trim_start_matches("weir_")
    }

    /// The error code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::QuotaTokens => "weir_quota_tokens",
            Self::QuotaInputTokens => "weir_quota_input_tokens",
            Self::QuotaOutputTokens => "weir_quota_output_tokens",
            Self::QuotaDay => "weir_quota_day",
            Self::QuotaRequests => "weir_quota_requests",
            Self::Concurrency => "weir_concurrency",
            Self::Paused => "weir_paused",
            Self::QueueFull => "weir_queue_full",
            Self::QueueExpired => "weir_queue_expired",
            Self::Breaker => "weir_breaker_open",
            Self::AccountDead => "weir_account_exhausted",
            Self::Deadline => "weir_deadline",
            Self::InProgress => "weir_original_in_progress",
            Self::Attempts => "weir_attempts_exhausted",
            Self::RetryBudget => "weir_retry_budget",
            Self::TooLarge => "weir_request_too_large",
            Self::LaneOff => "weir_lane_off",
            Self::TenantCap => "weir_tenant_cap",
            Self::StoreLost => "weir_store_lost",
            Self::Draining => "weir_draining",
        }
    }

    /// 429 where a quota or a share of it is the reason, 503 where the gate is overloaded.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::QueueFull
            | Self::QueueExpired
            | Self::Breaker
            | Self::AccountDead
            | Self::Deadline
            | Self::StoreLost
            | Self::Draining => 503,
            _ => 429,
        }
    }

    /// Whether time alone takes the reason away, so that the request may be put off.
    #[must_use]
    pub const fn passes(self) -> bool {
        !matches!(self, Self::TooLarge | Self::Attempts | Self::InProgress | Self::Draining)
    }

    /// Whether the same request could never succeed.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::TooLarge | Self::Attempts)
    }

    /// What happened and what to change, for the caller's log. `scope` is named in front of it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::QuotaTokens => {
                "tokens per minute are spent for longer than the queue may hold a request; send less, or raise the quota, admission.rate_factor or queue.max_age_s"
            }
            Self::QuotaRequests => {
                "requests per minute are spent for longer than the queue may hold a request; send fewer, or raise the quota, admission.rate_factor or queue.max_age_s"
            }
            Self::QuotaInputTokens => {
                "input tokens per minute are spent for longer than the queue may hold a request; send less, or raise the quota, admission.rate_factor or queue.max_age_s"
            }
            Self::QuotaOutputTokens => {
                "output tokens per minute are spent for longer than the queue may hold a request; ask for shorter answers (max_tokens), or raise the quota, admission.rate_factor or queue.max_age_s"
            }
            Self::QuotaDay => {
                "the day's quota is spent; it comes back with the provider's day, or raise the quota"
            }
            Self::Concurrency => {
                "all permits are in use for longer than the queue may hold a request; see admission.max_in_flight"
            }
            Self::Paused => {
                "the provider asked to wait for longer than the queue may hold a request"
            }
            Self::QueueFull => "the gate's queue is full; see queue.max_depth",
            Self::QueueExpired => {
                "the request waited in the gate's queue until it was too late to start; see queue.max_age_s"
            }
            Self::Breaker => {
                "the breaker is open because the provider fails; it probes by itself; see breaker.enabled"
            }
            Self::AccountDead => {
                "the provider says that the account is exhausted (spend, credit or a limit of the account); nothing passes until somebody raises it; it is probed by itself"
            }
            Self::Deadline => {
                "the provider takes longer than the caller waits; allow more time (x-weir-deadline-ms)"
            }
            Self::InProgress => {
                "the same request is already under way; wait for its answer instead of sending it again"
            }
            Self::Attempts => "this request has used up its attempts; see retry.max_attempts",
            Self::RetryBudget => {
                "retries have used up their share of the scope; see retry.budget_ratio"
            }
            Self::TooLarge => {
                "the request is larger than one request may be, or than the whole quota of a window, and will never pass; split it, or see admission.max_request_tokens and the scope's limits"
            }
            Self::LaneOff => "batch work is switched off; see lane.batch.enabled",
            Self::TenantCap => "the tenant uses more than its share; see tenant.cap_ratio",
            Self::StoreLost => {
                "the store of the shared budget cannot be reached and this lane does not work without it; see without_store of the scope"
            }
            Self::Draining => "this instance is going down; send it to another",
        }
    }
}

/// A refusal, ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The earliest time worth a new try; `None` when there is none to promise.
    pub retry_after: Option<Duration>,
    /// The client must not retry: the gate owns retries, or it is final.
    pub forbid_retry: bool,
}

impl Refusal {
    /// `Retry-After` in whole seconds, 1 to 59: several SDKs ignore 60 and more and come back at
    /// once.
    #[must_use]
    pub fn retry_after_header(&self) -> Option<u64> {
        let whole = |wait: Duration| wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.retry_after.map(|wait| whole(wait).clamp(1, 59))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_from_1_to_59() {
        for (wait_ms, header) in
            [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_000, 59), (600_000, 59)]
        {
            let refusal = Refusal {
                reason: Reason::QueueFull,
                retry_after: Some(Duration::from_millis(wait_ms)),
                forbid_retry: true,
            };
            assert_eq!(refusal.retry_after_header(), Some(header), "{wait_ms} ms");
        }
    }
}
