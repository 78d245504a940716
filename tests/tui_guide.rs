//! The walk along a runbook on the screen: what its keys do, and that none of them flips anything.

#[path = "tui_support/mod.rs"]
mod support;

use std::sync::Arc;

use chrono::DateTime;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use support::shot::keep;
use support::{PERSON, SCOPE, at, wall, watched};
use weir::diagnosis::{Diagnoser, Facts, Goto, Step};
use weir::runbook::{self, Walk};
use weir::tui::app::guide::Does;
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::theme::{ASCII, Depth};
use weir::tui::view::render;
use weir::tui::{Appearance, Entry, Guidance, Update, Want};

const NOW: u64 = 60;

/// The evidence of the drill after it was watched until a second.
fn facts(second: u64, cured_at: Option<u64>) -> Facts {
    let mut diagnoser = Diagnoser::new(runbook::embedded());
    for second in second.saturating_sub(40)..=second {
        diagnoser.step(&support::snapshot(second, cured_at), at(second));
    }
    diagnoser.facts().clone()
}

fn look_again(model: &mut Model, second: u64, cured_at: Option<u64>) {
    let facts = [(SCOPE.to_owned(), facts(second, cured_at))].into();
    let guide = Some(Arc::new(Guidance { library: runbook::embedded(), facts }));
    let round = Update { guide, ..support::round(second, cured_at) };
    update(model, Msg::Updated(Arc::new(round)), at(second));
    update(model, Msg::Tick(wall(second)), at(second));
}

fn model() -> Model {
    let mut model = watched(NOW, None);
    PERSON.clone_into(&mut model.person);
    look_again(&mut model, NOW + 1, None);
    model
}

fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    let now = model.now;
    update(model, Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)), now)
}

fn keys(model: &mut Model, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|letter| press(model, KeyCode::Char(letter))).collect()
}

fn guide(model: &Model) -> &Walk {
    model.guide().expect("a walk")
}

fn place(model: &Model) -> String {
    let (book, node) = guide(model).position();
    format!("{book}/{node}")
}

fn screen(model: &Model, width: u16, height: u16) -> String {
    let look = Appearance { depth: Depth::Mono, glyphs: &ASCII };
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    let _ = render(model, &look, area, &mut buf);
    let cell = |x, y| buf[(x, y)].symbol().to_owned();
    let rows = (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

/// At the first flip of the storm's runbook.
fn at_the_flip() -> Model {
    let mut model = model();
    keys(&mut model, "dl");
    for _ in 0..32 {
        let plans =
            matches!(model.choices().first().map(|choice| &choice.does), Some(Does::Plan { .. }));
        if plans {
            return model;
        }
        press(&mut model, KeyCode::Enter);
    }
    panic!("no flip: {}", place(&model));
}

#[test]
fn without_evidence_there_is_no_walk() {
    let mut model = watched(NOW, None);
    keys(&mut model, "dl");
    assert!(matches!(model.mode(), Mode::Diagnose(_)), "{:?}", model.mode());
}

#[test]
fn enter_follows_the_evidence_to_a_plan_that_asks() {
    let mut model = at_the_flip();
    assert!(guide(&model).trail().len() >= 3, "{}", place(&model));
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::MakePlan(wish)] = effects.as_slice() else { panic!("{effects:?}") };
    // The flip is a part of a plan of which more is left to do: the whole of it is planned.
    assert_eq!(wish.want, Want::Named("contain".to_owned()));
    assert!(matches!(model.mode(), Mode::Planning));
}

/// A fresh model after some keys.
fn after_keys(said: &str) -> Model {
    let mut model = model();
    keys(&mut model, said);
    model
}

#[test]
fn guide_screen() {
    keep(at_the_flip);
}

#[test]
fn step_why_screen() {
    keep(|| after_keys("dlbw"));
}

#[test]
fn how_screen() {
    keep(|| after_keys("dlh"));
}

#[test]
fn say_screen() {
    keep(|| after_keys("dlHbob: watch the meter"));
}

#[test]
fn what_was_not_made_neither_worked_nor_failed() {
    let mut model = at_the_flip();
    let does: Vec<_> = model.choices().into_iter().map(|choice| choice.does).collect();
    assert!(matches!(&does[..], [Does::Plan { .. }, Does::Without]), "{does:?}");
    keys(&mut model, "j");
    press(&mut model, KeyCode::Enter);
    let step = guide(&model).trail().last().expect("a step");
    assert!(step.answer.ends_with(": not made"), "{}", step.answer);
}

#[test]
fn no_single_key_changes_a_flag() {
    for code in (33_u8..127).map(|byte| KeyCode::Char(char::from(byte))) {
        for mut model in [at_the_flip(), model()] {
            for effect in press(&mut model, code) {
                assert!(!matches!(effect, Effect::Apply(_)), "{code:?}");
            }
        }
    }
    let mut model = at_the_flip();
    for code in [KeyCode::Enter, KeyCode::Enter, KeyCode::Enter] {
        assert!(!press(&mut model, code).iter().any(|one| matches!(one, Effect::Apply(_))));
    }
}

#[test]
fn a_read_only_session_plans_nothing() {
    let mut model = at_the_flip();
    model.read_only = true;
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 0);
    assert!(model.toast.as_ref().is_some_and(|toast| toast.text.contains("read-only")));
}

