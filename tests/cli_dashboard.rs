//! The dashboard where nothing can be written: it opens all the same and says what is off.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use weir::incident::recording::Reader;

/// How long a screen may take to show something.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs `weir` on a terminal without a place for the journal, opens the timeline, and returns the screen
/// once `part` is on it.
fn screen_with(home: &Path, args: &[&str], part: &str) -> String {
    let size = PtySize { rows: 60, cols: 200, ..PtySize::default() };
    let pair = native_pty_system().openpty(size).expect("a terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args);
    command.cwd(home);
    command.env("TERM", "xterm-256color");
    command.env("XDG_STATE_HOME", "/dev/null");
    command.env("TMPDIR", home);
    command.env("WEIR_TEST_TOKEN", "secret-of-the-test");
    let mut child = pair.slave.spawn_command(command).expect("weir starts");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("a terminal");
    let cells = |count| NonZeroU16::new(count).expect("not zero");
    let mut parser = vt100::Parser::new(cells(60), cells(200), 0);
    let mut keys = pair.master.take_writer().expect("a terminal");
    let mut bytes = [0; 4096];
    let until = Instant::now() + PATIENCE;
    for wanted in ["q quit", part] {
        while !parser.screen().contents().contains(wanted) {
            // The clock on the screen keeps the reader from waiting longer.
            assert!(Instant::now() < until, "no `{wanted}` on\n{}", parser.screen().contents());
            match reader.read(&mut bytes) {
                Ok(count @ 1..) => parser.process(&bytes[..count]),
                _ => panic!("it ended without `{wanted}`:\n{}", parser.screen().contents()),
            }
        }
        keys.write_all(b"t").expect("it reads");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    parser.screen().contents()
}

#[test]
fn watch_opens_without_a_journal_and_flips_are_off() {
    let home = tempfile::tempdir().expect("a folder");
    let text = "[[source]]\nname = 'gateway'\nadapter = 'weir'\nurl = 'http://127.0.0.1:1'\n\
                [flags]\nurl = 'http://127.0.0.1:1'\ntoken_env = 'WEIR_TEST_TOKEN'\n";
    std::fs::write(home.path().join("weir.toml"), text).expect("the folder can be written to");
    let screen = screen_with(home.path(), &["watch"], "flips are off");
    assert!(screen.contains("READ-ONLY"), "{screen}");
}

#[test]
fn a_drill_opens_without_a_journal_and_keeps_its_own() {
    let home = tempfile::tempdir().expect("a folder");
    let screen = screen_with(home.path(), &["drill"], "which goes with the drill");
    assert!(!screen.contains("READ-ONLY"), "{screen}");
}

#[test]
fn a_recording_opens_and_says_so_on_every_screen() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("storm.weir");
    let file = file.to_str().expect("UTF-8");
    let drill = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["drill", "--virtual", "--for", "30s", "--record", file])
        .output()
        .expect("weir starts");
    assert!(drill.status.success());
    let screen = screen_with(home.path(), &["replay", file, "--at", "25s"], "(shown then)");
    assert!(screen.contains("RECORDED") && screen.contains("READ-ONLY"), "{screen}");
}

#[test]
fn watch_records_what_it_hears_until_it_is_killed() {
    let home = tempfile::tempdir().expect("a folder");
    let text = "[[source]]\nname = 'gateway'\nadapter = 'weir'\nurl = 'http://127.0.0.1:1'\n";
    std::fs::write(home.path().join("weir.toml"), text).expect("the folder can be written to");
    screen_with(home.path(), &["watch", "--record", "a.weir"], "never answered");
    let reader = Reader::open(&home.path().join("a.weir")).expect("a recording");
    assert_eq!(reader.header().sources[0].name, "gateway");
    let info = reader.info().expect("a look");
    assert!(info.events.iter().any(|event| event.told.words().contains("down")), "{info:?}");
}

#[test]
fn a_drill_without_a_screen_says_how_to_reach_its_admin_api() {
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["drill", "--headless", "--for", "1s", "--json"])
        .env("TMPDIR", home.path())
        .output()
        .expect("weir starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("weir: admin http://127.0.0.1:"), "{said}");
    assert!(said.contains("admin-token (0600)"), "{said}");
}
