//! Going back through the last hour while weir goes on collecting, and the span of the charts.

#[path = "tui_support/mod.rs"]
mod support;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use support::{look_at, watch, watched};
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, update};

/// The storm begins at second 10.
const NOW: u64 = 60;

fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    let now = model.now;
    update(model, Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)), now)
}

fn letters(model: &mut Model, text: &str) {
    for letter in text.chars() {
        assert!(press(model, KeyCode::Char(letter)).is_empty(), "{letter} does nothing outside");
    }
}

fn second(model: &Model) -> u64 {
    model.shown_now().since_start().as_secs()
}

#[test]
fn the_past_shows_the_numbers_and_the_verdict_of_then() {
    let mut model = watched(NOW, None);
    let storm = model.number("offered_rps").expect("known");
    letters(&mut model, "0");
    assert_eq!(second(&model), 0);
    let calm = model.number("offered_rps").expect("kept");
    assert!(storm > 5.0 * calm, "{storm} now, {calm} then");
    let screen = look_at(&mut model, 120, 40);
    assert!(screen.contains("BACK at 09:00:00"), "{screen}");
    assert!(!screen.lines().next().expect("a line").contains("INCIDENT"), "{screen}");
    assert!(screen.contains("the state of sources is not kept"), "{screen}");
    assert!(screen.contains("next: p back to now"), "{screen}");
    assert!(!screen.contains("clients repeat"), "that came later: {screen}");

    letters(&mut model, "....");
    assert_eq!(second(&model), 40);
    let screen = look_at(&mut model, 120, 40);
    assert!(screen.lines().next().expect("a line").contains("INCIDENT nested-retries"), "{screen}");
    let scope = model.scope().expect("a scope").to_owned();
    let since = |at| model.judged.since(&scope, at).map(|since| since.since_start().as_secs());
    let moments = [9, 11, 40].map(support::at).map(since);
    assert_eq!(moments, [Some(0), Some(10), Some(13)], "healthy, likely, confirmed");
    press(&mut model, KeyCode::Left);
    assert_eq!(second(&model), 39);
    let then = model.trends().and_then(|trends| trends.at("amplification", 39));
    assert_eq!(model.number("amplification"), then);
}

#[test]
fn nothing_is_planned_from_the_past_and_the_diagnosis_is_that_of_the_moment() {
    let mut model = watched(NOW, None);
    letters(&mut model, "d");
    let title = |model: &Model| match model.mode() {
        Mode::Diagnose(walk) => walk.cause.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(title(&model), "nested-retries");
    letters(&mut model, "0");
    assert_eq!(title(&model), "healthy");
    assert!(press(&mut model, KeyCode::Enter).is_empty(), "no plan from then");
    letters(&mut model, "....");
    assert!(press(&mut model, KeyCode::Enter).is_empty(), "no plan from the storm of then");
    // Nor by a key of its own, from any screen.
    letters(&mut model, "of");
    for key in "cSxmuR".chars() {
        let effects = press(&mut model, KeyCode::Char(key));
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::MakePlan(_))), "{key}");
        assert!(!matches!(model.mode(), Mode::Planning | Mode::Guide(_)), "{key}");
    }
    letters(&mut model, "d$");
    assert_eq!(title(&model), "nested-retries");
    assert!(matches!(press(&mut model, KeyCode::Enter).as_slice(), [Effect::MakePlan(_)]));
}

#[test]
fn it_goes_on_collecting_and_comes_back_to_now() {
    for back in [KeyCode::Char('p'), KeyCode::Char('$'), KeyCode::Char('>')] {
        let mut model = watched(NOW, None);
        press(&mut model, KeyCode::Left);
        assert_eq!(second(&model), NOW - 1);
        watch(&mut model, NOW + 1, NOW + 5, None);
        assert_eq!(second(&model), NOW - 1, "a refresh does not move it");
        assert_eq!(model.frozen.as_ref().map(|frozen| frozen.newer), Some(5));
        press(&mut model, back);
        assert!(model.frozen.is_none(), "{back:?}");
        assert_eq!(second(&model), NOW + 5);
        let known = |second| model.trends().and_then(|trends| trends.at("offered_rps", second));
        assert!((NOW..=NOW + 5).all(|second| known(second).is_some()), "nothing was missed");
    }
}

#[test]
fn it_moves_from_event_to_event_and_not_beyond_what_is_kept() {
    let mut model = watched(NOW, None);
    letters(&mut model, "E");
    let last = second(&model);
    letters(&mut model, "E");
    let before = second(&model);
    assert!(before < last && last < NOW, "{before} {last}");
    letters(&mut model, "e");
    assert_eq!(second(&model), last);
    letters(&mut model, "<<<");
    assert_eq!(second(&model), 0);
    letters(&mut model, "<");
    assert_eq!(second(&model), 0, "there is nothing before");
    let fresh = &mut support::watched(0, None);
    letters(fresh, "<");
    assert!(fresh.frozen.is_none(), "no past yet");
}

#[test]
fn charts_show_a_shorter_time_on_demand_and_the_moment_they_end_at() {
    let mut model = watched(1_200, None);
    let screen = look_at(&mut model, 200, 50);
    assert!(screen.contains("-28m30s"), "as far as is known: {screen}");
    letters(&mut model, "zzz");
    let screen = look_at(&mut model, 200, 50);
    assert!(screen.contains("-1m") && !screen.contains("-28m30s"), "{screen}");
    letters(&mut model, "<");
    let screen = look_at(&mut model, 200, 50);
    assert!(!screen.contains("now|") && screen.contains("09:19:00|"), "{screen}");
    letters(&mut model, "ZZZZZZZZ");
    assert_eq!(model.zoom_s, None);
}
