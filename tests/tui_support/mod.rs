//! The default drill as numbers: what the screens are shown in tests and in the example.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod shot;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, TimeZone, Utc};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use weir::admission::{FLAGS, FlagValue};
use weir::diagnosis::{
    Evidence, Missing, PathStep, Ranked, Role, Standing, Toll, Truth, Verdict, fetch,
};
use weir::flag::{FlagState, FlagTable, Outcome, Plan, Revision};
use weir::ingest::{Observation, SourceStatus};
use weir::signal::{Mono, Quality, Reading, Snapshot, Value};
use weir::tui::app::{Model, Msg, update};
use weir::tui::theme::{ASCII, Depth};
use weir::tui::view::render;
use weir::tui::{Answer, Appearance, Entry, Port, Update, Wish};

/// Who sits at the screen.
pub const PERSON: &str = "alice";
pub const SCOPE: &str = "openai/acct-1/embed";
/// Calm until here, then the storm.
pub const ONSET_S: u64 = 10;

/// 09:00:00 in Berlin.
pub fn start() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 29, 8, 0, 0).single().expect("a valid instant")
}

pub fn berlin() -> FixedOffset {
    FixedOffset::east_opt(3_600).expect("a valid offset")
}

pub fn at(second: u64) -> Mono {
    Mono::from_start(Duration::from_secs(second))
}

pub fn wall(second: u64) -> DateTime<Utc> {
    start() + Duration::from_secs(second)
}

/// One second of the drill. `cured_at` is the second at which `contain` was applied.
pub fn round(second: u64, cured_at: Option<u64>) -> Update {
    let snapshot = Arc::new(snapshot(second, cured_at));
    let verdict = Arc::new(verdict(second, cured_at));
    let observation = Observation {
        at: at(second),
        wall: wall(second),
        scopes: vec![snapshot],
        sources: ["gateway", "provider", "clients"].map(|name| source(name, second)).to_vec(),
    };
    Update::new(Arc::new(observation), vec![verdict])
}

pub fn source(name: &str, second: u64) -> SourceStatus {
    SourceStatus {
        name: name.to_owned(),
        url: format!("http://127.0.0.1:9000/{name}/metrics"),
        via: None,
        last_good: Some(at(second)),
        stale_after_s: 10.0,
        error: None,
        degraded: Vec::new(),
        warnings: Vec::new(),
        instances: (1, 1),
        took_s: 0.003,
        samples: 120,
        polls: second,
        failures: 0,
    }
}

fn ramp(second: u64, from: u64, over: f64) -> f64 {
    let since = Duration::from_secs(second.saturating_sub(from)).as_secs_f64();
    if second < from { 0.0 } else { (since / over).min(1.0) }
}

