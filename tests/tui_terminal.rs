//! The dashboard in a real pseudo-terminal: it comes up, obeys, and always gives the terminal back.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

static BUILT: Once = Once::new();

/// The example that shows canned numbers. `cargo test` builds it; `cargo test --test tui_terminal`
/// does not, so it is built here when it is missing.
fn fixture() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/test");
    let example = profile.join("examples/tui_fixture");
    BUILT.call_once(|| {
        if !example.exists() {
            let build = ["build", "--quiet", "--example", "tui_fixture"];
            let status = Command::new(env!("CARGO")).args(build).status().expect("cargo runs");
            assert!(status.success(), "the example does not build");
        }
    });
    example
}

struct Terminal {
    master: Option<Box<dyn MasterPty + Send>>,
    keys: Option<Box<dyn Write + Send>>,
    child: Box<dyn Child + Send + Sync>,
    parser: Arc<Mutex<vt100::Parser>>,
    /// Every byte that was written.
    written: Arc<Mutex<Vec<u8>>>,
    gone: Arc<AtomicBool>,
}

impl Terminal {
    fn open(rows: u16, columns: u16, env: &[(&str, &str)]) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(fixture());
        command.arg("60");
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        command.env_remove("COLORTERM");
        for (name, value) in env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("the example starts");
        drop(pair.slave);
        let cells = |count: u16| NonZeroU16::new(count).expect("a terminal has cells");
        let parser = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let mut output = pair.master.try_clone_reader().expect("a reader");
        let sink = Arc::clone(&parser);
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let gone = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&gone);
        std::thread::spawn(move || {
            let mut bytes = [0; 8_192];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                log.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..count]);
                sink.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..count]);
                // The reader holds the terminal open as well; the next frame lets it go.
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let keys = pair.master.take_writer().expect("a writer");
        Self { master: Some(pair.master), keys: Some(keys), child, parser, written, gone }
    }

    fn screen<T>(&self, look: impl Fn(&vt100::Screen) -> T) -> T {
        look(self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    #[track_caller]
    fn wait_for(&self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.screen(|screen| screen.contents().contains(wanted)) {
            assert!(
                Instant::now() < until,
                "no {wanted:?} on\n{}",
                self.screen(vt100::Screen::contents)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        let writer = self.keys.as_mut().expect("the terminal is open");
        writer.write_all(keys.as_bytes()).and_then(|()| writer.flush()).expect("the child reads");
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.process_id().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(id).expect("a pid")).expect("not zero");
        kill_process(pid, signal).expect("it can be signalled");
    }

    #[track_caller]
    fn wait_for_exit(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < until, "still alive");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The shell's screen is back, with a cursor, and says how the dashboard ended.
    #[track_caller]
    fn is_restored(&self, reason: &str) {
        // What the child wrote last may not have been read yet when it has ended.
        let until = Instant::now() + PATIENCE;
        while self.screen(vt100::Screen::alternate_screen) {
            assert!(Instant::now() < until, "still on the alternate screen");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.wait_for(reason);
        assert!(!self.screen(vt100::Screen::hide_cursor), "the cursor is hidden");
        assert!(!self.screen(vt100::Screen::bracketed_paste), "bracketed paste is on");
        assert!(
            !self.screen(|screen| screen.contents().contains("INCIDENT")),
            "the frame is left behind"
        );
    }
}

#[test]
fn it_leaves_on_q_and_gives_the_terminal_back() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    assert!(terminal.screen(vt100::Screen::alternate_screen));
    terminal.press("q");
    assert!(terminal.wait_for_exit().success());
    terminal.is_restored("Quit");
}

#[test]
fn signals_end_it_and_give_the_terminal_back() {
    for (signal, name) in
        [(Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP"), (Signal::INT, "SIGINT")]
    {
        let mut terminal = Terminal::open(24, 80, &[]);
        terminal.wait_for("INCIDENT nested-retries");
        terminal.signal(signal);
        assert!(terminal.wait_for_exit().success(), "{name}");
        terminal.is_restored(name);
    }
}

#[test]
fn it_ends_when_the_terminal_is_gone() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    terminal.gone.store(true, Ordering::SeqCst);
    terminal.keys = None;
    terminal.master = None;
    terminal.wait_for_exit();
}

#[test]
fn four_keys_cure_the_storm_on_a_real_terminal() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    terminal.press("d");
    terminal.wait_for("<< here");
    terminal.press("\r");
    terminal.wait_for("[ Cancel ]");
    std::thread::sleep(Duration::from_millis(350));
    terminal.press("\t");
    terminal.wait_for("[ Apply ]");
    terminal.press("\r");
    terminal.wait_for("contain applied at revision 42");
    terminal.press("o");
    terminal.wait_for("gate ENFORCE");
    terminal.wait_for("held, now demand-over-capacity");
    // The flip is in force: leaving asks, and Enter leaves.
    terminal.press("q");
    terminal.wait_for("leave weir?");
    terminal.press("\r");
    assert!(terminal.wait_for_exit().success());
    terminal.is_restored("admission.mode");
}

#[test]
fn the_selection_is_seen_without_colour() {
    let mut terminal = Terminal::open(24, 80, &[("NO_COLOR", "1")]);
    terminal.wait_for("INCIDENT nested-retries");
    terminal.press("f");
    terminal.wait_for("revision 41");
    let (inverse, coloured) = terminal.screen(|screen| {
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        cells.filter_map(|(row, column)| screen.cell(row, column)).fold(
            (0, 0),
            |(inverse, coloured), cell| {
                let colour = cell.fgcolor() != vt100::Color::Default
                    || cell.bgcolor() != vt100::Color::Default;
                (inverse + usize::from(cell.inverse()), coloured + usize::from(colour))
            },
        )
    });
    assert!(inverse > 20, "{inverse} cells in reverse");
    assert_eq!(coloured, 0);
    terminal.press("qq");
    assert!(terminal.wait_for_exit().success());
}

#[test]
fn it_survives_a_storm_of_sizes() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    for (rows, columns) in [(1, 1), (50, 200), (10, 40), (9, 39), (80, 250), (3, 120), (24, 80)] {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        terminal.master.as_ref().expect("it is open").resize(size).expect("it resizes");
        std::thread::sleep(Duration::from_millis(60));
    }
    terminal.press("q");
    assert!(terminal.wait_for_exit().success());
}

#[test]
fn a_copy_of_the_screen_goes_to_the_terminal_s_clipboard() {
    let mut terminal = Terminal::open(24, 80, &[("TMUX", "")]);
    terminal.wait_for("nested-retries");
    terminal.press("y");
    terminal.wait_for("to the clipboard");
    let written = terminal.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let head = b"\x1b]52;c;";
    let start = written.windows(head.len()).position(|bytes| bytes == head).expect("OSC 52");
    let rest = &written[start + head.len()..];
    let end = rest.iter().position(|byte| *byte == 7).expect("its end");
    let copied = STANDARD.decode(&rest[..end]).expect("base64");
    let copied = String::from_utf8(copied).expect("text");
    assert!(copied.contains("nested-retries") && copied.contains("next:"), "{copied}");
    assert_eq!(copied.lines().count(), 24);
    // One for the terminal, and one through tmux.
    let heads = written.windows(4).filter(|bytes| bytes == b"]52;").count();
    assert_eq!(heads, 2);
    terminal.press("qq");
}
