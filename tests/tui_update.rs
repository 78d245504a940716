//! The model under every kind of message: what changes, what must not, and what is asked of the port.

#[path = "tui_support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use support::{after, at, look_at, table, wall, watch, watched};
use weir::flag::{FlagTable, Outcome, Plan, Progress, Revision, Settled, Unsettled};
use weir::ingest::Observation;
use weir::signal::{Mono, Value};
use weir::tui::app::flip::{Focus, PlanDialog, Stage};
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, Shown, State, update};
use weir::tui::{Arming, Entry, Lost, Update, Want};

const NOW: u64 = 60;

fn press(model: &mut Model, code: KeyCode, now: Mono) -> Vec<Effect> {
    update(model, Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)), now)
}

fn letter(model: &mut Model, letter: char) -> Vec<Effect> {
    let now = model.now;
    press(model, KeyCode::Char(letter), now)
}

fn control(model: &mut Model, letter: char) -> Vec<Effect> {
    let now = model.now;
    update(model, Msg::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)), now)
}

/// Answers a wish as the port would, and lets the type-ahead time pass.
fn answer(model: &mut Model, effects: Vec<Effect>, table: &FlagTable) {
    let wish = effects
        .into_iter()
        .find_map(|effect| if let Effect::MakePlan(wish) = effect { Some(wish) } else { None })
        .expect("a plan was wished for");
    let plan = wish.plan(table, "id-1".to_owned()).map_err(|error| error.to_string());
    let now = model.now;
    update(model, Msg::Planned(plan), now);
    update(model, Msg::Tick(wall(NOW + 1)), now + Duration::from_millis(400));
    look_at(model, 80, 24);
}

fn dialog(model: &Model) -> &PlanDialog {
    match model.mode() {
        Mode::Plan(dialog) => dialog,
        other => panic!("not a plan on top but {other:?}"),
    }
}

/// A storm with the plan `contain` open.
fn planned() -> Model {
    let mut model = watched(NOW, None);
    letter(&mut model, 'd');
    let now = model.now;
    let effects = press(&mut model, KeyCode::Enter, now);
    answer(&mut model, effects, &table());
    model
}

/// Presses Tab and Enter on a plan and returns what was sent.
fn send(model: &mut Model) -> Plan {
    let now = model.now;
    press(model, KeyCode::Tab, now);
    let effects = press(model, KeyCode::Enter, now);
    let [Effect::Apply(plan)] = effects.as_slice() else { panic!("nothing was sent: {effects:?}") };
    plan.clone()
}

fn applied(model: &mut Model, outcome: Outcome) -> Vec<Effect> {
    let now = model.now;
    update(model, Msg::Applied { request_id: "id-1".to_owned(), outcome }, now)
}

/// A storm that was contained at second 62.
fn contained() -> (Model, FlagTable) {
    let mut model = planned();
    let plan = send(&mut model);
    let table = after(&table(), &plan, "oncall", wall(62));
    applied(&mut model, Outcome::applied(table.revision));
    let now = model.now;
    update(&mut model, Msg::Flags(Ok(table.clone())), now);
    (model, table)
}

