//! No size and no sequence of keys and updates panics, and no key alone changes a flag.

#[path = "tui_support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Msg, update};
use weir::tui::theme::{ASCII, Depth, UNICODE};
use weir::tui::view::render;
use weir::tui::{Appearance, Update};

#[derive(Clone, Debug)]
enum Move {
    Key(KeyCode, bool),
    Update(bool),
    Plan,
    Flags(bool),
    Wait(u64),
    Draw(u16, u16),
}

fn moves() -> impl Strategy<Value = Move> {
    let code = prop_oneof![
        prop::sample::select("dfct?pn ujkgGwxrqoSm[]e12345678:/a.".chars().collect::<Vec<_>>())
            .prop_map(KeyCode::Char),
        Just(KeyCode::Enter),
        Just(KeyCode::Tab),
        Just(KeyCode::BackTab),
        Just(KeyCode::Esc),
        Just(KeyCode::Backspace),
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::PageDown),
    ];
    prop_oneof![
        8 => (code, prop::bool::weighted(0.05)).prop_map(|(code, ctrl)| Move::Key(code, ctrl)),
        2 => any::<bool>().prop_map(Move::Update),
        2 => Just(Move::Plan),
        1 => any::<bool>().prop_map(Move::Flags),
        1 => (0_u64..2_000).prop_map(Move::Wait),
        2 => (1_u16..250, 1_u16..120).prop_map(|(width, height)| Move::Draw(width, height)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_only_the_apply_button_changes(
        steps in prop::collection::vec(moves(), 1..120),
        seconds in 0_u64..40,
        mono in any::<bool>(),
    ) {
        let look = if mono {
            Appearance { depth: Depth::Mono, glyphs: &ASCII }
        } else {
            Appearance { depth: Depth::TrueColor, glyphs: &UNICODE }
        };
        let mut model = support::watched(seconds, None);
        let mut now = model.now;
        let mut second = seconds;
        let mut wish = None;
        for step in steps {
            let on_apply = matches!(
                model.mode(),
                Mode::Plan(dialog) if dialog.focus == weir::tui::app::flip::Focus::Apply
            );
            let effects = match step {
                Move::Key(code, ctrl) => {
                    let modifiers = if ctrl { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
                    update(&mut model, Msg::Key(KeyEvent::new(code, modifiers)), now)
                }
                Move::Update(empty) => {
                    second += 1;
                    let mut round = support::round(second, None);
                    if empty {
                        let mut observation = (*round.observation).clone();
                        observation.scopes.clear();
                        round = Update::new(Arc::new(observation), Vec::new());
                    }
                    update(&mut model, Msg::Updated(Arc::new(round)), now)
                }
                Move::Plan => match wish.take() {
                    Some(Effect::MakePlan(wish)) => {
                        let plan = wish.plan(&support::table(), "id".to_owned());
                        update(&mut model, Msg::Planned(plan.map_err(|error| error.to_string())), now)
                    }
                    _ => Vec::new(),
                },
                Move::Flags(good) => {
                    let answer = if good { Ok(support::table()) } else { Err("refused".to_owned()) };
                    update(&mut model, Msg::Flags(answer), now)
                }
                Move::Wait(millis) => {
                    now = now + Duration::from_millis(millis);
                    update(&mut model, Msg::Tick(support::wall(second)), now)
                }
                Move::Draw(width, height) => {
                    let area = Rect::new(0, 0, width, height);
                    match render(&model, &look, area, &mut Buffer::empty(area)) {
                        Some(visible) => update(&mut model, Msg::Drawn(visible), now),
                        None => Vec::new(),
                    }
                }
            };
            if let Mode::Page(page, list) = model.screen()
                && let Some(chosen) = &list.row
            {
                let is_there = model.rows(*page, list).contains(chosen);
                let under = model.row_under_cursor(*page, list);
                prop_assert!(!is_there || under.as_ref() == Some(chosen), "{under:?} for {chosen}");
            }
            for effect in effects {
                if matches!(effect, Effect::Apply(_)) {
                    prop_assert!(on_apply, "applied without the button");
                }
                if matches!(effect, Effect::MakePlan(_)) {
                    wish = Some(effect);
                }
            }
            prop_assert!(matches!(model.modes.first(), Some(Mode::Overview)));
            prop_assert!(model.modes.len() < 200);
        }
    }
}
