//! The gate on a virtual clock: every test tells it events with their instants and reads its effects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::dialect::{Class, Meter, MeterReading};
use crate::signal::Mono;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn scope(rpm: Option<f64>, tpm: Option<f64>) -> ScopeConfig {
    ScopeConfig {
        rpm,
        tpm,
        max_attempts_configured: Some(3),
        policy: Policy { permits: Permits::Fixed, ..Policy::default() },
        ..ScopeConfig::named("test").with_buckets()
    }
}

const fn tokens(input: f64) -> Demand {
    Demand { input, output: 0.0 }
}

fn offer(identity: u128) -> Offer {
    Offer {
        scope: ScopeId(0),
        identity,
        lane: Lane::Interactive,
        tenant: Arc::from("t"),
        guess: tokens(300.0),
        backfill: false,
        weight: 1.0,
        repeatable: true,
        deferrable: false,
        deadline: None,
        retry_mark: 0,
    }
}

fn head(status: u16, class: Class, hint_ms: Option<u64>) -> Head {
    Head {
        status,
        class,
        hint: hint_ms.map(Duration::from_millis),
        code: Some("code".to_owned()),
        meter: (status == 429).then_some(Meter::Tokens),
        forbids_retry: false,
        meters: Vec::new(),
    }
}

fn throttled(hint_ms: u64) -> Head {
    head(429, Class::TransientRateLimit, Some(hint_ms))
}

/// A gate and what it has said, by request.
struct Bench {
    gate: Gate,
    effects: Vec<Effect>,
}

impl Bench {
    fn new(settings: Settings, scope: ScopeConfig) -> Self {
        Self { gate: Gate::new(vec![scope], settings, 7, Mono::START), effects: Vec::new() }
    }

    /// Enforcing, with budgets that have filled up for a second.
    fn enforcing() -> Self {
        Self::new(Settings::default(), scope(Some(6_000.0), Some(1_200_000.0)))
    }

    fn settle(&mut self) {
        while let Some(effect) = self.gate.poll_effect() {
            self.effects.push(effect);
        }
    }

    fn offer(&mut self, offer: &Offer, now: Mono) -> RequestId {
        let id = self.gate.handle_request(offer, now);
        self.settle();
        id
    }

    fn sent(&mut self, id: RequestId) -> Option<AttemptId> {
        self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Send { attempt } if attempt.request == id => Some(*attempt),
            _ => None,
        })
    }

    fn refusal(&self, id: RequestId) -> Option<Refusal> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Refuse { request, refusal } if *request == id => Some(*refusal),
            _ => None,
        })
    }

    fn delivered(&self, id: RequestId) -> Option<bool> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Deliver { request, forbid_retry, .. } if *request == id => Some(*forbid_retry),
            _ => None,
        })
    }

    fn answer(&mut self, id: RequestId, head: &Head, now: Mono) {
        let attempt = self.sent(id).expect("it was sent");
        self.gate.handle_sent(attempt, now);
        self.gate.handle_head(attempt, head, now);
        self.settle();
        if self.delivered(id).is_some() {
            self.gate.handle_end(id, Some(tokens(300.0)), now);
            self.settle();
        }
    }

    fn tick(&mut self, now: Mono) {
        self.gate.handle_timeout(now);
        self.settle();
        let next = self.gate.poll_timeout();
        assert!(next.is_none_or(|next| next > now), "the gate spins at {now:?}");
    }

    /// Follows every wake-up up to `end`.
    fn run_to(&mut self, end: Mono) {
        for _ in 0..100_000 {
            match self.gate.poll_timeout().filter(|next| *next <= end) {
                Some(next) => self.tick(next),
                None => return,
            }
        }
        panic!("the gate never went idle");
    }

    fn scope(&self) -> &Scope {
        &self.gate.scopes()[0]
    }
}

