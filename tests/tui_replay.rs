//! The dashboard on a recording: it says so, follows it both ways, and changes nothing.

#[path = "tui_support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::FixedOffset;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use support::{SCOPE, at, round, snapshot, start, wall};
use weir::incident::recording::{EventAt, Told};
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::theme::{ASCII, Depth};
use weir::tui::view::render;
use weir::tui::{Appearance, Playhead, Seek, Update};

const PLAIN: Appearance = Appearance { depth: Depth::Mono, glyphs: &ASCII };
const LAST: u64 = 300;

fn playhead(second: u64, jump: u64) -> Playhead {
    let told = |second, text: &str| EventAt {
        at: at(second),
        wall: wall(second),
        told: Told::Notice(text.to_owned()),
    };
    let trends = |seconds: Vec<u64>| {
        let samples =
            seconds.into_iter().map(|second| (at(second), Arc::new(snapshot(second, None))));
        Arc::new(BTreeMap::from([(SCOPE.to_owned(), samples.collect())]))
    };
    let begin = second.saturating_sub(60);
    Playhead {
        at: at(second),
        from: at(0),
        to: at(LAST),
        zero: at(0),
        speed: 4.0,
        is_playing: true,
        jump,
        events: Arc::from([told(12, "somebody deployed"), told(200, "set mode = enforce")]),
        lead: trends((begin..second).collect()),
        past: trends((0..begin).step_by(15).collect()),
        trouble: None,
    }
}

fn show(model: &mut Model, head: Playhead) {
    let second = head.at.since_start().as_secs();
    let playhead = Some(Arc::new(head));
    let shown = Update { playhead, ..round(second, None) };
    // The screen's own clock is somewhere else altogether.
    update(model, Msg::Updated(Arc::new(shown)), at(7));
    update(model, Msg::Tick(wall(99_999)), at(7));
}

fn replayed(second: u64) -> Model {
    let zone = FixedOffset::east_opt(3_600).expect("a valid offset");
    let mut model = Model::new("replay", "production", zone, start());
    show(&mut model, playhead(second, 1));
    model
}

fn screen(model: &Model, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    render(model, &PLAIN, area, &mut buffer);
    let rows =
        (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n");
    rows.collect()
}

fn texts(model: &Model) -> Vec<String> {
    model.timeline.newest_first().map(|event| event.text.clone()).collect()
}

#[test]
fn every_screen_says_that_it_is_recorded_and_when() {
    for (width, height) in [(200, 50), (80, 24), (60, 16), (40, 10), (30, 8), (30, 3)] {
        let shown = screen(&replayed(250), width, height);
        assert!(shown.contains("RECORDED 09:04:10"), "{width}x{height}\n{shown}");
    }
    let shown = screen(&replayed(250), 120, 30);
    assert!(shown.contains("of 5m"), "{shown}");
    assert!(shown.contains("x4"), "{shown}");
}

#[test]
fn ages_are_those_of_then() {
    let model = replayed(250);
    assert_eq!(model.now, at(250));
    assert_eq!(model.wall, wall(250));
    assert_eq!(model.observation_age_s(), Some(0.0));
}

#[test]
fn a_jump_leaves_nothing_behind_that_is_not_of_the_past() {
    let mut model = replayed(250);
    assert!(texts(&model).iter().any(|text| text.contains("enforce")));
    let trend = |model: &Model, second| {
        model.trends().and_then(|trends| trends.at("amplification", second))
    };
    assert!(trend(&model, 249).is_some() && trend(&model, 30).is_some());
    show(&mut model, playhead(100, 2));
    assert_eq!(model.now, at(100));
    assert_eq!(model.trends_end(), 100);
    assert!(trend(&model, 249).is_none());
    assert!(trend(&model, 99).is_some() && trend(&model, 20).is_some());
    let events = texts(&model);
    assert!(events.iter().any(|text| text.contains("deployed")), "{events:?}");
    assert!(!events.iter().any(|text| text.contains("enforce")), "{events:?}");
}

#[test]
fn playing_over_what_was_told_shows_it_once() {
    let mut model = replayed(198);
    let flips = |model: &Model| texts(model).iter().filter(|text| text.contains("enforce")).count();
    for (second, expected) in [(199, 0), (203, 1), (203, 1), (204, 1)] {
        show(&mut model, playhead(second, 1));
        assert_eq!(flips(&model), expected, "at {second}");
    }
}

#[test]
fn what_stood_before_a_jump_is_not_dated_by_the_jump() {
    let model = replayed(150);
    let told: Vec<_> = model.timeline.newest_first().map(|event| event.wall).collect();
    assert_eq!(told, [wall(12)], "{:?}", texts(&model));
}

#[test]
fn playing_on_keeps_what_was_shown() {
    let mut model = replayed(100);
    let before = model.timeline.len();
    for second in 101..=110 {
        show(&mut model, Playhead { jump: 1, ..playhead(second, 1) });
    }
    assert_eq!(model.now, at(110));
    assert_eq!(model.timeline.len(), before, "nothing new has happened");
    assert_eq!(model.trends_end(), 110);
}

#[test]
fn keys_move_the_recording_and_change_nothing() {
    let mut model = replayed(100);
    let mut press = |code| {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        update(&mut model, Msg::Key(key), at(100) + Duration::from_millis(1))
    };
    for (code, wanted) in [
        (KeyCode::Char(' '), Seek::PlayPause),
        (KeyCode::Char('p'), Seek::PlayPause),
        (KeyCode::Right, Seek::By(1)),
        (KeyCode::Left, Seek::By(-1)),
        (KeyCode::Char('.'), Seek::By(10)),
        (KeyCode::Char(','), Seek::By(-10)),
        (KeyCode::Char('>'), Seek::By(60)),
        (KeyCode::Char('<'), Seek::By(-60)),
        (KeyCode::Char('e'), Seek::NextEvent),
        (KeyCode::Char('E'), Seek::PreviousEvent),
        (KeyCode::Char('0'), Seek::Start),
        (KeyCode::Char('$'), Seek::End),
        (KeyCode::Char('+'), Seek::Faster),
        (KeyCode::Char('-'), Seek::Slower),
    ] {
        let effects = press(code);
        assert!(
            matches!(&effects[..], [Effect::Seek(to)] if *to == wanted),
            "{code:?}: {effects:?}"
        );
    }
    for letter in ['c', 'u', 'n', 'S'] {
        assert!(press(KeyCode::Char(letter)).is_empty(), "{letter}");
    }
    let live = support::watched(60, None);
    assert!(live.playhead.is_none());
}

#[test]
fn what_stops_a_recording_stands_on_the_screen() {
    let mut model = replayed(100);
    let trouble = Some("recording a.weir, byte 900: a frame is not what was written".to_owned());
    show(&mut model, Playhead { trouble, ..playhead(100, 1) });
    assert!(screen(&model, 120, 30).contains("byte 900"));
}
