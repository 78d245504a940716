//! Gate and keeper together, message by message: what is asked, what is obeyed, and what happens while
//! nobody answers.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::admission::events::{Head, ScopeId};
use crate::admission::keeping::Keeping;
use crate::admission::pool::Pool;
use crate::admission::queue::Lane;
use crate::admission::shared::{Claim, Mirror, Outcome, Report, Verdict};
use crate::admission::{Binding, Policy, WithoutStore};
use crate::dialect::{Class, Meter, MeterReading};

const SCOPE: ScopeId = ScopeId(0);
const TOKENS: Demand = Demand { input: 300.0, output: 0.0 };

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// A gate whose claims and reports are looked at one by one, and the pool that may answer them.
struct Kept {
    gate: Gate,
    pool: Pool,
    claims: Vec<(AttemptId, Claim)>,
    reports: Vec<Report>,
    sent: Vec<AttemptId>,
    refused: Vec<(RequestId, Reason)>,
    identities: u128,
}

impl Kept {
    fn new(config: ScopeConfig) -> Self {
        let gate = Gate::new(vec![config], Settings::default(), 7, Mono::START);
        Self {
            gate: gate.with_keeper(Mono::START),
            pool: Pool::new("s", Mono::START),
            claims: Vec::new(),
            reports: Vec::new(),
            sent: Vec::new(),
            refused: Vec::new(),
            identities: 0,
        }
    }

    fn with_tpm(tpm: f64) -> Self {
        Self::new(ScopeConfig { tpm: Some(tpm), ..ScopeConfig::named("s").with_buckets() })
    }

    fn offer(&mut self, lane: Lane, now: Mono) -> RequestId {
        self.identities += 1;
        let offer = Offer {
            scope: SCOPE,
            identity: self.identities << 64,
            lane,
            backfill: false,
            tenant: Arc::from("t"),
            weight: 1.0,
            guess: TOKENS,
            repeatable: true,
            deferrable: false,
            deadline: None,
            retry_mark: 0,
        };
        let id = self.gate.handle_request(&offer, now);
        self.drain();
        id
    }

    fn drain(&mut self) {
        while let Some(effect) = self.gate.poll_effect() {
            match effect {
                Effect::Claim { attempt, claim, .. } => self.claims.push((attempt, *claim)),
                Effect::Report { report, .. } => self.reports.push(*report),
                Effect::Send { attempt } => self.sent.push(attempt),
                Effect::Refuse { request, refusal } => self.refused.push((request, refusal.reason)),
                Effect::Deliver { .. } | Effect::Defer { .. } => {}
            }
        }
    }

    /// The pool answers the oldest claim.
    fn answer_claim(&mut self, now: Mono) -> Verdict {
        let (attempt, claim) = self.claims.remove(0);
        let (verdict, mirror) = self.pool.claim("a", &claim, now);
        self.verdict(attempt, claim.demand, Some((verdict, mirror)), now);
        verdict
    }

    /// Nobody answers the oldest claim.
    fn lose_claim(&mut self, now: Mono) {
        let (attempt, claim) = self.claims.remove(0);
        self.verdict(attempt, claim.demand, None, now);
    }

    fn verdict(
        &mut self,
        attempt: AttemptId,
        demand: Demand,
        answer: Option<(Verdict, Mirror)>,
        now: Mono,
    ) {
        self.gate.handle_verdict(attempt, SCOPE, demand, answer, now);
        self.drain();
    }

    /// The pool answers every report, or nobody does.
    fn answer_reports(&mut self, answers: bool, now: Mono) {
        for report in std::mem::take(&mut self.reports) {
            let mirror = answers.then(|| self.pool.report("a", &report, now));
            self.gate.handle_mirror(SCOPE, mirror, now);
            self.drain();
        }
    }

    /// Handles timeouts up to `until`; reports are answered or not as they come.
    fn run(&mut self, until: Mono, answers: bool) {
        while let Some(next) = self.gate.poll_timeout().filter(|next| *next <= until) {
            self.gate.handle_timeout(next);
            self.drain();
            self.answer_reports(answers, next);
        }
    }

    fn head(&mut self, attempt: AttemptId, head: &Head, now: Mono) {
        self.gate.handle_sent(attempt, now);
        self.gate.handle_head(attempt, head, now);
        self.drain();
    }

    fn scope(&self) -> &Scope {
        &self.gate.scopes()[0]
    }