pub fn snapshot(second: u64, cured_at: Option<u64>) -> Snapshot {
    let storm =
        ramp(second, ONSET_S, 8.0) * (1.0 - cured_at.map_or(0.0, |at| ramp(second, at, 12.0)));
    let cured = cured_at.map_or(0.0, |at| ramp(second, at, 12.0));
    let originals = if second < ONSET_S { 60.0 } else { 180.0 };
    let amplification = 1.0 + 8.3 * storm;
    let served = if second < ONSET_S { 60.0 } else { 66.0 };
    let offered = originals * (1.0 + 8.33 * storm);
    let admitted = offered * (1.0 - cured) + 66.7 * cured;
    let numbers: &[(&str, f64)] = &[
        ("originals_rps", originals),
        ("offered_rps", offered),
        ("admitted_rps", admitted),
        ("shed_rps", (offered - admitted).max(0.0)),
        ("deferred_rps", 0.0),
        ("cancelled_rps", 0.0),
        ("expired_rps", 0.0),
        ("attempts_rps", admitted),
        ("delivered_rps", served),
        ("served_share", served / originals),
        ("amplification", amplification),
        ("client_multiplication", offered / originals),
        ("max_attempts_configured", 3.0),
        ("retries_share", 1.0 - 1.0 / amplification),
        ("retry_success_share", 0.04),
        ("retries_denied_rps", 0.0),
        ("retry_header_share", 0.61 * storm),
        ("provider_429_rps", (admitted - served).max(0.0) * storm),
        ("provider_503_rps", 0.0),
        ("gate_429_rps", 0.0),
        ("gate_503_rps", (offered - admitted).max(0.0)),
        ("tpm_headroom", 0.6 * (1.0 - ramp(second, ONSET_S, 3.0)) + 0.03 * cured),
        ("rpm_headroom", 0.97),
        ("tpm_limit", 1_200_000.0),
        ("rpm_limit", 6_000.0),
        ("retry_after_s", 1.4),
        ("own_tpm_headroom", 0.02),
        ("own_rpm_headroom", 0.94),
        ("interactive_queue_depth", 240.0 * cured),
        ("batch_queue_depth", 0.0),
        ("queue_depth", 240.0 * cured),
        ("interactive_queue_oldest_age_s", 9.4 * cured),
        ("inflight_gauge", 31.0),
        ("inflight_limit", 64.0),
        ("inflight_actual", 31.0),
        ("latency_p95_s", 0.4 + 13.7 * storm + 9.0 * cured),
        ("latency_offered_p95_s", 0.4 + 13.7 * storm + 9.0 * cured),
        ("actual_tokens_per_request", 300.0),
        ("est_tokens_per_request", 304.0),
    ];
    let mut snapshot = Snapshot::new(SCOPE, 10.0);
    let gateway: Arc<str> = Arc::from("gateway");
    for (name, value) in numbers {
        snapshot.set(name, Value::Number(*value), &gateway);
    }
    let layers = [("frontend", 0.15), ("wrapper", 1.78), ("sdk", 1.80)]
        .map(|(name, more)| (name.to_owned(), Value::Number(1.0 + more * storm)));
    snapshot.set("layer_multiplication", Value::Map(BTreeMap::from(layers)), &Arc::from("clients"));
    let breaker = BTreeMap::from([
        ("state".to_owned(), Value::Text("closed".to_owned())),
        ("open_since_s".to_owned(), Value::Number(Duration::from_secs(second).as_secs_f64())),
    ]);
    snapshot.set("breaker", Value::Map(breaker), &gateway);
    snapshot.absent.insert("reset_s".to_owned(), "the provider sends no reset".to_owned());
    snapshot
}