#[test]
fn switched_off_everything_passes_once_and_refusals_come_back_unchanged() {
    let off = Settings { mode: Mode::Off, ..Settings::default() };
    let mut bench = Bench::new(off, scope(Some(60.0), Some(60.0)));
    for identity in 0..500 {
        let id = bench.offer(&offer(identity), at(0.0));
        bench.answer(id, &throttled(5_000), at(0.1));
        assert_eq!(bench.delivered(id), Some(false), "delivered, and the client may retry");
    }
    let counters = bench.scope().counters();
    assert_eq!(counters.attempts(), 500);
    let refused: Vec<_> = counters.tenants().map(|(_, counts)| counts.refused).collect();
    assert_eq!(refused, [500], "the tenant was refused, whoever refused it");
    let failed: Vec<_> = counters.tenants().map(|(_, counts)| counts.failed).collect();
    assert_eq!(failed, [0], "a refusal is no error");
    while let Some(next) = bench.gate.poll_timeout() {
        assert!(next < at(1_200.0), "nothing is held, and what is remembered is forgotten");
        bench.gate.handle_timeout(next);
    }
}

#[test]
fn what_is_let_through_stays_within_the_quota_and_the_rest_hears_why() {
    let mut bench = Bench::enforcing();
    let mut identity = 0;
    // 180 a second for 30 s, each answered after 100 ms: the launch.
    for slot in 0..300 {
        let now = at(f64::from(slot) * 0.1);
        bench.run_to(now);
        for _ in 0..18 {
            identity += 1;
            bench.offer(&offer(identity), now);
        }
        let waiting: Vec<_> = bench
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { attempt } => Some(attempt.request),
                _ => None,
            })
            .filter(|id| bench.delivered(*id).is_none())
            .collect();
        for id in waiting {
            bench.answer(id, &head(200, Class::Success, None), now);
        }
    }
    let counters = bench.scope().counters();
    let rate = 20_000.0 * 0.98;
    assert!(counters.tokens_actual <= rate * 31.0, "{}", counters.tokens_actual);
    assert!(counters.tokens_actual >= rate * 28.0, "{}", counters.tokens_actual);
    let shed = counters.shed.total();
    assert!(shed > 2_000, "{shed}");
    assert!(
        counters
            .shed
            .iter()
            .all(|((_, reason), _)| { matches!(reason, Reason::QueueFull | Reason::QuotaTokens) })
    );
}

#[test]
fn a_throttle_pauses_the_scope_and_not_only_the_request() {
    let mut bench = Bench::enforcing();
    let first = bench.offer(&offer(1), at(1.0));
    bench.answer(first, &throttled(2_000), at(1.1));
    let second = bench.offer(&offer(2), at(1.2));
    assert_eq!(bench.sent(second), None, "nobody passes during the pause");
    bench.run_to(at(3.09));
    assert_eq!(bench.sent(second), None, "the hint is a minimum");
    bench.run_to(at(3.7));
    assert!(bench.sent(second).is_some(), "the pause has an end");
    assert_eq!(bench.sent(first).map(|attempt| attempt.number), Some(2), "the first goes again");
}

#[test]
fn attempts_end_at_the_maximum_and_the_client_is_told_to_stop() {
    let mut bench = Bench::enforcing();
    let id = bench.offer(&offer(1), at(1.0));
    bench.answer(id, &throttled(100), at(1.1));
    assert_eq!(bench.delivered(id), None);
    bench.run_to(at(2.5));
    bench.answer(id, &throttled(100), at(2.6));
    assert_eq!(bench.delivered(id), Some(true));
    let again = bench.offer(&offer(1), at(4.0));
    let refusal = bench.refusal(again).expect("a repeat spends its original's budget");
    assert_eq!((refusal.reason, refusal.forbid_retry), (Reason::Attempts, true));
}

#[test]
fn a_repeat_while_the_original_runs_is_refused_and_after_a_success_it_is_new() {
    let mut bench = Bench::enforcing();
    let first = bench.offer(&offer(1), at(1.0));
    let repeat = bench.offer(&offer(1), at(1.1));
    assert_eq!(bench.refusal(repeat).map(|r| r.reason), Some(Reason::InProgress));
    bench.answer(first, &head(200, Class::Success, None), at(1.2));
    let new = bench.offer(&offer(1), at(1.3));
    assert!(bench.sent(new).is_some());
    assert_eq!(bench.scope().counters().originals.total(), 2);
}

#[test]
fn a_hint_above_the_cap_is_final_for_the_request() {
    let mut bench = Bench::enforcing();
    let id = bench.offer(&offer(1), at(1.0));
    bench.answer(id, &throttled(9_000), at(1.1));
    assert_eq!(bench.delivered(id), Some(true));
    let counters = bench.scope().counters();
    assert_eq!(counters.retries_denied.of(Denied::Wait), 1);
}