    /// Nothing is held by anybody.
    fn assert_empty(&self) {
        assert_eq!(self.gate.open_requests(), 0);
        assert_eq!(self.scope().in_flight(), 0);
        assert!(self.scope().queue().is_empty());
        assert_eq!(self.scope().keeping().map(Keeping::asked), Some(0));
    }
}

fn good(meters: Vec<MeterReading>) -> Head {
    Head {
        status: 200,
        class: Class::Success,
        hint: None,
        code: None,
        meter: None,
        forbids_retry: false,
        meters,
    }
}

#[test]
fn nothing_starts_without_a_grant_and_what_it_cost_is_settled_at_the_end() {
    let mut kept = Kept::with_tpm(60_000.0);
    prime(&mut kept);
    let id = kept.offer(Lane::Interactive, at(2.0));
    assert!(kept.sent.is_empty(), "the keeper is asked first");
    assert!(matches!(kept.answer_claim(at(2.001)), Verdict::Granted(_)));
    let attempt = kept.sent[0];
    let reading = MeterReading { remaining: Some(5_000.0), ..MeterReading::unknown(Meter::Tokens) };
    kept.head(attempt, &good(vec![reading]), at(2.5));
    let said = kept.reports.pop().expect("the outcome is told with the head");
    assert_eq!((said.outcome, said.charged), (Outcome::Good, Some(said.reserved)));
    assert_eq!(said.readings, [reading], "and so is what the headers say");
    let used = Demand { input: 120.0, output: 0.0 };
    kept.gate.handle_end(id, Some(used), at(9.0));
    kept.drain();
    let settled = kept.reports.pop().expect("and the bill at the end");
    assert_eq!((settled.outcome, settled.charged), (Outcome::Neither, Some(used)));
    assert_eq!(settled.in_flight, 0);
    kept.assert_empty();
}

/// Sets the pool's meters up, so that their paces are full a second later.
fn prime(kept: &mut Kept) {
    let gone = kept.offer(Lane::Interactive, Mono::START);
    let (_, claim) = kept.claims.pop().expect("it asks");
    let attempt = AttemptId { request: gone, number: 1 };
    kept.gate.handle_cancel(gone, Mono::START);
    kept.drain();
    let mirror = kept.pool.report("setup", &claim.idle_report(), Mono::START);
    let why = Binding::Pause;
    let wait = Verdict::Wait { at_least: Duration::ZERO, why };
    kept.verdict(attempt, claim.demand, Some((wait, mirror)), Mono::START);
    kept.assert_empty();
}

#[test]
fn whoever_left_while_it_was_asked_for_gives_the_grant_back() {
    let mut kept = Kept::with_tpm(60_000.0);
    prime(&mut kept);
    let id = kept.offer(Lane::Interactive, at(2.0));
    kept.gate.handle_cancel(id, at(2.001));
    kept.drain();
    assert!(matches!(kept.answer_claim(at(2.002)), Verdict::Granted(_)));
    assert!(kept.sent.is_empty(), "nothing is sent for somebody who has gone");
    let back = kept.reports.pop().expect("it is given back");
    assert!(back.receipt.is_some() && back.charged.is_none());
    kept.assert_empty();
}

#[test]
fn a_grant_that_comes_too_late_is_given_back_and_so_is_one_that_comes_while_draining() {
    for drains in [false, true] {
        let mut kept = Kept::with_tpm(60_000.0);
        prime(&mut kept);
        kept.offer(Lane::Interactive, at(2.0));
        if drains {
            kept.gate.drain(at(2.001));
        }
        let late = if drains { at(2.002) } else { at(20.0) };
        assert!(matches!(kept.answer_claim(late), Verdict::Granted(_)));
        assert!(kept.sent.is_empty(), "drains: {drains}");
        let back = kept.reports.first().expect("it is given back");
        assert!(back.receipt.is_some() && back.charged.is_none());
        let reason = if drains { Reason::Draining } else { Reason::QueueExpired };
        kept.run(at(21.0), true);
        assert_eq!(kept.refused.last().map(|(_, why)| *why), Some(reason));
        kept.assert_empty();
    }
}

#[test]
fn switched_off_while_asked_for_it_passes() {
    let mut kept = Kept::with_tpm(60_000.0);
    prime(&mut kept);
    for _ in 0..3 {
        kept.offer(Lane::Interactive, at(5.0));
        kept.answer_claim(at(5.0));
    }
    kept.offer(Lane::Interactive, at(5.001));
    let off = Settings { mode: Mode::Off, ..Settings::default() };
    kept.gate.apply(off, at(5.002));
    kept.drain();
    assert!(matches!(kept.answer_claim(at(5.003)), Verdict::Wait { .. }));
    assert_eq!(kept.sent.len(), 4);
}