pub fn verdict(second: u64, cured_at: Option<u64>) -> Verdict {
    let snapshot = snapshot(second, cured_at);
    let amplification = snapshot.number("amplification").expect("the fixture sets it");
    let (cause, standing, plan) = if second < ONSET_S {
        ("healthy", Standing::Confirmed, None)
    } else if cured_at.is_some_and(|at| second >= at + 11) {
        ("demand-over-capacity", Standing::Confirmed, None)
    } else if amplification < 3.3 {
        ("tpm-exhausted", Standing::Likely, Some("contain"))
    } else {
        ("nested-retries", Standing::Confirmed, Some("contain"))
    };
    Verdict {
        cause: cause.to_owned(),
        standing,
        scope: SCOPE.to_owned(),
        first: None,
        say: format!(
            "The provider refuses for tokens, and {amplification:.1} attempts are made per original where one \
             layer may make 3: layers multiply each other's retries."
        ),
        path: vec![
            step("who-refused", "Who refused?", "the provider refuses"),
            step("which-meter", "Which meter is empty?", "tokens empty, requests free"),
            step(
                "multiplied",
                "Does the work multiply, or is it shared badly?",
                "nested-retries is confirmed",
            ),
        ],
        evidence: vec![
            evidence(
                "storm",
                "amplification[fast] > max_attempts_configured * 1.1 for 3s clear 1.3",
                "amplification",
                Some((amplification, 3.3)),
                second,
            ),
            evidence(
                "tpm_out",
                "tpm_headroom[fast] < 5% for 3s clear 15%",
                "tpm_headroom",
                snapshot.number("tpm_headroom").map(|value| (value, 0.05)),
                second,
            ),
            evidence(
                "marks",
                "retry_header_share[fast] > 10%",
                "retry_header_share",
                snapshot.number("retry_header_share").map(|value| (value, 0.1)),
                second,
            ),
            Evidence {
                state: Truth::False,
                ..evidence(
                    "fell",
                    "originals_rps[fast] < originals_rps@15m * 0.8",
                    "originals_rps",
                    Some((180.0, 48.0)),
                    0,
                )
            },
            evidence("reset", "reset_s[fast] < 30", "reset_s", None, second),
        ],
        also: vec![
            ranked("tpm-exhausted", Standing::Likely, 3, 0, Role::Consequence),
            ranked("retry-backlog", Standing::Contradicted, 1, 2, Role::Other),
            ranked("provider-overload", Standing::RuledOut, 0, 2, Role::Other),
            ranked("hard-quota", Standing::RuledOut, 0, 1, Role::Other),
            ranked("rpm-exhausted", Standing::RuledOut, 0, 2, Role::Other),
        ],
        missing: vec![
            missing("reset_s", "provider sends none"),
            missing("retry_wait_p50_s", "no client log"),
        ],
        used: 9,
        of: 11,
        runbook: Some(cause.to_owned()),
        plan: plan.map(str::to_owned),
        notes: Vec::new(),
        pages_owner: false,
        toll: Toll::default(),
        onsets: Vec::new(),
    }
}

fn missing(signal: &str, reason: &str) -> Missing {
    let (signal, reason, fetch) = (signal.to_owned(), reason.to_owned(), fetch(signal));
    Missing { signal, reason, fetch }
}

fn step(node: &str, title: &str, branch: &str) -> PathStep {
    PathStep { node: node.to_owned(), title: title.to_owned(), branch: branch.to_owned() }
}

fn evidence(
    name: &str,
    predicate: &str,
    signal: &str,
    read: Option<(f64, f64)>,
    second: u64,
) -> Evidence {
    Evidence {
        name: name.to_owned(),
        predicate: predicate.to_owned(),
        signal: signal.to_owned(),
        value: read.map(|(value, _)| value),
        threshold: read.map(|(_, threshold)| threshold),
        state: if read.is_some() { Truth::True } else { Truth::Unknown },
        pending: false,
        reason: read.is_none().then(|| "no-data".to_owned()),
        held_s: if read.is_some() {
            Duration::from_secs(second.saturating_sub(ONSET_S)).as_secs_f64()
        } else {
            0.0
        },
        source: read.map(|_| "gateway".to_owned()),
        age_s: read.map(|_| 1.0),
        quality: read.map(|_| Quality::Exact),
    }
}

fn ranked(cause: &str, standing: Standing, pro: usize, contra: usize, role: Role) -> Ranked {
    Ranked {
        cause: cause.to_owned(),
        standing,
        evidence_for: pro,
        evidence_against: contra,
        evidence_unknown: 0,
        role,
    }
}

/// The flag table as the drill starts it: admission off, the client retries.
pub fn table() -> FlagTable {
    let flags = FLAGS
        .iter()
        .map(|def| {
            let base = match def.key {
                "admission.mode" => FlagValue::Word("off".to_owned()),
                "retry.owner" => FlagValue::Word("client".to_owned()),
                "retry.max_attempts" => FlagValue::Number(3.0),
                "queue.max_age_s" => FlagValue::Number(10.0),
                "admission.rate_factor" => FlagValue::Number(0.98),
                "admission.max_in_flight" => FlagValue::Number(64.0),
                "queue.max_depth" => FlagValue::Number(512.0),
                _ => def.safe_value(&FlagValue::Number(1.0)),
            };
            FlagState {
                key: def.key.to_owned(),
                overridden: None,
                effective: BTreeMap::from([("gw-1".to_owned(), base.clone())]),
                safe: def.safe_value(&base),
                base,
                revision: Revision(0),
                by: None,
                at: None,
                expires: None,
                on_expire: None,
            }
        })
        .collect();
    FlagTable { revision: Revision(41), flags }
}

