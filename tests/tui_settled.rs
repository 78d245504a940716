//! After a flip: what it holds down stays named, what people get stands beside it, the turmoil in between
//! is no verdict, and a plan that is being read knows the newest evidence.

#[path = "tui_support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use support::{after, at, look_at, round, table, wall, watch, watched};
use weir::admission::{FlagValue, flag};
use weir::diagnosis::{Standing, Verdict};
use weir::flag::{Change, FlagTable, Forecast, Measure, Outcome, Range, Row};
use weir::incident;
use weir::ingest::Observation;
use weir::runbook;
use weir::signal::Value;
use weir::tui::app::flip::Focus;
use weir::tui::app::headline::Headline;
use weir::tui::app::mode::Mode;
use weir::tui::app::offer::Next;
use weir::tui::app::{Effect, Model, Msg, State, update};
use weir::tui::theme::{ASCII, Appearance, Depth};
use weir::tui::view::render;
use weir::tui::{Guidance, Update, Want, Wish};

const FLIP: u64 = 61;

fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    let now = model.now;
    update(model, Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)), now)
}

/// Answers a wish as the port would, and lets the type-ahead time pass.
fn answer(model: &mut Model, effects: Vec<Effect>, table: &FlagTable) {
    let wish = effects.into_iter().find_map(|effect| match effect {
        Effect::MakePlan(wish) => Some(wish),
        _ => None,
    });
    let plan = wish.expect("a wish").plan(table, "id-1".to_owned());
    let now = model.now;
    update(model, Msg::Planned(plan.map_err(|error| error.to_string())), now);
    update(model, Msg::Tick(wall(FLIP)), now + Duration::from_millis(400));
    look_at(model, 80, 24);
}

/// A confirmed storm that `contain` was applied to, and the table that this made.
fn contained() -> (Model, FlagTable) {
    let mut model = watched(FLIP - 1, None);
    press(&mut model, KeyCode::Char('d'));
    let effects = press(&mut model, KeyCode::Enter);
    answer(&mut model, effects, &table());
    press(&mut model, KeyCode::Tab);
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::Apply(plan)] = effects.as_slice() else { panic!("nothing was sent: {effects:?}") };
    let table = after(&table(), plan, "oncall", wall(FLIP));
    let now = model.now;
    let outcome = Outcome::applied(table.revision);
    update(&mut model, Msg::Applied { request_id: "id-1".to_owned(), outcome }, now);
    update(&mut model, Msg::Flags(Ok(table.clone())), now);
    (model, table)
}

/// One more round of the cured drill with another verdict and a few other readings.
fn look_again(
    model: &mut Model,
    second: u64,
    cause: &str,
    standing: Standing,
    signals: &[(&str, f64)],
) -> Vec<Effect> {
    let made = round(second, Some(FLIP));
    let mut observation = Observation { ..(*made.observation).clone() };
    for (signal, value) in signals {
        let snapshot = Arc::make_mut(&mut observation.scopes[0]);
        snapshot.set(signal, Value::Number(*value), &Arc::from("gateway"));
    }
    let verdict = Verdict { cause: cause.to_owned(), standing, ..(*made.verdicts[0]).clone() };
    let verdicts = vec![Arc::new(verdict)];
    let made = Update { observation: Arc::new(observation), verdicts, ..made };
    update(model, Msg::Updated(Arc::new(made)), at(second))
}