#[test]
fn whoever_asks_again_waits_for_as_long_as_the_provider_wanted() {
    // An overload does not pause the scope: its hint is for the original that it was given to.
    let overloaded = head(503, Class::TemporaryOverload, Some(9_000));
    let mut bench = Bench::enforcing();
    let id = bench.offer(&offer(1), at(1.0));
    bench.answer(id, &overloaded, at(2.0));
    assert_eq!(bench.delivered(id), Some(true), "nine seconds are too long to wait inline");
    let again = bench.offer(&offer(1), at(4.0));
    bench.run_to(at(10.999));
    assert_eq!((bench.sent(again), bench.refusal(again)), (None, None), "it is kept waiting");
    bench.run_to(at(11.5));
    assert!(bench.sent(again).is_some(), "and starts when the wait is over");
    let settings = Settings { queue_max_age_s: 1.0, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(Some(6_000.0), Some(1_200_000.0)));
    let id = bench.offer(&offer(1), at(1.0));
    bench.answer(id, &overloaded, at(2.0));
    let again = bench.offer(&offer(1), at(4.0));
    let refusal = bench.refusal(again).expect("a queue of a second cannot hold it");
    assert_eq!(
        (refusal.reason, refusal.retry_after),
        (Reason::Paused, Some(Duration::from_secs(7)))
    );
}

#[test]
fn no_retry_starts_that_could_not_finish_before_the_deadline() {
    let mut bench = Bench::enforcing();
    let hurried = Offer { deadline: Some(at(3.0)), ..offer(1) };
    let id = bench.offer(&hurried, at(1.0));
    bench.answer(id, &throttled(3_000), at(1.1));
    assert_eq!(bench.delivered(id), Some(true), "a hint of 3 s does not fit a deadline of 2 s");
}

#[test]
fn permanent_refusals_are_never_retried_and_an_exhausted_account_opens_the_breaker() {
    for (status, class) in
        [(401, Class::AuthOrPermission), (400, Class::BadRequest), (429, Class::PermanentQuota)]
    {
        let mut bench = Bench::enforcing();
        let id = bench.offer(&offer(1), at(1.0));
        bench.answer(id, &head(status, class, Some(10)), at(1.1));
        bench.run_to(at(30.0));
        assert_eq!(bench.delivered(id), Some(true), "{class}");
        let counters = bench.scope().counters();
        assert_eq!(counters.attempts(), 1, "{class}");
        let failed: Vec<_> = counters.tenants().map(|(_, counts)| counts.failed).collect();
        assert_eq!(failed, [u64::from(class != Class::PermanentQuota)], "{class}");
        let next = bench.offer(&offer(2), at(1.2));
        let refused = bench.refusal(next).map(|refusal| refusal.reason);
        let expected = (class == Class::PermanentQuota).then_some(Reason::AccountDead);
        assert_eq!(refused, expected, "{class}");
    }
}

#[test]
fn a_queued_request_expires_exactly_at_its_greatest_age() {
    let settings = Settings { queue_max_age_s: 2.0, max_in_flight: 1, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(Some(6_000.0), None));
    bench.offer(&offer(1), at(1.0));
    let waiting = bench.offer(&offer(2), at(1.5));
    let hurried = bench.offer(&Offer { deadline: Some(at(2.0)), ..offer(3) }, at(1.5));
    bench.run_to(at(1.999));
    assert_eq!(bench.refusal(hurried), None);
    bench.run_to(at(2.0));
    let reason = |bench: &Bench, id| bench.refusal(id).map(|refusal| refusal.reason);
    assert_eq!(reason(&bench, hurried), Some(Reason::QueueExpired), "its own deadline came first");
    bench.run_to(at(3.499));
    assert_eq!(reason(&bench, waiting), None);
    bench.run_to(at(3.5));
    assert_eq!(reason(&bench, waiting), Some(Reason::QueueExpired));
    assert_eq!(bench.scope().counters().expired.of(Stage::Queue), 2);
}