#[test]
fn a_silent_keeper_leaves_a_local_share_to_one_lane_and_nothing_to_the_other() {
    let mut kept = Kept::with_tpm(1_200_000.0);
    prime(&mut kept);
    let batch = kept.offer(Lane::Batch, at(5.0));
    kept.lose_claim(at(5.05));
    assert!(kept.scope().keeping().is_some_and(|keeping| keeping.lost_since().is_some()));
    assert!(kept.refused.is_empty(), "one lost answer empties no queue");
    let another = kept.offer(Lane::Batch, at(5.1));
    assert_eq!(kept.refused, [(another, Reason::StoreLost)]);
    kept.offer(Lane::Interactive, at(5.2));
    assert_eq!(kept.sent.len(), 1, "interactive work goes on at once");
    kept.run(at(6.5), false);
    assert_eq!(kept.refused.last(), Some(&(batch, Reason::StoreLost)), "still nobody there");
}

#[test]
fn it_is_asked_whether_it_is_back_without_any_traffic() {
    let policy = Policy { interactive_without_store: WithoutStore::Closed, ..Policy::default() };
    let config =
        ScopeConfig { tpm: Some(1_200_000.0), policy, ..ScopeConfig::named("s").with_buckets() };
    let mut kept = Kept::new(config);
    prime(&mut kept);
    kept.offer(Lane::Interactive, at(5.0));
    kept.lose_claim(at(5.05));
    kept.run(at(8.0), false);
    assert_eq!(kept.refused.len(), 1);
    kept.run(at(10.0), true);
    assert!(kept.scope().keeping().is_some_and(|keeping| keeping.lost_since().is_none()));
    kept.offer(Lane::Interactive, at(10.1));
    assert!(matches!(kept.answer_claim(at(10.2)), Verdict::Granted(_)));
    assert_eq!(kept.sent.len(), 1);
}

#[test]
fn a_denied_batch_claim_keeps_no_interactive_one_from_asking() {
    let mut kept = Kept::with_tpm(60_000.0);
    prime(&mut kept);
    for _ in 0..3 {
        kept.offer(Lane::Interactive, at(5.0));
        kept.answer_claim(at(5.0));
    }
    kept.offer(Lane::Batch, at(5.01));
    assert!(matches!(kept.answer_claim(at(5.02)), Verdict::Wait { .. }), "98 of 1,000 are left");
    assert!(kept.claims.is_empty(), "it was told to wait");
    kept.offer(Lane::Interactive, at(5.03));
    assert_eq!(kept.claims.len(), 1);
}

#[test]
fn where_calls_are_counted_one_claim_goes_at_a_time() {
    let config = ScopeConfig {
        tpm: Some(1_200_000.0),
        concurrency: Some(3),
        ..ScopeConfig::named("s").with_buckets()
    };
    let mut kept = Kept::new(config);
    prime(&mut kept);
    for _ in 0..5 {
        kept.offer(Lane::Interactive, at(5.0));
    }
    for open in 0..3 {
        assert_eq!((kept.claims.len(), kept.claims[0].1.in_flight), (1, open));
        assert!(matches!(kept.answer_claim(at(5.1)), Verdict::Granted(_)));
    }
    let Verdict::Wait { why, .. } = kept.answer_claim(at(5.1)) else { panic!("three are open") };
    assert_eq!(why, Binding::Meter(Meter::Concurrency));
    assert_eq!(kept.sent.len(), 3);
}

#[test]
fn a_long_call_renews_the_lease() {
    let mut kept = Kept::with_tpm(1_200_000.0);
    prime(&mut kept);
    kept.offer(Lane::Interactive, at(5.0));
    kept.answer_claim(at(5.0));
    let lease = Policy::default().lease;
    let mut heard = Vec::new();
    while let Some(next) = kept.gate.poll_timeout().filter(|next| *next < at(40.0)) {
        kept.gate.handle_timeout(next);
        kept.drain();
        if !kept.reports.is_empty() {
            assert_eq!(kept.reports[0].in_flight, 1);
            heard.push(next);
            kept.answer_reports(true, next);
        }
    }
    let longest = heard.windows(2).map(|pair| pair[1].saturating_since(pair[0])).max();
    assert!(longest.is_some_and(|longest| longest < lease), "{longest:?}");
}
