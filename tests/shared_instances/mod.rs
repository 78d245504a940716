//! Several gates with one keeper and one provider on a virtual clock: what passes between them takes
//! time, answers may overtake each other, and the keeper may be silent. Writes down what must not happen.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use weir::admission::{
    AttemptId, Claim, Demand, Effect, Gate, Head, Lane, Mirror, Offer, Outcome as Ended, Pool,
    Report, RequestId, Rules, ScopeConfig, ScopeId, Settings, Verdict,
};
use weir::dialect::{Class, Meter};
use weir::signal::{Mono, Tokens};
use weir::sim::config::ProviderConfig;
use weir::sim::provider::{Call, CallKind, Outcome, Provider, Reply};

/// How long a gate waits for the keeper.
pub const DECISION: Duration = Duration::from_millis(45);
/// The longest way to the keeper, and back, and to the provider, in seconds.
const WAY_S: f64 = 0.003;
const SCOPE: ScopeId = ScopeId(0);

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub instances: usize,
    pub scope: ScopeConfig,
    pub settings: Settings,
    /// `provider.toml`
    pub provider: String,
    /// Requests per second that each instance is offered.
    pub offered: f64,
    pub tokens: Range<u32>,
    pub batch_ratio: f64,
    /// Seconds that a caller waits.
    pub patience_s: Range<f64>,
    /// Share of callers who leave before.
    pub leaving_ratio: f64,
    /// When the keeper answers nobody.
    pub silent_s: Option<Range<f64>>,
    /// Share of the exchanges with the keeper that are lost on their way there, and as many back.
    pub loss_ratio: f64,
    /// When the provider throttles the next call, and for how long.
    pub throttle: Option<(Mono, Duration)>,
    /// Seconds of traffic.
    pub traffic_s: f64,
    pub seed: u64,
}

type Key = (usize, RequestId);

#[derive(Clone, Copy, Debug)]
struct Asked {
    tokens: u32,
    deadline: Mono,
}

enum Event {
    Arrival(usize),
    Departure(Key),
    Claimed(usize, AttemptId, Box<Claim>),
    Decided(usize, AttemptId, Demand, Option<(Verdict, Mirror)>),
    Reported(usize, Box<Report>),
    Noted(usize, Option<Mirror>),
    Called(usize, AttemptId, u32),
    Answered(usize, AttemptId, Reply),
}

/// A call as it reached the provider.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub at: Mono,
    pub instance: usize,
    pub tokens: f64,
}

/// The world.
pub struct World {
    plan: Plan,
    pub gates: Vec<Gate>,
    pub pool: Pool,
    provider: Provider,
    random: Pcg64Mcg,
    events: BTreeMap<(Mono, u64), Event>,
    numbered: u64,
    /// When the last message of each instance comes to the keeper.
    last_to_keeper: Vec<Mono>,
    now: Mono,
    asked: BTreeMap<Key, Asked>,
    gone: BTreeSet<Key>,
    throttle: Option<(Mono, Duration)>,
    /// When the provider throttled.
    pub throttled: Option<Mono>,
    /// Calls that the provider served.
    pub served: Vec<Arrived>,
    /// Claims and reports that the keeper heard.
    pub exchanges: u64,
    /// When each attempt left its gate.
    pub sent: Vec<Mono>,
    open: u32,
    /// Most calls that were open at the provider at a time.
    pub open_max: u32,
    /// Calls that the provider's meters refused.
    pub refused: u64,
    /// What must not happen, in words.
    pub breaches: Vec<String>,
}

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

impl World {
    pub fn new(plan: &Plan) -> Self {
        let config: ProviderConfig = toml::from_str(&plan.provider).expect("it fits the types");
        let gate = |seed: u64| {
            Gate::new(vec![plan.scope.clone()], plan.settings.clone(), seed, Mono::START)
                .with_keeper(Mono::START)
        };
        let mut world = Self {
            gates: (0..plan.instances as u64).map(|number| gate(plan.seed ^ number)).collect(),
            pool: Pool::new(&plan.scope.name, Mono::START),
            provider: Provider::new(&config, plan.seed, Mono::START),
            random: Pcg64Mcg::seed_from_u64(plan.seed),
            events: BTreeMap::new(),
            numbered: 0,
            last_to_keeper: vec![Mono::START; plan.instances],
            now: Mono::START,
            asked: BTreeMap::new(),
            gone: BTreeSet::new(),
            throttle: plan.throttle,
            throttled: None,
            served: Vec::new(),
            exchanges: 0,
            sent: Vec::new(),
            open: 0,
            open_max: 0,
            refused: 0,
            breaches: Vec::new(),
            plan: plan.clone(),
        };
        for gate in 0..plan.instances {
            world.next_arrival(gate);
        }
        world
    }