#[test]
fn a_client_that_owns_its_retries_is_not_counted_out() {
    let settings = Settings { retry_owner: RetryOwner::Client, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(Some(6_000.0), None));
    for round in 0..5 {
        let now = at(1.0 + f64::from(round));
        let id = bench.offer(&offer(1), now);
        bench.answer(id, &throttled(100), now);
        assert_eq!(bench.delivered(id), Some(false), "round {round}");
    }
}

#[test]
fn cancelling_at_any_stage_frees_everything() {
    let settings = Settings { max_in_flight: 1, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(Some(6_000.0), Some(1_200_000.0)));
    let upstream = bench.offer(&offer(1), at(1.0));
    let queued = bench.offer(&offer(2), at(1.0));
    let third = bench.offer(&offer(3), at(1.0));
    bench.gate.handle_cancel(queued, at(1.1));
    bench.settle();
    bench.gate.handle_cancel(upstream, at(1.2));
    bench.settle();
    let attempt = bench.sent(third).expect("its permit came free");
    bench.gate.handle_sent(attempt, at(1.3));
    bench.gate.handle_head(attempt, &head(200, Class::Success, None), at(1.4));
    bench.settle();
    bench.gate.handle_cancel(third, at(1.5));
    bench.settle();
    assert_eq!(bench.gate.open_requests(), 0);
    assert_eq!(bench.scope().in_flight(), 0);
    assert_eq!(bench.scope().counters().cancelled.total(), 3);
}

#[test]
fn settings_take_effect_on_what_waits() {
    let mut bench = Bench::enforcing();
    let ids: Vec<_> = (0..300).map(|n| bench.offer(&offer(n), at(1.0))).collect();
    assert!(ids.iter().any(|id| bench.sent(*id).is_none()), "some wait");
    let off = Settings { mode: Mode::Off, ..Settings::default() };
    bench.gate.apply(off, at(1.1));
    bench.settle();
    for id in ids {
        assert!(bench.sent(id).is_some() || bench.refusal(id).is_some());
    }
}

#[test]
fn switching_on_starts_from_an_empty_budget() {
    let off = Settings { mode: Mode::Off, ..Settings::default() };
    let mut bench = Bench::new(off, scope(None, Some(60_000.0)));
    bench.gate.apply(Settings::default(), at(10.0));
    bench.settle();
    let id = bench.offer(&offer(1), at(10.0));
    assert_eq!(bench.sent(id), None, "what went out unmetered has used the quota");
    bench.run_to(at(11.0));
    assert!(bench.sent(id).is_some());
}

#[test]
fn draining_refuses_what_waits_and_lets_the_rest_finish() {
    let settings = Settings { max_in_flight: 1, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(Some(6_000.0), None));
    let upstream = bench.offer(&offer(1), at(1.0));
    let queued = bench.offer(&offer(2), at(1.0));
    bench.gate.drain(at(1.1));
    bench.settle();
    assert_eq!(bench.refusal(queued).map(|r| r.reason), Some(Reason::Draining));
    let newcomer = bench.offer(&offer(3), at(1.2));
    assert_eq!(bench.refusal(newcomer).map(|r| r.reason), Some(Reason::Draining));
    bench.answer(upstream, &head(200, Class::Success, None), at(1.3));
    assert_eq!(bench.gate.open_requests(), 0);
}

#[test]
fn interactive_work_goes_first_and_batch_keeps_off_the_reserve() {
    let settings = Settings { interactive_reserved_ratio: 0.5, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(None, Some(60_000.0)));
    for identity in 0..20 {
        bench.offer(&Offer { lane: Lane::Batch, ..offer(identity) }, at(0.0));
    }
    bench.run_to(at(10.0));
    let admitted = bench.scope().counters().admitted[Lane::Batch];
    // Half of 980 tokens a second, for first guesses of 300.
    assert!((14..=18).contains(&admitted), "{admitted}");
}

#[test]
fn a_provider_with_less_than_we_thought_is_believed() {
    let mut bench = Bench::enforcing();
    let first = bench.offer(&offer(1), at(1.0));
    let mut seen = head(200, Class::Success, None);
    let reading = |remaining| MeterReading {
        meter: Meter::Tokens,
        limit: Some(1_200_000.0),
        remaining: Some(remaining),
        reset: None,
        window: None,
    };
    seen.meters = vec![reading(0.0)];
    bench.answer(first, &seen, at(1.1));
    let second = bench.offer(&offer(2), at(1.1));
    assert_eq!(bench.sent(second), None);
}

