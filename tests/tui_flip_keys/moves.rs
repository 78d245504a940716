//! What a person and the world may do next, at random: every key, and the steps of whole flips.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use proptest::prelude::*;
use weir::tui::app::action::{Key, REGISTRY};

/// A flag that may be made riskier without asking any signal, and a value that does.
pub const RISKY: [(&str, &str); 3] =
    [("queue.max_depth", "600"), ("queue.max_age_s", "30"), ("admission.max_in_flight", "200")];
pub const SAFE: [(&str, &str); 2] = [("queue.max_depth", "300"), ("queue.max_age_s", "5")];

#[derive(Clone, Debug)]
pub enum Move {
    /// Any key of the registry, or any other.
    Key(KeyEvent),
    Paste(String),
    /// The name that the plan on the screen asks for, without its last letters.
    Name {
        cut: usize,
        pasted: bool,
    },
    /// The keys that lead to a plan of one flag.
    Edit {
        risky: bool,
        which: usize,
    },
    Contain,
    /// The keys that arm, or nearly so.
    Arm {
        cut: usize,
    },
    Tabs(usize),
    Enter,
    /// The port's answer to the last wish.
    Answer(bool),
    /// A plan that nobody has wished for.
    Stray,
    Sent(usize),
    Flags(usize),
    Updated,
    Wait(u64),
    Draw(u16, u16),
    Resized,
}

/// Every key that means something somewhere.
fn registered() -> Vec<KeyEvent> {
    let letters = (' '..='~').map(KeyCode::Char);
    let named = [
        KeyCode::Enter,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(1),
    ];
    let plain = letters.chain(named).map(|code| KeyEvent::new(code, KeyModifiers::NONE));
    let ctrl =
        ('a'..='z').map(|letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    let is_known = |event: &KeyEvent| {
        let key = Key::of(*event);
        key.is_some_and(|key| REGISTRY.iter().any(|entry| entry.keys.contains(&key)))
    };
    let known: Vec<_> = plain.chain(ctrl).filter(is_known).collect();
    let all = REGISTRY.iter().flat_map(|entry| entry.keys);
    let forgotten: Vec<_> = all
        .filter(|key| !known.iter().any(|event| Key::of(*event).as_ref() == Some(key)))
        .collect();
    let ends: Vec<_> = forgotten.iter().map(std::string::ToString::to_string).collect();
    assert!(ends.is_empty(), "add these keys to the list above: {ends:?}");
    known
}

fn moves() -> impl Strategy<Value = Move> {
    let kinds = || prop::sample::select(vec![KeyEventKind::Repeat, KeyEventKind::Release]);
    let modifiers = [KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::SHIFT];
    let modifiers = prop::sample::select(modifiers.to_vec());
    let key = prop_oneof![
        6 => prop::sample::select(registered()),
        2 => prop::char::range(' ', '~').prop_map(|letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)),
        1 => (prop::sample::select(registered()), modifiers)
            .prop_map(|(key, more)| KeyEvent::new(key.code, more)),
        1 => (prop::sample::select(registered()), kinds())
            .prop_map(|(key, kind)| KeyEvent::new_with_kind(key.code, key.modifiers, kind)),
    ];
    let cut = prop_oneof![4 => Just(0_usize), 2 => 1_usize..4];
    prop_oneof![
        8 => key.prop_map(Move::Key),
        1 => "[a-z._\n\r]{1,24}".prop_map(Move::Paste),
        5 => (cut, prop::bool::weighted(0.3)).prop_map(|(cut, pasted)| Move::Name { cut, pasted }),
        4 => (prop::bool::weighted(0.7), 0_usize..6).prop_map(|(risky, which)| Move::Edit { risky, which }),
        2 => Just(Move::Contain),
        2 => prop_oneof![3 => Just(0_usize), 1 => 1_usize..3].prop_map(|cut| Move::Arm { cut }),
        1 => Just(Move::Wait(15 * 60 * 1_000)),
        6 => (0_usize..4).prop_map(Move::Tabs),
        6 => Just(Move::Enter),
        6 => prop::bool::weighted(0.9).prop_map(Move::Answer),
        1 => Just(Move::Stray),
        3 => (0_usize..4).prop_map(Move::Sent),
        2 => (0_usize..3).prop_map(Move::Flags),
        2 => Just(Move::Updated),
        5 => prop_oneof![0_u64..300, Just(299), Just(300), 300_u64..2_000].prop_map(Move::Wait),
        4 => (60_u16..200, 20_u16..60).prop_map(|(width, height)| Move::Draw(width, height)),
        1 => Just(Move::Resized),
    ]
}

/// The steps of one flip as a person makes them, some left out and one put between: what is close to
/// enough is the likeliest to be taken for enough.
fn flow() -> impl Strategy<Value = Vec<Move>> {
    let kept = prop::collection::vec(prop::bool::weighted(0.92), 9);
    let cut = prop_oneof![3 => Just(0_usize), 1 => 1_usize..3];
    let wait = prop_oneof![1 => Just(299_u64), 1 => Just(300), 4 => Just(500)];
    let between = prop::option::of((moves(), 0_usize..9));
    (any::<bool>(), 0_usize..6, cut, wait, kept, between).prop_map(
        |(risky, which, cut, wait, kept, between)| {
            let all = [
                Move::Edit { risky, which },
                Move::Answer(true),
                Move::Draw(120, 40),
                Move::Wait(wait),
                Move::Tabs(1),
                Move::Name { cut, pasted: which > 3 },
                Move::Tabs(if risky { 2 } else { 0 }),
                Move::Enter,
                Move::Sent(which % 4),
            ];
            let kept = all.into_iter().zip(kept).filter(|(_, keep)| *keep);
            let mut steps: Vec<_> = kept.map(|(step, _)| step).collect();
            if let Some((step, at)) = between {
                steps.insert(at.min(steps.len()), step);
            }
            steps
        },
    )
}

/// Many moves, flips among them.
pub fn runs() -> impl Strategy<Value = Vec<Move>> {
    let chunk = prop_oneof![8 => moves().prop_map(|step| vec![step]), 1 => flow()];
    prop::collection::vec(chunk, 20..140).prop_map(|chunks| chunks.concat())
}