#[test]
fn four_keys_cure_the_storm() {
    let mut model = watched(NOW, None);
    assert_eq!(State::of(model.verdict().expect("a verdict")), State::Incident);
    letter(&mut model, 'd');
    let now = model.now;
    let effects = press(&mut model, KeyCode::Enter, now);
    let [Effect::MakePlan(wish)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(wish.want, Want::Named("contain".to_owned()));
    answer(&mut model, effects, &table());
    let plan = send(&mut model);
    assert_eq!(plan.revision, Revision(41), "sent with the revision that was shown");
    assert_eq!(plan.changes.len(), 3);
    assert!(plan.reason.contains("nested-retries"), "{}", plan.reason);
}

#[test]
fn a_flip_is_verified_by_reading_again_and_by_its_effect() {
    let (mut model, table) = contained();
    assert!(matches!(model.flips[0].progress, Progress::Pending { .. }));
    assert_eq!(model.flips[0].reach.map(|reach| (reach.on, reach.of)), Some((1, 1)));
    watch(&mut model, 62, 90, Some(62));
    let now = model.now;
    update(&mut model, Msg::Flags(Ok(table)), now);
    assert_eq!(model.flips[0].progress, Progress::Verified);
}

#[test]
fn a_flip_without_effect_fails_at_its_deadline() {
    let (mut model, _) = contained();
    watch(&mut model, 62, 200, None);
    assert!(
        matches!(model.flips[0].progress, Progress::Failed { .. }),
        "{:?}",
        model.flips[0].progress
    );
    let told = |event: &weir::tui::app::events::Event| event.text.contains("u plans the way back");
    assert!(model.timeline.newest_first().any(told));
}

#[test]
fn a_plan_starts_on_cancel_and_a_refresh_does_not_move_the_focus() {
    let mut model = planned();
    assert_eq!(dialog(&model).focus, Focus::Cancel);
    let now = model.now;
    press(&mut model, KeyCode::Tab, now);
    watch(&mut model, NOW + 1, NOW + 5, None);
    assert_eq!(dialog(&model).focus, Focus::Apply);
    let now = model.now;
    press(&mut model, KeyCode::BackTab, now);
    let effects = press(&mut model, KeyCode::Enter, now);
    assert!(effects.is_empty(), "Cancel sends nothing");
    assert!(matches!(model.mode(), Mode::Diagnose(_)));
}

#[test]
fn keys_typed_before_the_plan_can_be_seen_are_dropped() {
    let mut model = watched(NOW, None);
    let effects = letter(&mut model, 'c');
    let Some(Effect::MakePlan(wish)) = effects.into_iter().next() else { panic!("no wish") };
    let now = model.now;
    press(&mut model, KeyCode::Tab, now);
    update(
        &mut model,
        Msg::Planned(Ok(wish.plan(&table(), "id-1".to_owned()).expect("a plan"))),
        now,
    );
    for _ in 0..3 {
        press(&mut model, KeyCode::Tab, now + Duration::from_millis(299));
    }
    assert_eq!(dialog(&model).focus, Focus::Cancel);
    press(&mut model, KeyCode::Tab, now + Duration::from_millis(300));
    assert_eq!(dialog(&model).focus, Focus::Apply);
}

#[test]
fn a_riskier_plan_asks_for_the_flags_name() {
    let (mut model, table) = contained();
    let effects = letter(&mut model, 'u');
    answer(&mut model, effects, &table);
    let wanted = dialog(&model).name_to_type().expect("the way back is riskier");
    let now = model.now;
    press(&mut model, KeyCode::Tab, now);
    assert_eq!(dialog(&model).focus, Focus::Name);
    for letter in wanted.chars() {
        press(&mut model, KeyCode::Char(letter), now);
    }
    assert_eq!(dialog(&model).name.value(), wanted);
    // The storm has only just been contained: guards fail, and warn.
    assert!(dialog(&model).plan.guards.iter().any(|guard| guard.holds != Some(true)));
    assert_eq!(dialog(&model).plan.refused(), None);
}

/// The plan with a change and a guard on every row, drawn on a screen of a size.
fn safe_plan(width: u16, height: u16) -> Model {
    let mut model = watched(NOW, None);
    letter(&mut model, 'f');
    let effects = letter(&mut model, 'S');
    answer(&mut model, effects, &table());
    update(&mut model, Msg::Resized, at(NOW + 2));
    look_at(&mut model, width, height);
    model
}

#[test]
fn a_plan_is_locked_until_all_of_it_was_on_the_screen() {
    let mut model = safe_plan(80, 16);
    let all = dialog(&model).plan.changes.len() + dialog(&model).plan.guards.len();
    assert!(dialog(&model).unseen() > 0, "{all} rows fit");
    let now = model.now;
    press(&mut model, KeyCode::Tab, now);
    assert!(press(&mut model, KeyCode::Enter, now).is_empty(), "it was applied unseen");
    for _ in 0..all {
        letter(&mut model, 'j');
        look_at(&mut model, 80, 16);
    }
    assert_eq!(dialog(&model).blocked(), None);
    update(&mut model, Msg::Resized, now);
    look_at(&mut model, 30, 100);
    assert!(dialog(&model).blocked().is_some(), "another size shows other rows");
}

#[test]
fn keys_that_skip_rows_do_not_count_as_reading_them() {
    let mut model = safe_plan(80, 16);
    letter(&mut model, 'G');
    look_at(&mut model, 80, 16);
    assert!(dialog(&model).unseen() > 0, "the middle was never shown");
}

#[test]
fn a_screen_too_low_for_a_plan_does_not_apply_one() {
    let mut model = safe_plan(40, 10);
    let now = model.now;
    press(&mut model, KeyCode::Tab, now);
    assert!(press(&mut model, KeyCode::Enter, now).is_empty());
}

#[test]
fn what_is_in_force_is_not_offered_again() {
    let mut model = watched(NOW, None);
    letter(&mut model, 'd');
    assert_eq!(model.offer().and_then(|offer| offer.left), Some(3));
    let (mut model, _) = contained();
    letter(&mut model, 'd');
    assert!(model.offer().is_some_and(|offer| offer.is_in_force()));
    let now = model.now;
    assert!(press(&mut model, KeyCode::Enter, now).is_empty());
    letter(&mut model, 'o');
    assert!(letter(&mut model, 'c').is_empty());
}

#[test]
fn every_answer_has_its_stage() {
    let mut refused = planned();
    send(&mut refused);
    applied(&mut refused, Outcome::Refused { why: "interlock".to_owned() });
    assert!(matches!(dialog(&refused).stage, Stage::Refused { .. }));

    let mut conflict = planned();
    let plan = send(&mut conflict);
    let current = after(&table(), &plan, "alice", wall(61));
    applied(&mut conflict, Outcome::Conflict { current });
    let Stage::Conflict { changed } = &dialog(&conflict).stage else { panic!("no conflict") };
    assert!(changed.iter().any(|line| line.contains("alice")), "{changed:?}");
    assert!(dialog(&conflict).blocked().is_some(), "never retried by itself");
    assert!(conflict.flips.is_empty());
}

#[test]
fn a_lost_answer_blocks_until_two_equal_readings() {
    let mut model = planned();
    send(&mut model);
    let effects = applied(&mut model, Outcome::Unknown { why: "timed out".to_owned() });
    assert!(matches!(effects.as_slice(), [Effect::LoadFlags]));
    let now = model.now;
    press(&mut model, KeyCode::Esc, now);
    press(&mut model, KeyCode::Esc, now);
    let effects = letter(&mut model, 'c');
    assert!(matches!(effects.as_slice(), [Effect::LoadFlags]), "no new plan: {effects:?}");
    for _ in 0..2 {
        assert!(model.unsettled.as_ref().is_some_and(|open| !open.is_quiet()));
        update(&mut model, Msg::Flags(Ok(table())), now);
    }
    // It may still come: it stays shown, and nobody has to wait for it.
    assert!(model.unsettled.as_ref().is_some_and(Unsettled::is_quiet));
    assert!(matches!(letter(&mut model, 'c').as_slice(), [Effect::MakePlan(_)]));
}

#[test]
fn what_the_history_tells_of_a_lost_answer_is_said_and_no_longer_open() {
    let mut model = planned();
    send(&mut model);
    applied(&mut model, Outcome::Unknown { why: "timed out".to_owned() });
    let open = model.unsettled.clone().expect("no answer came");
    let (by, revision) = ("bob".to_owned(), Revision(43));
    let settled = Settled::Overwritten { landed: Revision(42), by, revision };
    let lost = Lost { settled: vec![(open, settled)], open: Vec::new() };
    let now = model.now;
    update(&mut model, Msg::Lost(lost), now);
    assert!(model.unsettled.is_none());
    let words = "landed at revision 42, then bob overwrote it (revision 43)";
    let Stage::Unknown { found, .. } = &dialog(&model).stage else { panic!("it had no answer") };
    assert_eq!(found.as_deref(), Some(words));
    let newest = model.timeline.newest_first().next().expect("an event");
    assert!(newest.text.ends_with(words), "{}", newest.text);
}

#[test]
fn leaving_asks_while_flips_are_in_force() {
    let mut calm = watched(NOW, None);
    assert!(matches!(letter(&mut calm, 'q').as_slice(), [Effect::Leave]));

    let (mut model, _) = contained();
    letter(&mut model, 'o');
    assert!(letter(&mut model, 'q').is_empty());
    assert!(matches!(model.mode(), Mode::Leaving));
    assert_eq!(model.open_overrides().len(), 3);
    letter(&mut model, 'q');
    assert!(matches!(model.mode(), Mode::Overview), "q in the question goes back");
    assert!(control(&mut model, 'c').is_empty());
    assert!(matches!(control(&mut model, 'c').as_slice(), [Effect::Leave]));
}

#[test]
fn every_screen_goes_back_with_three_keys() {
    for key in ['d', 'f', 't', '?'] {
        for back in [KeyCode::Esc, KeyCode::Backspace, KeyCode::Char('q')] {
            let mut model = watched(NOW, None);
            letter(&mut model, key);
            assert!(!matches!(model.mode(), Mode::Overview), "{key}");
            let now = model.now;
            assert!(press(&mut model, back, now).is_empty(), "{key} {back:?}");
            assert!(matches!(model.mode(), Mode::Overview), "{key} {back:?}");
        }
    }
}

#[test]
fn a_frozen_screen_stays_while_data_goes_on() {
    let mut model = watched(NOW, None);
    letter(&mut model, 'p');
    let shown = model.shown().expect("an update").observation.at;
    watch(&mut model, NOW + 1, NOW + 9, None);
    assert_eq!(model.shown().expect("an update").observation.at, shown);
    assert_eq!(model.frozen.as_ref().map(|frozen| frozen.newer), Some(9));
    assert_eq!(model.trends_end(), NOW);
    letter(&mut model, 'p');
    assert_eq!(model.trends_end(), NOW + 9);
}

#[test]
fn old_numbers_become_unknown() {
    let mut model = watched(NOW, None);
    assert!(model.number("amplification").is_some());
    update(&mut model, Msg::Tick(wall(NOW + 11)), at(NOW + 11));
    assert!(matches!(model.signal("amplification"), Shown::Stale { .. }));
    assert_eq!(model.number("amplification"), None);
}

#[test]
fn numbers_count_as_long_as_their_source_lets_them() {
    for (age_s, is_known) in [(15.0, true), (60.0, true), (301.0, false)] {
        let mut round = support::round(NOW, None);
        let mut old = (*round.observation).clone();
        for snapshot in &mut old.scopes {
            let snapshot = Arc::make_mut(snapshot);
            snapshot.signals.values_mut().for_each(|reading| reading.age_s = age_s);
        }
        round.observation = Arc::new(old);
        let mut model = watched(NOW - 1, None);
        update(&mut model, Msg::Updated(Arc::new(round)), at(NOW));
        assert_eq!(model.number("amplification").is_some(), is_known, "{age_s} s old");
    }
}

#[test]
fn answers_of_the_walk_are_kept_and_marked() {
    let mut model = watched(NOW, None);
    letter(&mut model, 'd');
    let mut round = support::round(NOW + 1, None);
    let mut verdict = (*round.verdicts[0]).clone();
    verdict.path[1].branch = "requests empty".to_owned();
    let differing = vec![Arc::new(verdict)];
    round = Update { verdicts: differing.clone(), ..round };
    update(&mut model, Msg::Updated(Arc::new(round)), at(NOW + 1));
    let Mode::Diagnose(walk) = model.mode() else { panic!("not the diagnosis") };
    assert_eq!(walk.steps[1].step.branch, "tokens empty, requests free");
    assert_eq!(walk.steps[1].changed.as_deref(), Some("requests empty"));
    let since = walk.steps[1].changed_at;
    assert!(since.is_some());
    let mut again = support::round(NOW + 9, None);
    again.verdicts.clone_from(&differing);
    update(&mut model, Msg::Updated(Arc::new(again)), at(NOW + 9));
    let Mode::Diagnose(walk) = model.mode() else { panic!("not the diagnosis") };
    assert_eq!(walk.steps[1].changed_at, since, "it differs since then, not since now");
    press(&mut model, KeyCode::Esc, at(NOW + 9));
    assert!(matches!(model.mode(), Mode::Overview));
    letter(&mut model, 'd');
    let Mode::Diagnose(walk) = model.mode() else { panic!("not the diagnosis") };
    assert_eq!(walk.steps[1].changed_at, since, "what was read is still there");
    letter(&mut model, 'r');
    let Mode::Diagnose(walk) = model.mode() else { panic!("not the diagnosis") };
    assert!(!walk.has_changed());
    let mut other = support::round(NOW + 10, None);
    let mut verdict = (*other.verdicts[0]).clone();
    verdict.path[1].branch = "requests empty".to_owned();
    "rpm-exhausted".clone_into(&mut verdict.cause);
    other.verdicts = vec![Arc::new(verdict)];
    update(&mut model, Msg::Updated(Arc::new(other)), at(NOW + 10));
    press(&mut model, KeyCode::Esc, at(NOW + 10));
    letter(&mut model, 'd');
    let Mode::Diagnose(walk) = model.mode() else { panic!("not the diagnosis") };
    assert!(!walk.has_changed(), "another cause has another path");
}

#[test]
fn a_marked_flag_joins_the_next_plan() {
    let mut model = watched(NOW, None);
    letter(&mut model, 'f');
    letter(&mut model, ' ');
    let now = model.now;
    press(&mut model, KeyCode::Enter, now);
    // admission.mode: the cursor of the choice stands on the stored word; choose the first.
    letter(&mut model, ' ');
    for key in [KeyCode::Up, KeyCode::Up, KeyCode::Enter] {
        press(&mut model, key, now);
    }
    assert_eq!(model.flags.marked.len(), 1);
    for _ in 0..8 {
        press(&mut model, KeyCode::Down, now);
    }
    press(&mut model, KeyCode::Enter, now);
    // What is typed takes the place of the stored value.
    press(&mut model, KeyCode::Char('9'), now);
    press(&mut model, KeyCode::Enter, now);
    let Mode::Edit(editor) = model.mode() else { panic!("a bad value keeps the editor open") };
    assert!(
        editor.error.as_ref().is_some_and(|error| error.contains("from 1 to 4")),
        "{:?}",
        editor.error
    );
    for key in [KeyCode::Backspace, KeyCode::Char('1')] {
        press(&mut model, key, now);
    }
    let effects = press(&mut model, KeyCode::Enter, now);
    let [Effect::MakePlan(wish)] = effects.as_slice() else { panic!("{effects:?}") };
    let Want::Changes { changes, .. } = &wish.want else { panic!("{wish:?}") };
    assert_eq!(changes.len(), 2);
    answer(&mut model, effects, &table());
    press(&mut model, KeyCode::Esc, now);
    assert_eq!(model.flags.marked.len(), 1, "the value of the plan that was left is not marked");
}

#[test]
fn a_flip_of_somebody_else_is_an_event_and_an_own_one_is_not() {
    let (mut model, own) = contained();
    let by_hand = |model: &Model| {
        model.timeline.newest_first().filter(|event| event.text.contains(" set ")).count()
    };
    assert_eq!(by_hand(&model), 0);
    let mut theirs = own.clone();
    theirs.revision = Revision(own.revision.0 + 1);
    let flag = theirs.flags.iter_mut().find(|flag| flag.key == "queue.max_age_s").expect("a flag");
    flag.overridden = Some(weir::admission::FlagValue::Number(4.0));
    flag.revision = theirs.revision;
    flag.by = Some("alice".to_owned());
    let now = model.now;
    for _ in 0..2 {
        update(&mut model, Msg::Flags(Ok(theirs.clone())), now);
    }
    let newest = model.timeline.newest_first().next().expect("an event");
    assert_eq!(newest.text, "alice set queue.max_age_s 4 (r43)");
    assert_eq!(by_hand(&model), 1, "told once");
}

/// Shows a round of the cured drill with a few readings changed.
fn judged(change: &dyn Fn(&mut Observation)) -> Model {
    let mut model = watched(5, None);
    let round = support::round(6, None);
    let mut observation = Observation { ..(*round.observation).clone() };
    change(&mut observation);
    let update_ = Update { observation: Arc::new(observation), ..round };
    update(&mut model, Msg::Updated(Arc::new(update_)), at(6));
    model
}

fn with(observation: &mut Observation, signal: &str, value: Value) {
    let snapshot = Arc::make_mut(&mut observation.scopes[0]);
    snapshot.set(signal, value, &Arc::from("gateway"));
}

#[test]
fn nothing_is_ok_that_a_number_or_a_source_denies() {
    let check = |change: &dyn Fn(&mut Observation), expected: State| {
        assert_eq!(judged(change).headline().state(), expected);
    };
    let error = |index: usize| {
        move |observation: &mut Observation| {
            observation.sources[index].error = Some("refused".to_owned());
        }
    };
    check(&|_| {}, State::Ok);
    check(&|all| with(all, "served_share", Value::Number(0.0)), State::Incident);
    let open = Value::Map(BTreeMap::from([("state".to_owned(), Value::Text("open".to_owned()))]));
    check(&|all| with(all, "breaker", open.clone()), State::Incident);
    check(&error(0), State::Unknown);
    check(&error(1), State::Unknown);
    // The clients know what they offer while the gateway is silent.
    let silent = |observation: &mut Observation| {
        error(0)(observation);
        let snapshot = Arc::make_mut(&mut observation.scopes[0]);
        snapshot.signals.remove("admitted_rps");
        snapshot.set("offered_rps", Value::Number(9.0), &Arc::from("clients"));
    };
    check(&silent, State::Unknown);
    assert!(judged(&silent).is_gateway_down());
}

#[test]
fn zeros_of_a_source_without_a_gateway_are_unknown() {
    let model = judged(&|observation| {
        let snapshot = Arc::make_mut(&mut observation.scopes[0]);
        snapshot.signals.remove("offered_rps");
        snapshot.signals.remove("originals_rps");
        snapshot.set("provider_429_rps", Value::Number(0.0), &Arc::from("gateway"));
    });
    assert_eq!(model.number("shed_rps"), None);
    assert_eq!(model.number("provider_429_rps"), None);
    let sources = &model.shown().expect("an update").observation.sources;
    assert!(model.is_foreign(&sources[0]));
    assert!(!model.is_foreign(&sources[1]));
}

#[test]
fn a_read_only_session_cannot_plan() {
    let mut model = watched(NOW, None);
    model.read_only = true;
    for key in ['c', 'u'] {
        assert!(letter(&mut model, key).is_empty());
    }
    letter(&mut model, 'd');
    let now = model.now;
    assert!(press(&mut model, KeyCode::Enter, now).is_empty());
    letter(&mut model, 'f');
    for key in [KeyCode::Enter, KeyCode::Char(' '), KeyCode::Char('S'), KeyCode::Char('x')] {
        press(&mut model, key, now);
        assert!(matches!(model.mode(), Mode::Flags), "{key:?}");
    }
}

#[test]
fn a_locked_session_reads_plans_and_sends_none_until_it_is_armed_by_name() {
    let mut model = watched(NOW, None);
    model.environment = "staging".to_owned();
    model.arming = Arming::Locked;
    let asked = letter(&mut model, 'c');
    let [Effect::MakePlan(wish)] = asked.as_slice() else { panic!("a plan is asked: {asked:?}") };
    let plan = wish.plan(&table(), "id".to_owned()).expect("a plan");
    let mut now = model.now;
    update(&mut model, Msg::Planned(Ok(plan)), now);
    now = now + Duration::from_secs(1);
    look_at(&mut model, 120, 40);
    press(&mut model, KeyCode::Tab, now);
    assert!(press(&mut model, KeyCode::Enter, now).is_empty(), "locked");
    let screen = look_at(&mut model, 120, 40);
    assert!(screen.contains("Apply is locked: staging is not armed; A arms it"), "{screen}");

    letter(&mut model, 'A');
    for letter_of in "stagin".chars() {
        letter(&mut model, letter_of);
    }
    assert!(press(&mut model, KeyCode::Enter, now).is_empty(), "not its whole name");
    assert_eq!(model.arming, Arming::Locked);
    letter(&mut model, 'g');
    let told = press(&mut model, KeyCode::Enter, now);
    assert!(
        matches!(told.as_slice(), [Effect::Journal(Entry::Note(text))] if text == "staging armed")
    );
    update(&mut model, Msg::Tick(wall(NOW)), now + Duration::from_secs(7));
    now = now + Duration::from_secs(7);
    let screen = look_at(&mut model, 120, 40);
    assert!(screen.contains("ARMED staging 15m"), "{screen}");

    // A quarter of an hour without a key.
    now = now + Duration::from_mins(15);
    let told = update(&mut model, Msg::Tick(wall(NOW)), now);
    assert!(told.iter().any(|effect| matches!(effect, Effect::Journal(Entry::Note(_)))));
    assert!(press(&mut model, KeyCode::Enter, now).is_empty(), "locked again");
    assert!(matches!(model.mode(), Mode::Plan(dialog) if dialog.stage == Stage::Review));

    letter(&mut model, 'A');
    for letter_of in "staging".chars() {
        letter(&mut model, letter_of);
    }
    press(&mut model, KeyCode::Enter, now);
    let sent = press(&mut model, KeyCode::Enter, now);
    assert!(matches!(sent.as_slice(), [Effect::Apply(_)]), "{sent:?}");
    press(&mut model, KeyCode::Esc, now);
    assert!(model.may_send());
    letter(&mut model, 'o');
}

#[test]
fn a_plan_that_the_table_has_gone_past_says_so_while_it_is_read() {
    let mut model = watched(NOW, None);
    let asked = letter(&mut model, 'c');
    let [Effect::MakePlan(wish)] = asked.as_slice() else { panic!("a plan is asked: {asked:?}") };
    let plan = wish.plan(&table(), "id".to_owned()).expect("a plan");
    let now = model.now;
    update(&mut model, Msg::Planned(Ok(plan.clone())), now);
    let other = Plan { request_id: "bob".to_owned(), ..plan };
    let moved = after(&table(), &other, "bob", wall(NOW));
    update(&mut model, Msg::Flags(Ok(moved)), now);
    let screen = look_at(&mut model, 120, 40);
    assert!(screen.contains("CONFLICT") && screen.contains("by bob"), "{screen}");
}

#[test]
fn a_note_goes_to_journal_and_timeline_without_line_ends() {
    let mut model = watched(NOW, None);
    letter(&mut model, 'n');
    let now = model.now;
    update(&mut model, Msg::Paste("called\nthe provider".to_owned()), now);
    let effects = press(&mut model, KeyCode::Enter, now);
    assert!(matches!(effects.as_slice(), [Effect::Journal(_)]));
    let newest = model.timeline.newest_first().next().expect("an event");
    assert_eq!(newest.text, "note: called the provider");
}

#[test]
fn the_timeline_tells_who_moved_first() {
    let model = watched(NOW, None);
    let events: Vec<&str> =
        model.timeline.newest_first().map(|event| event.text.as_str()).collect();
    for wanted in ["TPM empty", "provider 429s", "amplification up", "nested-retries confirmed"] {
        assert!(events.contains(&wanted), "{wanted} in {events:?}");
    }
}

#[test]
fn a_source_that_goes_down_is_an_event_and_comes_back() {
    let mut model = watched(NOW, None);
    for (second, error) in [(NOW + 1, Some("connection refused")), (NOW + 2, None)] {
        let round = support::round(second, None);
        let mut observation = Observation { ..(*round.observation).clone() };
        observation.sources[1].error = error.map(str::to_owned);
        let update_ = Update { observation: Arc::new(observation), ..round };
        update(&mut model, Msg::Updated(Arc::new(update_)), at(second));
    }
    let events: Vec<&str> =
        model.timeline.newest_first().map(|event| event.text.as_str()).collect();
    assert_eq!(events[..2], ["provider answers", "provider down: connection refused"]);
}

#[test]
fn a_source_that_never_answered_is_an_event_too() {
    let mut model = Model::new("watch", "production", support::berlin(), support::start());
    let round = support::round(1, None);
    let mut observation = Observation { ..(*round.observation).clone() };
    observation.sources[2].last_good = None;
    observation.sources[2].error = Some("clients: timed out".to_owned());
    let update_ = Update { observation: Arc::new(observation), ..round };
    update(&mut model, Msg::Updated(Arc::new(update_)), at(1));
    let never =
        |event: &weir::tui::app::events::Event| event.text == "clients never answered: timed out";
    assert!(model.timeline.newest_first().any(never));
}