#[test]
fn the_enforced_share_is_by_identity() {
    let settings = Settings { enforced_ratio: 0.25, ..Settings::default() };
    let mut bench = Bench::new(settings, scope(None, Some(0.6)));
    let mut passed = 0;
    for n in 0..1_000_u128 {
        let identity = n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let id = bench.offer(&offer(identity), at(0.0));
        passed += u32::from(bench.sent(id).is_some());
    }
    assert!((700..=800).contains(&passed), "{passed} of 1000 passed");
}

#[derive(Clone, Debug)]
enum Move {
    Offer {
        identity: u8,
        batch: bool,
        deadline_s: Option<u8>,
    },
    Answer {
        pick: usize,
        status: u8,
        hint_ms: u16,
    },
    Fail {
        pick: usize,
    },
    Cancel {
        pick: usize,
    },
    /// Exactly to the next wake-up, the step in which an off-by-one hides.
    NextWake,
    Pass {
        ms: u16,
    },
    Flags {
        mode: u8,
        attempts: u8,
    },
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => (any::<u8>(), any::<bool>(), prop::option::of(1..20u8))
            .prop_map(|(identity, batch, deadline_s)| Move::Offer { identity, batch, deadline_s }),
        4 => (any::<usize>(), 0..4u8, any::<u16>())
            .prop_map(|(pick, status, hint_ms)| Move::Answer { pick, status, hint_ms }),
        1 => any::<usize>().prop_map(|pick| Move::Fail { pick }),
        1 => any::<usize>().prop_map(|pick| Move::Cancel { pick }),
        3 => Just(Move::NextWake),
        2 => (1..3_000u16).prop_map(|ms| Move::Pass { ms }),
        1 => (0..3u8, 1..5u8).prop_map(|(mode, attempts)| Move::Flags { mode, attempts }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_request_gets_one_answer_and_nothing_is_kept(script in prop::collection::vec(moves(), 1..200)) {
        let settings = Settings { max_in_flight: 4, queue_max_depth: 6, ..Settings::default() };
        let mut bench = Bench::new(settings.clone(), scope(Some(600.0), Some(120_000.0)));
        let mut now = Mono::START;
        let mut upstream: BTreeMap<RequestId, AttemptId> = BTreeMap::new();
        let mut open: Vec<RequestId> = Vec::new();
        let mut only_enforced = true;
        for step in script {
            match step {
                Move::Offer { identity, batch, deadline_s } => {
                    let lane = if batch { Lane::Batch } else { Lane::Interactive };
                    let deadline = deadline_s.map(|s| now + Duration::from_secs(u64::from(s)));
                    let id = bench.offer(&Offer { lane, deadline, ..offer(u128::from(identity)) }, now);
                    open.push(id);
                }
                Move::Answer { pick, status, hint_ms } => {
                    if let Some(id) = upstream.keys().nth(pick % upstream.len().max(1)).copied() {
                        let attempt = upstream.remove(&id).expect("picked from it");
                        let hint = Some(u64::from(hint_ms));
                        let answer = match status {
                            0 => head(200, Class::Success, None),
                            1 => head(429, Class::TransientRateLimit, hint),
                            2 => head(503, Class::TemporaryOverload, None),
                            _ => head(429, Class::PermanentQuota, None),
                        };
                        bench.gate.handle_sent(attempt, now);
                        bench.gate.handle_head(attempt, &answer, now);
                        bench.settle();
                    }
                }
                Move::Fail { pick } => {
                    if let Some(id) = upstream.keys().nth(pick % upstream.len().max(1)).copied() {
                        let attempt = upstream.remove(&id).expect("picked from it");
                        bench.gate.handle_failed(attempt, Ending::Transport, now);
                        bench.settle();
                    }
                }
                Move::Cancel { pick } => {
                    if !open.is_empty() {
                        let id = open.swap_remove(pick % open.len());
                        upstream.remove(&id);
                        bench.gate.handle_cancel(id, now);
                        bench.settle();
                    }
                }
                Move::NextWake => {
                    if let Some(next) = bench.gate.poll_timeout() {
                        now = now.max(next);
                        bench.tick(now);
                    }
                }
                Move::Pass { ms } => {
                    now = now + Duration::from_millis(u64::from(ms));
                    bench.run_to(now);
                }
                Move::Flags { mode, attempts } => {
                    let mode = [Mode::Enforce, Mode::Shadow, Mode::Off][usize::from(mode)];
                    only_enforced &= mode == Mode::Enforce;
                    let settings = Settings { mode, retry_max_attempts: u32::from(attempts), ..settings.clone() };
                    bench.gate.apply(settings, now);
                    bench.settle();
                }
            }
            for effect in std::mem::take(&mut bench.effects) {
                match effect {
                    Effect::Send { attempt } => {
                        prop_assert!(open.contains(&attempt.request), "sent after its answer");
                        upstream.insert(attempt.request, attempt);
                    }
                    Effect::Deliver { request, .. } => {
                        prop_assert!(open.contains(&request), "answered twice");
                        open.retain(|id| *id != request);
                        bench.gate.handle_end(request, Some(tokens(250.0)), now);
                    }
                    Effect::Refuse { request, .. } => {
                        prop_assert!(open.contains(&request), "answered twice");
                        open.retain(|id| *id != request);
                    }
                    other => prop_assert!(false, "{other:?} without a keeper or a later"),
                }
            }
            bench.settle();
            for effect in std::mem::take(&mut bench.effects) {
                // What followed from the ends above.
                match effect {
                    Effect::Send { attempt } => { upstream.insert(attempt.request, attempt); }
                    Effect::Deliver { request, .. } => {
                        open.retain(|id| *id != request);
                        bench.gate.handle_end(request, None, now);
                        bench.settle();
                    }
                    Effect::Refuse { request, .. } => open.retain(|id| *id != request),
                    other => prop_assert!(false, "{other:?} without a keeper or a later"),
                }
            }
            if only_enforced {
                prop_assert!(bench.scope().in_flight() <= 4);
            }
        }
        for id in open {
            bench.gate.handle_cancel(id, now);
            bench.settle();
        }
        prop_assert_eq!(bench.gate.open_requests(), 0);
        prop_assert_eq!(bench.scope().in_flight(), 0);
        prop_assert!(bench.scope().queue().is_empty());
    }
}

#[test]
fn quotas_change_under_what_is_open_and_what_waits() {
    let slow = scope(Some(60.0), None);
    let mut bench = Bench::new(Settings::default(), slow.clone());
    let open = bench.offer(&offer(1), at(2.0));
    assert!(bench.sent(open).is_some());
    let waits = bench.offer(&offer(2), at(2.0));
    assert!(bench.sent(waits).is_none() && bench.refusal(waits).is_none());

    let other = ScopeConfig::named("another").with_buckets();
    assert_eq!(bench.gate.reconfigure(vec![other], at(2.1)), Err(OtherScopes));
    assert_eq!(bench.gate.reconfigure(Vec::new(), at(2.1)), Err(OtherScopes));
    bench.settle();
    assert!(bench.sent(waits).is_none(), "nothing has changed");

    // A faster quota, a new meter, other permits, another way to charge.
    let policy = Policy { permits: Permits::Aimd, ..slow.policy.clone() };
    let fast = ScopeConfig {
        rpm: Some(60_000.0),
        tpm: Some(60_000_000.0),
        counts_max_tokens: true,
        policy,
        ..slow.clone()
    };
    bench.gate.reconfigure(vec![fast], at(2.2)).expect("the same scope");
    bench.gate.handle_timeout(at(2.3));
    bench.settle();
    assert!(bench.sent(waits).is_some(), "at the new rate");
    for id in [open, waits] {
        bench.answer(id, &head(200, Class::Success, None), at(2.4));
        assert!(bench.delivered(id).is_some());
    }
    let scope = &bench.gate.scopes()[0];
    assert_eq!(bench.gate.open_requests(), 0);
    assert!(scope.budget().meter(Meter::Tokens).is_some(), "the new meter counts");

    // And back: of what was saved up, the slow meter's one request is left.
    bench.gate.reconfigure(vec![slow], at(2.5)).expect("the same scope");
    let [first, second] = [3, 4].map(|identity| bench.offer(&offer(identity), at(2.5)));
    assert!(bench.sent(first).is_some() && bench.sent(second).is_none());
}