/// The table after a plan.
pub fn after(table: &FlagTable, plan: &Plan, by: &str, when: DateTime<Utc>) -> FlagTable {
    let revision = Revision(table.revision.0 + 1);
    let mut table = FlagTable { revision, ..table.clone() };
    for change in &plan.changes {
        let Some(flag) = table.flags.iter_mut().find(|flag| flag.key == change.key) else {
            continue;
        };
        flag.overridden = (!change.drops_override).then(|| change.to.clone());
        flag.effective.insert("gw-1".to_owned(), change.to.clone());
        flag.revision = revision;
        flag.by = Some(by.to_owned());
        flag.at = Some(when);
    }
    table
}

/// A port that keeps its table in memory.
pub struct Desk {
    pub table: Mutex<FlagTable>,
    pub journal: Mutex<Vec<Entry>>,
}

impl Desk {
    pub fn new() -> Self {
        Self { table: Mutex::new(table()), journal: Mutex::new(Vec::new()) }
    }

    pub fn is_contained(&self) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get("admission.mode").is_some_and(|flag| flag.stored().to_string() == "enforce")
    }
}

impl Port for Desk {
    fn load_flags(&self) -> Answer<Result<FlagTable, String>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move { Ok(table) })
    }

    fn plan(&self, wish: Wish) -> Answer<Result<Plan, String>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = wish
            .plan(&table, format!("plan-{}", table.revision))
            .map_err(|error| error.to_string());
        Box::pin(async move { plan })
    }

    fn apply(&self, plan: Plan) -> Answer<Outcome> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = if plan.revision == table.revision {
            *table = after(&table, &plan, "oncall", Utc::now());
            Outcome::applied(table.revision)
        } else {
            Outcome::Conflict { current: table.clone() }
        };
        Box::pin(async move { outcome })
    }

    fn journal(&self, entry: Entry) -> Answer<Result<(), String>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Box::pin(async { Ok(()) })
    }
}

/// A model that has watched the drill up to a second.
pub fn watched(second: u64, cured_at: Option<u64>) -> Model {
    let mut model = Model::new("drill launch-0900", "drill", berlin(), start());
    update(&mut model, Msg::Flags(Ok(table())), at(0));
    watch(&mut model, 0, second, cured_at);
    model
}

/// Lets a model watch the drill from a second to another.
pub fn watch(model: &mut Model, from: u64, to: u64, cured_at: Option<u64>) {
    for second in from..=to {
        update(model, Msg::Updated(Arc::new(round(second, cured_at))), at(second));
        update(model, Msg::Tick(wall(second)), at(second));
    }
}

/// Puts a frame of a size on the screen, as the event loop does after each change.
pub fn look_at(model: &mut Model, width: u16, height: u16) -> String {
    let look = Appearance { depth: Depth::Mono, glyphs: &ASCII };
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    if let Some(visible) = render(model, &look, area, &mut buffer) {
        let now = model.now;
        update(model, Msg::Drawn(visible), now);
    }
    let rows = buffer.content.chunks(usize::from(width));
    let text = |row: &[Cell]| row.iter().map(Cell::symbol).collect::<String>();
    rows.map(text).collect::<Vec<_>>().join("\n")
}

/// A reading that was made some time ago.
pub fn aged(value: f64, age_s: f64) -> Reading {
    Reading {
        value: Value::Number(value),
        quality: weir::signal::Quality::Exact,
        source: Arc::from("gateway"),
        age_s,
        note: None,
    }
}