fn screen(model: &Model) -> String {
    let area = Rect::new(0, 0, 160, 40);
    let mut buf = Buffer::empty(area);
    render(model, &Appearance { depth: Depth::Mono, glyphs: &ASCII }, area, &mut buf);
    let row =
        |y| (0..area.width).map(move |x| (x, y)).map(|at| buf[at].symbol()).collect::<String>();
    (0..area.height).map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_flips_hold_down_is_named_until_they_are_taken_back() {
    let (mut model, _) = contained();
    look_again(&mut model, FLIP + 30, "healthy", Standing::Likely, &[]);
    match model.headline() {
        Headline::Held { was, verdict } => {
            assert_eq!((was.cause.as_str(), verdict.cause.as_str()), ("nested-retries", "healthy"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(model.headline().state(), State::Contained);
    assert!(screen(&model).contains("nested-retries  held by flips"), "{}", screen(&model));
    let now = model.now;
    update(&mut model, Msg::Flags(Ok(table())), now);
    look_again(&mut model, FLIP + 40, "healthy", Standing::Likely, &[]);
    assert!(matches!(model.headline(), Headline::Verdict(_)), "nothing holds it any more");
    assert!(model.incidents.is_empty());
}

#[test]
fn what_is_said_while_a_flip_settles_is_no_verdict() {
    let (mut model, _) = contained();
    for (after, cause, standing, settles) in [
        (3, "gate-refuses-wrongly", Standing::Likely, true),
        (5, "insufficient-evidence", Standing::CannotTell, true),
        (7, "nested-retries", Standing::Confirmed, false),
        (9, "healthy", Standing::Likely, false),
        (11, "hard-quota", Standing::Confirmed, false),
        (20, "gate-refuses-wrongly", Standing::Likely, false),
    ] {
        look_again(&mut model, FLIP + after, cause, standing, &[]);
        let is_settling = matches!(model.headline(), Headline::Settling { .. });
        assert_eq!(is_settling, settles, "{cause} after {after} s");
    }
    assert_eq!(
        model.incidents.values().next().map(|was| was.cause.as_str()),
        Some("nested-retries")
    );
}

#[test]
fn a_flip_after_which_fewer_are_served_is_not_simply_verified() {
    let (mut model, table) = contained();
    let served = model.served().share.expect("a share");
    // What was a loss is one until about as many are served as before.
    let phases = [
        (0.85, "VERIFIED"),
        (0.5, "fewer are served"),
        (0.85, "fewer are served"),
        (1.0, "VERIFIED"),
    ];
    for (begins, (factor, expected)) in (FLIP..).step_by(25).zip(phases) {
        for second in begins..begins + 25 {
            let share = [("served_share", served * factor)];
            let cause = ("demand-over-capacity", Standing::Confirmed);
            look_again(&mut model, second, cause.0, cause.1, &share);
            let now = model.now;
            update(&mut model, Msg::Flags(Ok(table.clone())), now);
        }
        assert!(screen(&model).contains(expected), "{factor}: {}", screen(&model));
    }
}

#[test]
fn a_flag_that_is_safer_than_the_plan_wants_it_is_left_alone() {
    let (mut model, mut table) = contained();
    let flag = table.flags.iter_mut().find(|flag| flag.key == "retry.max_attempts");
    flag.expect("a flag").overridden = Some(weir::admission::FlagValue::Number(1.0));
    let now = model.now;
    update(&mut model, Msg::Flags(Ok(table)), now);
    let offer = model.offer_of("contain").expect("a plan");
    assert!(offer.is_in_force(), "{:?} left", offer.left);
}

#[test]
fn guards_of_a_plan_that_is_read_follow_the_evidence_and_the_focus_stays() {
    let (mut model, table) = contained();
    press(&mut model, KeyCode::Char('f'));
    let change = Change { key: "admission.mode".to_owned(), to: None };
    let want = Want::Changes { name: "admission.mode".to_owned(), changes: vec![change] };
    let wish = Wish { want, update: model.latest.clone(), scope: model.scope().map(str::to_owned) };
    model.modes.push(Mode::Planning);
    answer(&mut model, vec![Effect::MakePlan(wish)], &table);
    press(&mut model, KeyCode::Tab);
    let amplification = |model: &Model| match model.mode() {
        Mode::Plan(dialog) => {
            assert_eq!(dialog.focus, Focus::Name);
            let guard = dialog.plan.guards.iter().find(|one| one.text.starts_with("amplification"));
            guard.and_then(|guard| guard.holds)
        }
        other => panic!("{other:?}"),
    };
    for (second, value, holds) in [(70, 3.0, false), (72, 1.0, true), (74, 2.0, false)] {
        let cause = ("demand-over-capacity", Standing::Confirmed);
        look_again(&mut model, second, cause.0, cause.1, &[("amplification", value)]);
        assert_eq!(amplification(&model), Some(holds), "{value}");
    }
}

#[test]
fn letters_that_go_nowhere_are_not_swallowed_in_silence() {
    let mut model = watched(FLIP - 1, None);
    press(&mut model, KeyCode::Char('d'));
    let effects = press(&mut model, KeyCode::Enter);
    answer(&mut model, effects, &table());
    press(&mut model, KeyCode::Char('z'));
    assert!(
        model.toast.as_ref().is_some_and(|toast| toast.text.contains("Tab")),
        "{:?}",
        model.toast
    );
}

#[test]
fn permits_that_are_cut_are_an_event() {
    let (mut model, _) = contained();
    for (second, limit) in [(70, 64.0), (72, 40.0), (74, 14.0), (76, 14.0)] {
        let cause = ("provider-overload", Standing::Confirmed);
        look_again(&mut model, second, cause.0, cause.1, &[("inflight_limit", limit)]);
    }
    let told = |event: &&weir::tui::app::events::Event| event.text == "calls at once cut 64 to 14";
    assert_eq!(model.timeline.newest_first().filter(told).count(), 1);
}

#[test]
fn the_screen_says_what_people_get_since_the_flip() {
    let (mut model, _) = contained();
    watch(&mut model, FLIP + 1, FLIP + 3, Some(FLIP));
    let shown = screen(&model);
    assert!(shown.contains("served ") && shown.contains(" -> "), "{shown}");
}

/// The contained storm with the incident of another cause in memory.
fn holding(cause: &str) -> Model {
    let (mut model, _) = contained();
    for was in model.incidents.values_mut() {
        cause.clone_into(&mut was.cause);
    }
    look_again(&mut model, FLIP + 30, "healthy", Standing::Likely, &[]);
    model
}

#[test]
fn contain_does_not_switch_an_ill_gate_on_again() {
    let pressed = |held: &str| {
        let mut model = holding(held);
        // The traffic was let by, and nothing else is flipped.
        let mut shadow = table();
        let mode = shadow.flags.iter_mut().find(|flag| flag.key == "admission.mode");
        mode.expect("a flag").overridden = Some(FlagValue::Word("shadow".to_owned()));
        let now = model.now;
        update(&mut model, Msg::Flags(Ok(shadow)), now);
        press(&mut model, KeyCode::Esc);
        let effects = press(&mut model, KeyCode::Char('c'));
        (effects.len(), model.toast.map(|toast| toast.text).unwrap_or_default())
    };
    let (effects, said) = pressed("gate-refuses-wrongly");
    assert_eq!(effects, 0);
    assert!(said.contains("it would bring gate-refuses-wrongly back"), "{said}");
    let (effects, said) = pressed("nested-retries");
    assert_eq!(effects, 1, "a plan is asked for: {said}");
}

#[test]
fn what_was_taken_back_is_not_offered_again() {
    let (mut model, _) = contained();
    let offered = |model: &Model| match model.next() {
        Some(Next::Plan(offer)) => offer.plan.name.to_owned(),
        Some(Next::Step(title)) => title,
        other => format!("{other:?}"),
    };
    let again = |model: &mut Model| {
        let now = model.now;
        update(model, Msg::Flags(Ok(table())), now);
        update(model, Msg::Updated(Arc::new(round(FLIP + 30, None))), at(FLIP + 30));
    };
    again(&mut model);
    assert_eq!(offered(&model), "contain", "somebody else took it back: it is as it was");
    model.flips.last_mut().expect("a flip").undone = true;
    assert!(offered(&model).starts_with("contain was made and taken back"), "{}", offered(&model));
    let mode = flag("admission.mode").and_then(|def| def.parse("enforce")).expect("a value");
    assert!(model.plan_with("admission.mode", &mode).is_none(), "nor along the walk");
}

#[test]
fn what_a_held_cause_brings_about_takes_its_place_only_where_no_runbook_says_so() {
    let remembered = |held: &str, guided: bool| {
        let mut model = holding(held);
        let mut next = round(FLIP + 31, None);
        let mut verdict = Verdict::clone(&next.verdicts[0]);
        "local-queueing".clone_into(&mut verdict.cause);
        verdict.standing = Standing::Confirmed;
        next.verdicts = vec![Arc::new(verdict)];
        let library = runbook::embedded();
        next.guide = guided.then(|| Arc::new(Guidance { library, facts: [].into() }));
        update(&mut model, Msg::Updated(Arc::new(next)), at(FLIP + 31));
        model.incidents.values().next().map(|was| was.cause.clone())
    };
    assert_eq!(remembered("concurrency-cap", true).as_deref(), Some("concurrency-cap"));
    assert_eq!(remembered("concurrency-cap", false).as_deref(), Some("local-queueing"));
    assert_eq!(remembered("hard-quota", true).as_deref(), Some("local-queueing"));
}

#[test]
fn a_forecast_is_held_against_what_came_when_its_time_is_there() {
    let (mut model, _) = contained();
    let range = Range { low: 0.0, middle: 1.0, high: 2.0 };
    let row = Row { measure: Measure::Amplification, now: None, without: range, with: range };
    let scope = model.scope().expect("a scope").to_owned();
    // It is worked out while the plan is sent already.
    let foretold = Ok(Forecast { scope, rows: vec![row], assumptions: Vec::new() });
    let late = Msg::Foretold { request_id: "id-1".to_owned(), forecast: foretold };
    let now = model.now;
    update(&mut model, late, now);
    let came = [("amplification", 5.0)];
    look_again(&mut model, FLIP + 30, "healthy", Standing::Likely, &came);
    assert_eq!(model.forecasts.kept, [], "half of the time is left");
    let effects = look_again(&mut model, FLIP + 62, "healthy", Standing::Likely, &came);
    let words = model.forecasts.kept[0].record.words();
    let said = "0 of 1 within their range; attempts/original 1.00 foretold, 5.00 came";
    assert_eq!(words, format!("{said}: off by 80%"));
    assert!(
        model
            .timeline
            .newest_first()
            .any(|event| event.text.contains("forecast of contain: 0 of 1"))
    );

    // It is kept, and a later session on the same scope and environment shows it in its dialog.
    let folder = tempfile::tempdir().expect("a folder");
    let file = incident::place_beside(&folder.path().join("journal.jsonl"));
    let keep = effects.into_iter().find_map(|effect| match effect {
        Effect::KeepForecast(hindsight) => Some(hindsight),
        _ => None,
    });
    incident::keep(&file, &keep.expect("it is to be kept")).expect("the disk is there");
    std::fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"no line\n"))
        .expect("the disk is there");
    let dialog = |environment: &str| {
        let mut model = watched(FLIP - 1, None);
        environment.clone_into(&mut model.environment);
        let now = model.now;
        update(&mut model, Msg::Earlier(incident::earlier(&file)), now);
        press(&mut model, KeyCode::Char('d'));
        let effects = press(&mut model, KeyCode::Enter);
        answer(&mut model, effects, &table());
        screen(&model)
    };
    let own = dialog(&model.environment);
    assert!(own.contains("last time (contain, ") && own.contains("off by 80%"), "{own}");
    assert!(own.contains("forecasts.jsonl: 1 damaged"), "{own}");
    let other = dialog("elsewhere");
    assert!(!other.contains("last time"), "{other}");
}

#[test]
fn a_plan_that_fewer_are_served_with_says_why_that_is_worth_it() {
    let price = |cause: &str, with: f64| {
        let mut model = watched(FLIP - 1, None);
        let mut next = round(FLIP, None);
        let verdict = Verdict { cause: cause.to_owned(), ..(*next.verdicts[0]).clone() };
        next.verdicts = vec![Arc::new(verdict)];
        next.guide = Some(Arc::new(Guidance { library: runbook::embedded(), facts: [].into() }));
        update(&mut model, Msg::Updated(Arc::new(next)), at(FLIP));
        let effects = press(&mut model, KeyCode::Char('c'));
        answer(&mut model, effects, &table());
        let at_once = |middle| Range { low: 0.0, middle, high: 1.0 };
        let (without, with) = (at_once(0.95), at_once(with));
        let row = Row { measure: Measure::Served, now: None, without, with };
        let scope = model.scope().expect("a scope").to_owned();
        let forecast = Forecast { scope, rows: vec![row], assumptions: Vec::new() };
        let now = model.now;
        let told = Msg::Foretold { request_id: "id-1".to_owned(), forecast: Ok(forecast) };
        update(&mut model, told, now);
        screen(&model).contains("| price    what fails is not sent again")
    };
    assert!(price("provider-overload", 0.6));
    assert!(!price("provider-overload", 0.93), "as many are served");
    assert!(!price("tpm-exhausted", 0.6), "its runbook knows of no price");
}

#[test]
fn an_incident_that_could_not_be_told_for_a_moment_began_when_it_began() {
    let mut model = watched(FLIP - 1, None);
    let since = |model: &Model| {
        let first = screen(model).lines().next().unwrap_or_default().to_owned();
        first.split("since ").nth(1).map(|rest| rest[..8].to_owned()).expect("a time")
    };
    let before = since(&model);
    let cause = model.verdict().expect("a verdict").cause.clone();
    for (second, cause, standing) in [
        (FLIP, "insufficient-evidence", Standing::CannotTell),
        (FLIP + 2, cause.as_str(), Standing::Confirmed),
    ] {
        look_again(&mut model, second, cause, standing, &[]);
    }
    assert_eq!(since(&model), before);
}

#[test]
fn a_forecast_that_took_too_long_is_none() {
    for (took_s, is_shown) in [(19, true), (21, false)] {
        let mut model = watched(60, None);
        press(&mut model, KeyCode::Char('c'));
        let table = table();
        let wish = Wish {
            want: Want::Named("contain".to_owned()),
            update: model.latest.clone(),
            scope: model.scope().map(str::to_owned),
        };
        let plan = wish.plan(&table, "id-1".to_owned()).expect("a plan");
        update(&mut model, Msg::Planned(Ok(plan)), at(60));
        let scope = model.scope().expect("a scope").to_owned();
        let forecast = Ok(Forecast { scope, rows: Vec::new(), assumptions: Vec::new() });
        let told = Msg::Foretold { request_id: "id-1".to_owned(), forecast };
        update(&mut model, told, at(60 + took_s));
        let Mode::Plan(dialog) = model.mode() else { panic!("{:?}", model.mode()) };
        let forecast = dialog.forecast.as_ref().expect("an answer");
        assert_eq!(forecast.is_ok(), is_shown, "{took_s} s: {forecast:?}");
    }
}

#[test]
fn on_a_screen_of_the_past_a_flip_is_told_as_of_now_and_without_the_numbers_of_then() {
    let (mut model, _) = contained();
    look_again(&mut model, FLIP + 10, "healthy", Standing::Likely, &[]);
    assert!(screen(&model).contains("attempts/original"), "{}", screen(&model));
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Left);
    assert!(model.is_rewound());
    let shown = screen(&model);
    assert!(shown.contains("now: contain r42 in use"), "{shown}");
    assert!(!shown.contains("attempts/original "), "{shown}");
}
