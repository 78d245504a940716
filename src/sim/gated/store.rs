//! The store of a budget that several instances share, on the virtual clock: it takes its time and may fail.
//!
//! The rules are those of `admission`'s pool. What an instance asks comes back through [`Store::due`],
//! as an answer or as none, when it is time.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::admission::{
    AttemptId, Claim, Demand, Mirror, Pool, Report, ScopeConfig, ScopeId, StoreCounters, Verdict,
};
use crate::signal::Mono;
use crate::sim::gate::{GateFaults, HELD_VERDICT};
use crate::sim::rng;

/// How long a healthy store takes for a decision: two hops within a data centre.
const HEALTHY: Duration = Duration::from_millis(1);
/// An instance waits no longer for a decision; the gateway's own default.
const DECISION_MAX: Duration = Duration::from_millis(45);

#[derive(Debug)]
enum Question {
    Claim { attempt: AttemptId, claim: Box<Claim> },
    Report(Box<Report>),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    /// The answer would come too late.
    TimedOut,
    Failed,
}

#[derive(Debug)]
struct Exchange {
    instance: usize,
    scope: ScopeId,
    question: Question,
    asked: Mono,
    fate: Fate,
}

/// What comes back to an instance; `None` where there is no answer.
#[derive(Debug)]
pub(super) enum Told {
    Verdict { attempt: AttemptId, demand: Demand, answer: Option<(Verdict, Mirror)> },
    Mirror(Option<Mirror>),
}

/// The store, with what is under way to it.
#[derive(Debug)]
pub(super) struct Store {
    /// By scope, for each group of instances that share.
    pools: Vec<Vec<Pool>>,
    under_way: BTreeMap<(Mono, u64), Exchange>,
    numbered: u64,
    random: Pcg64,
    faults: GateFaults,
    counters: Vec<StoreCounters>,
}

impl Store {
    /// One for all instances, or one each where they do not share.
    pub(super) fn new(
        scopes: &[ScopeConfig],
        instances: usize,
        shared: bool,
        faults: GateFaults,
        seed: u64,
    ) -> Self {
        let groups = if shared { 1 } else { instances };
        let pools = || scopes.iter().map(|scope| Pool::new(&scope.name, Mono::START)).collect();
        Self {
            pools: (0..groups).map(|_| pools()).collect(),
            under_way: BTreeMap::new(),
            numbered: 0,
            random: rng::seeded(seed, rng::Stream::Store),
            faults,
            counters: vec![StoreCounters::default(); instances],
        }
    }

    pub(super) fn claim(
        &mut self,
        instance: usize,
        scope: ScopeId,
        attempt: AttemptId,
        claim: Box<Claim>,
        now: Mono,
    ) {
        self.ask(instance, scope, Question::Claim { attempt, claim }, now);
    }

    pub(super) fn report(
        &mut self,
        instance: usize,
        scope: ScopeId,
        report: Box<Report>,
        now: Mono,
    ) {
        self.ask(instance, scope, Question::Report(report), now);
    }

    /// How the instance's questions were answered.
    pub(super) fn counters(&self, instance: usize) -> &StoreCounters {
        &self.counters[instance]
    }

    /// When the next answer comes, or is given up.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// What comes back to which instance by `now`.
    pub(super) fn due(&mut self, now: Mono) -> Option<(usize, ScopeId, Told)> {
        self.next_due().filter(|at| *at <= now)?;
        let ((at, _), exchange) = self.under_way.pop_first()?;
        let Exchange { instance, scope, question, asked, fate } = exchange;
        let counters = &mut self.counters[instance];
        match fate {
            Fate::Answered => counters.answered(at.saturating_since(asked)),
            Fate::TimedOut => counters.timed_out(at.saturating_since(asked)),
            Fate::Failed => counters.failed(),
        }
        let told = self.decide(instance, scope, question, fate, at);
        Some((instance, scope, told))
    }

    fn ask(&mut self, instance: usize, scope: ScopeId, question: Question, now: Mono) {
        let fault = self.faults.store_now(now);
        let takes = HEALTHY + fault.map_or(Duration::ZERO, |fault| fault.latency());
        let error_ratio = fault.map_or(0.0, |fault| fault.error_ratio);
        let fails = error_ratio > 0.0 && self.random.random::<f64>() < error_ratio;
        let fate = match takes {
            _ if fails => Fate::Failed,
            takes if takes > DECISION_MAX => Fate::TimedOut,
            _ => Fate::Answered,
        };
        let wait = if fails { HEALTHY } else { takes.min(DECISION_MAX) };
        self.numbered += 1;
        let exchange = Exchange { instance, scope, question, asked: now, fate };
        self.under_way.insert((now + wait, self.numbered), exchange);
    }

    /// A question that timed out has reached the store all the same, one that failed has not.
    fn decide(
        &mut self,
        instance: usize,
        scope: ScopeId,
        question: Question,
        fate: Fate,
        now: Mono,
    ) -> Told {
        let group = if self.pools.len() == 1 { 0 } else { instance };
        let pool = &mut self.pools[group][scope.0];
        let name = instance_name(instance);
        let is_heard = matches!(fate, Fate::Answered);
        let reaches = !matches!(fate, Fate::Failed);
        match question {
            Question::Claim { attempt, claim } => {
                let demand = claim.demand;
                let held = self.faults.held_breaker(&claim.rules, now);
                // Whom the breaker holds back asks for nothing.
                let answer = reaches.then(|| match held {
                    None => pool.claim(&name, &claim, now),
                    Some((held, left)) => {
                        let mirror = pool.report(&name, &claim.idle_report(), now);
                        (HELD_VERDICT, held.in_mirror(mirror, left))
                    }
                });
                let answer = answer.filter(|_| is_heard);
                Told::Verdict { attempt, demand, answer }
            }
            Question::Report(report) => {
                let held = self.faults.held_breaker(&report.rules, now);
                let mirror = reaches.then(|| pool.report(&name, &report, now));
                Told::Mirror(mirror.filter(|_| is_heard).map(|mirror| match held {
                    None => mirror,
                    Some((held, left)) => held.in_mirror(mirror, left),
                }))
            }
        }
    }
}

/// The name under which an instance is known to the store.
pub(super) fn instance_name(instance: usize) -> String {
    format!("instance-{instance}")
}
