//! What a store lacks, on the flags screen, in the plan, and when weir is left.

use crossterm::event::KeyCode;
use weir::flag::{self, Capabilities, CompareAndSet, Plan, Terms};
use weir::tui::StoreFace;
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, update};

use super::support::{look_at, wall};
use super::{COLOUR, PLAIN, contained, press, shot};

/// The screen on a store without lock, timer, history and word of what instances use.
fn in_a_poor_store() -> Model {
    let mut model = contained();
    "production".clone_into(&mut model.environment);
    let able = Capabilities {
        compare_and_set: CompareAndSet::None,
        all_or_none: false,
        timer: false,
        restores: true,
        audit: false,
        effective: false,
        comment: false,
    };
    model.store = Some(StoreFace { name: "Envoy 127.0.0.1:9901".to_owned(), able });
    let table = model.flags.table.as_mut().expect("a table");
    for flag in &mut table.flags {
        flag.effective.clear();
        flag.expires = flag.overridden.is_some().then(|| wall(960));
    }
    for flip in &mut model.flips {
        flip.reach = None;
    }
    model
}

#[test]
fn what_a_store_lacks_is_on_the_flags_screen_and_in_the_plan() {
    let mut model = in_a_poor_store();
    press(&mut model, KeyCode::Char('f'));
    insta::assert_snapshot!("flags-poor-store-80x24", shot(&model, &COLOUR, 80, 24));
    insta::assert_snapshot!("flags-poor-store-120x40", shot(&model, &PLAIN, 120, 40));
    let table = model.flags.table.clone().expect("a table");
    let changes = flag::wanted(&["cache.enabled=true", "adaptive.enabled=false"]).expect("flags");
    let terms = Terms { request_id: "id-2".to_owned(), ..Terms::default() };
    let plan = flag::plan("two", &table, &changes, &flag::Evidence::default(), terms);
    // Both of its timers lead back to safe.
    let plan = Plan { on_expire: flag::OnExpire::Revert, ..plan.expect("a plan") };
    let now = model.now;
    model.modes.push(Mode::Planning);
    update(&mut model, Msg::Planned(Ok(plan)), now);
    look_at(&mut model, 80, 24);
    insta::assert_snapshot!("plan-poor-store-80x24", shot(&model, &COLOUR, 80, 24));
}

#[test]
fn leaving_says_which_timers_go_with_weir() {
    let mut model = in_a_poor_store();
    // Also for a flip of an earlier run.
    model.flips.clear();
    for flag in &mut model.flags.table.as_mut().expect("a table").flags {
        flag.on_expire = flag.expires.map(|_| flag::OnExpire::Revert);
    }
    assert!(press(&mut model, KeyCode::Char('q')).is_empty(), "it asks");
    insta::assert_snapshot!("leaving-80x24-plain", shot(&model, &PLAIN, 80, 24));
    model.store = None;
    press(&mut model, KeyCode::Esc);
    assert!(matches!(press(&mut model, KeyCode::Char('q')).as_slice(), [Effect::Leave]));
}

#[test]
fn a_reminder_is_named_one_and_what_passed_interlocks_is_marked() {
    let mut model = in_a_poor_store();
    press(&mut model, KeyCode::Char('f'));
    let table = model.flags.table.as_mut().expect("a table");
    let mut held = table.flags.iter_mut().filter(|flag| flag.overridden.is_some());
    let first = held.next().expect("an override");
    first.by = Some("bob (break-glass)".to_owned());
    first.on_expire = Some(flag::OnExpire::Revert);
    let wide = shot(&model, &PLAIN, 140, 40);
    let rows = |word: &str| wide.lines().filter(|row| row.contains(word)).count();
    assert_eq!(rows("bob (break-glass) 09:01:01  reverts 09:16:00"), 1, "{wide}");
    assert_eq!(rows("  reminder 09:16:00"), 2, "{wide}");
    assert_eq!(rows("  timer "), 0, "{wide}");
    let narrow = shot(&model, &PLAIN, 80, 24);
    assert!(narrow.contains("BREAK-GLASS"), "{narrow}");
}