#[test]
fn the_walk_stays_where_it_is_and_says_how_long_ago_a_step_changed() {
    let mut model = at_the_flip();
    let here = place(&model);
    for second in NOW + 2..NOW + 40 {
        look_again(&mut model, second, Some(NOW + 2));
    }
    assert_eq!(place(&model), here, "the walk moved by itself");
    let changed = guide(&model).trail().iter().filter(|step| step.changed_at.is_some()).count();
    assert!(changed > 0);
    let shown = screen(&model, 100, 30);
    assert!(
        shown.contains("CHANGED SINCE") && shown.contains("changed ") && shown.contains(" ago"),
        "{shown}"
    );
}

#[test]
fn back_skip_note_and_hand_over_work_from_the_keyboard() {
    let mut model = model();
    keys(&mut model, "dl");
    assert_eq!(place(&model), "nested-retries/one-owner", "what needs nobody was passed already");
    keys(&mut model, "b");
    assert_eq!(place(&model), "nested-retries/where");
    keys(&mut model, "bb");
    let second = place(&model);
    keys(&mut model, "b");
    assert_eq!(place(&model), "triage/who");
    keys(&mut model, "b");
    assert!(model.toast.as_ref().is_some_and(|toast| toast.text.contains("began")));
    press(&mut model, KeyCode::Enter);
    assert_eq!(place(&model), second);
    press(&mut model, KeyCode::Esc);
    keys(&mut model, "l");
    assert_eq!(place(&model), second, "the walk is kept when its screen is left");

    // A skip wants a reason.
    press(&mut model, KeyCode::Down);
    keys(&mut model, "s");
    press(&mut model, KeyCode::Enter);
    assert_eq!(place(&model), second);
    keys(&mut model, "s");
    keys(&mut model, "billing says so");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(
        matches!(&effects[..], [Effect::Journal(Entry::Note(text))] if text.contains("billing says so"))
    );
    let skipped = guide(&model).trail().last().expect("a step");
    assert_eq!((skipped.skipped, skipped.by.as_deref()), (true, Some(PERSON)));

    keys(&mut model, "n");
    keys(&mut model, "paged them");
    press(&mut model, KeyCode::Enter);
    assert_eq!(guide(&model).notes(), ["alice: paged them"]);

    keys(&mut model, "H");
    keys(&mut model, "no colon here");
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 0);
    assert_eq!(guide(&model).hand_overs().len(), 0);
    keys(&mut model, "H");
    keys(&mut model, "bob: watch the meter");
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::Journal(_), Effect::SaveWalk(page)] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    let opened = Walk::read(page, runbook::embedded(), DateTime::UNIX_EPOCH).expect("a walk");
    assert_eq!(opened.hand_overs()[0].to, "bob");
    assert_eq!(opened.trail(), guide(&model).trail());
    let now = model.now;
    let effects =
        update(&mut model, Msg::WalkSaved(Ok("/state/walks/x.walk.json".to_owned())), now);
    assert!(
        matches!(&effects[..], [Effect::Journal(Entry::Note(text))] if text.contains("x.walk.json"))
    );
    assert!(screen(&model, 120, 30).contains("/state/walks/x.walk.json"));
}