    /// Plays the traffic and what follows from it, until nothing is left to do.
    pub fn play(mut self) -> Self {
        // Whoever asks last waits and is served within this.
        let end = at(self.plan.traffic_s + self.plan.patience_s.end + 30.0);
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let due = self.gates.iter().filter_map(Gate::poll_timeout).min();
            let Some(next) = event.into_iter().chain(due).min().filter(|next| *next <= end) else {
                self.now = end;
                return self;
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.events.pop_first().expect("looked at above");
                self.happen(event);
            }
            for instance in 0..self.gates.len() {
                self.follow(instance);
                if self.gates[instance].poll_timeout().is_some_and(|due| due <= self.now) {
                    self.gates[instance].handle_timeout(self.now);
                }
                self.follow(instance);
            }
        }
    }

    /// What is left of each limit, and open, when all is quiet for longer than any window.
    pub fn at_rest(&mut self) -> Mirror {
        let limits = self.plan.scope.allowances(self.plan.settings.rate_factor);
        let policy = &self.plan.scope.policy;
        let rules = Rules {
            breaker: true,
            faults_in_row: policy.faults_in_row,
            adaptive: true,
            lease: policy.lease,
        };
        let idle = Report {
            receipt: None,
            reserved: Demand::default(),
            charged: None,
            outcome: Ended::Neither,
            readings: Vec::new(),
            limits: limits.into_iter().map(|allowance| allowance.limit).collect(),
            in_flight: 0,
            rules,
        };
        // Once for the clock, and once for what has flowed in by it.
        let later = self.now + Duration::from_mins(2);
        self.pool.report("0", &idle, later);
        self.pool.report("0", &idle, later + Duration::from_mins(2))
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.numbered += 1;
        self.events.insert((self.now + wait, self.numbered), event);
    }

    /// As on one connection: what an instance sends to the keeper comes in the order it was sent.
    fn tell_keeper(&mut self, instance: usize, event: Event) {
        let comes = (self.now + self.way()).max(self.last_to_keeper[instance]);
        self.last_to_keeper[instance] = comes;
        self.after(comes.saturating_since(self.now), event);
    }

    fn way(&mut self) -> Duration {
        Duration::from_secs_f64(self.random.random_range(0.0002..WAY_S))
    }

    /// What the keeper answers, if it hears of it and its answer is heard.
    fn exchange<T>(&mut self, ask: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let now = self.now.since_start().as_secs_f64();
        let is_silent = self.plan.silent_s.as_ref().is_some_and(|silent| silent.contains(&now));
        if is_silent || self.random.random_bool(self.plan.loss_ratio) {
            return None;
        }
        self.exchanges += 1;
        let answer = ask(&mut self.pool);
        (!self.random.random_bool(self.plan.loss_ratio)).then_some(answer)
    }

    fn next_arrival(&mut self, instance: usize) {
        let uniform: f64 = self.random.random_range(f64::EPSILON..1.0);
        let wait = Duration::from_secs_f64(-uniform.ln() / self.plan.offered);
        if self.now + wait < at(self.plan.traffic_s) {
            self.after(wait, Event::Arrival(instance));
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Arrival(instance) => self.arrive(instance),
            Event::Departure(key) => {
                if self.asked.contains_key(&key) {
                    self.gone.insert(key);
                    self.gates[key.0].handle_cancel(key.1, now);
                }
            }
            Event::Claimed(instance, attempt, claim) => {
                let answer = self.exchange(|pool| pool.claim(&instance.to_string(), &claim, now));
                let back = if answer.is_some() { self.way() } else { DECISION };
                self.after(back, Event::Decided(instance, attempt, claim.demand, answer));
            }
            Event::Decided(instance, attempt, demand, answer) => {
                self.gates[instance].handle_verdict(attempt, SCOPE, demand, answer, now);
            }
            Event::Reported(instance, report) => {
                let answer = self.exchange(|pool| pool.report(&instance.to_string(), &report, now));
                let back = if answer.is_some() { self.way() } else { DECISION };
                self.after(back, Event::Noted(instance, answer));
            }
            Event::Noted(instance, mirror) => {
                self.gates[instance].handle_mirror(SCOPE, mirror, now);
            }
            Event::Called(instance, attempt, tokens) => self.call(instance, attempt, tokens),
            Event::Answered(instance, attempt, reply) => self.answer(instance, attempt, &reply),
        }
    }

    fn arrive(&mut self, instance: usize) {
        self.next_arrival(instance);
        let now = self.now;
        let tokens = self.random.random_range(self.plan.tokens.clone());
        let patience =
            Duration::from_secs_f64(self.random.random_range(self.plan.patience_s.clone()));
        let is_batch = self.random.random_bool(self.plan.batch_ratio);
        self.numbered += 1;
        let offer = Offer {
            scope: SCOPE,
            identity: u128::from(self.numbered) << 64,
            lane: if is_batch { Lane::Batch } else { Lane::Interactive },
            backfill: false,
            tenant: Arc::from("t"),
            weight: 1.0,
            guess: Demand { input: f64::from(tokens), output: 0.0 },
            repeatable: true,
            deferrable: false,
            deadline: Some(now + patience),
            retry_mark: 0,
        };
        let id = self.gates[instance].handle_request(&offer, now);
        self.asked.insert((instance, id), Asked { tokens, deadline: now + patience });
        if self.random.random_bool(self.plan.leaving_ratio) {
            let leaves = patience.mul_f64(self.random.random());
            self.after(leaves, Event::Departure((instance, id)));
        }
    }

    fn call(&mut self, instance: usize, attempt: AttemptId, tokens: u32) {
        let number = attempt.request.number();
        let identity = u128::from(number) << 64 | instance as u128;
        let call = Call::new(identity, Tokens(u64::from(tokens)), CallKind::Embeddings);
        let mut reply = self.provider.handle_request(&call, self.now);
        match (reply.outcome, self.throttle) {
            (Outcome::Ok { .. }, Some((from, wait))) if self.now >= from => {
                let tokens = u64::from(tokens);
                reply.outcome = Outcome::RateLimited {
                    meter: Meter::Tokens,
                    wait,
                    limit: 0,
                    used: 0,
                    requested: tokens,
                };
                self.throttle = None;
            }
            (Outcome::Ok { .. }, _) => {
                let tokens = f64::from(tokens);
                self.served.push(Arrived { at: self.now, instance, tokens });
                self.open += 1;
                self.open_max = self.open_max.max(self.open);
            }
            _ => self.refused += 1,
        }
        self.after(reply.latency, Event::Answered(instance, attempt, reply));
    }

    fn answer(&mut self, instance: usize, attempt: AttemptId, reply: &Reply) {
        self.provider.finish(reply.call);
        let (class, hint) = if let Outcome::RateLimited { wait, .. } = reply.outcome {
            self.throttled = Some(self.now);
            (Class::TransientRateLimit, Some(wait))
        } else {
            self.open -= 1;
            (Class::Success, None)
        };
        let status = reply.outcome.status();
        let forbids_retry = false;
        let (code, meter, meters) = (None, None, Vec::new());
        let head = Head { status, class, hint, code, meter, forbids_retry, meters };
        self.gates[instance].handle_head(attempt, &head, self.now);
    }

    fn breach(&mut self, words: &str) {
        self.breaches.push(format!("at {:?}: {words}", self.now));
    }

    /// Does what the gate wants.
    fn follow(&mut self, instance: usize) {
        while let Some(effect) = self.gates[instance].poll_effect() {
            match effect {
                Effect::Send { attempt } => {
                    let key = (instance, attempt.request);
                    self.gates[instance].handle_sent(attempt, self.now);
                    self.sent.push(self.now);
                    let Some(asked) =
                        self.asked.get(&key).copied().filter(|_| !self.gone.contains(&key))
                    else {
                        self.breach(&format!("an attempt for {key:?}, whom nobody waits for"));
                        continue;
                    };
                    if asked.deadline < self.now {
                        self.breach(&format!("an attempt for {key:?} after its deadline"));
                    }
                    let way = self.way();
                    self.after(way, Event::Called(instance, attempt, asked.tokens));
                }
                Effect::Claim { attempt, claim, .. } => {
                    self.tell_keeper(instance, Event::Claimed(instance, attempt, claim));
                }
                Effect::Report { report, .. } => {
                    self.tell_keeper(instance, Event::Reported(instance, report));
                }
                Effect::Deliver { request, .. } => {
                    let asked = self.asked.remove(&(instance, request));
                    let used =
                        asked.map(|asked| Demand { input: f64::from(asked.tokens), output: 0.0 });
                    self.gates[instance].handle_end(request, used, self.now);
                }
                Effect::Refuse { request, .. } | Effect::Defer { request, .. } => {
                    if self.asked.remove(&(instance, request)).is_none() {
                        self.breach(&format!("{request:?} is answered twice"));
                    }
                }
            }
        }
    }
}