#[test]
fn a_walk_that_was_handed_over_is_gone_on_with() {
    let mut first = model();
    keys(&mut first, "dl");
    press(&mut first, KeyCode::Enter);
    let page = guide(&first).write("alice", wall(NOW));
    let mut next = model();
    next.handed =
        Some(Walk::read(&page, runbook::embedded(), DateTime::UNIX_EPOCH).expect("a walk"));
    keys(&mut next, "dl");
    assert_eq!(place(&next), place(&first));
    assert_eq!(guide(&next).trail()[0].at, guide(&first).trail()[0].at);
    press(&mut next, KeyCode::Enter);
    let times: Vec<_> = guide(&next).trail().iter().map(|step| step.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn what_was_said_on_a_walk_is_seen_while_no_source_answers() {
    let mut first = model();
    keys(&mut first, "dln");
    keys(&mut first, "owner paged");
    press(&mut first, KeyCode::Enter);
    keys(&mut first, "H");
    keys(&mut first, "ben: look at the batch job");
    press(&mut first, KeyCode::Enter);
    let page = guide(&first).write("alice", wall(NOW));
    let mut next = Model::new("watch", "test", wall(NOW).fixed_offset().timezone(), wall(NOW));
    next.take_over(Walk::read(&page, runbook::embedded(), DateTime::UNIX_EPOCH).expect("a walk"));
    keys(&mut next, "t");
    let shown = screen(&next, 120, 30);
    assert!(shown.contains("to ben: look at the batch job"), "{shown}");
}

#[test]
fn a_walk_of_another_scope_is_kept_for_it() {
    let mut first = model();
    keys(&mut first, "dl");
    press(&mut first, KeyCode::Enter);
    let page = guide(&first).write("alice", wall(NOW)).replace(SCOPE, "openai/acct-9/chat");
    let mut next = model();
    let handed = Walk::read(&page, runbook::embedded(), DateTime::UNIX_EPOCH).expect("a walk");
    assert_eq!(handed.scope(), "openai/acct-9/chat");
    next.handed = Some(handed);
    keys(&mut next, "dl");
    assert_eq!(guide(&next).scope(), SCOPE);
    assert!(next.handed.is_some(), "it waits for its own scope");
}

#[test]
fn a_flip_whose_interlock_is_open_is_not_planned() {
    assert_eq!(at_the_flip().flip_refused(), None);
    let library = runbook::embedded();
    let mut refused = Vec::new();
    for (book, node) in library.books().flat_map(|book| book.nodes.iter().map(move |n| (book, n))) {
        let Step::Action(action) = &node.step else { continue };
        if action.needs.is_empty() {
            continue;
        }
        let mut walk = Walk::start_in(Arc::clone(&library), &book.id).expect("shipped");
        let goto = Goto::Node(node.id.clone());
        walk.skip(&goto, "to see it", PERSON, &facts(NOW, None), at(NOW)).expect("a node");
        let mut model = model();
        model.handed = Some(walk.of(SCOPE, DateTime::UNIX_EPOCH));
        keys(&mut model, "dl");
        assert_eq!(place(&model), format!("{}/{}", book.id, node.id));
        let why = model.flip_refused();
        let planned = press(&mut model, KeyCode::Enter);
        assert_eq!(why.is_some(), planned.is_empty(), "{why:?} {planned:?}");
        refused.extend(why);
    }
    let needs = "it needs admission.mode = enforce first, stored and on every instance";
    assert!(refused.iter().any(|why| why == needs), "{refused:#?}");
}

#[test]
fn w_and_h_say_why_and_how() {
    let mut model = model();
    keys(&mut model, "dl");
    keys(&mut model, "b");
    insta::assert_snapshot!("guide-80x24", screen(&model, 80, 24));
    keys(&mut model, "w");
    let shown = screen(&model, 100, 40);
    assert!(shown.contains("it tells apart:") && shown.contains("nested-retries/where"), "{shown}");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Esc);
    keys(&mut model, "h");
    let shown = screen(&model, 100, 70);
    for words in ["the triage:", "1 ", "the walk:", "triage/who", "missing:", "reset_s"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn small_and_odd_screens_do_not_panic() {
    let mut model = at_the_flip();
    for (width, height) in [(40, 10), (44, 12), (60, 16), (200, 60), (30, 40), (1, 1)] {
        screen(&model, width, height);
    }
    for overlay in ["w", "h", "H", "s"] {
        keys(&mut model, overlay);
        screen(&model, 40, 10);
        press(&mut model, KeyCode::Esc);
    }
}

#[test]
fn the_walk_that_takes_admission_down_is_opened_on_purpose_and_stops_where_calm_is_not_known() {
    let mut model = model();
    keys(&mut model, "fR");
    assert_eq!(place(&model), "rollback/ready");
    let text = screen(&model, 120, 40);
    assert!(text.contains("? calm_s > 300"), "{text}");
    press(&mut model, KeyCode::Enter);
    assert_eq!(place(&model), "rollback/blind");
    assert!(press(&mut model, KeyCode::Enter).is_empty(), "nothing is planned");
}

#[test]
fn a_walk_that_somebody_is_on_is_not_lost_to_another() {
    let mut model = at_the_flip();
    let on = place(&model);
    keys(&mut model, "ncalled the owner");
    press(&mut model, KeyCode::Enter);
    assert!(!guide(&model).is_untouched(), "a person has left a note");
    keys(&mut model, "fR");
    assert_eq!(place(&model), on);
    let toast = model.toast.as_ref().map(|toast| toast.text.clone()).unwrap_or_default();
    assert!(toast.contains("is under way"), "{toast}");
}
