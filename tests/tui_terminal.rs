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

/// How long it may take to leave once it has to.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// Flags of a terminal: lines are edited, and what is typed is shown.
const ICANON_ECHO: u32 = 0o2 | 0o10;

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
    /// The reader has let the terminal go.
    unread: Arc<AtomicBool>,
}

/// What the kernel says a process does: `R`, `S`, `T` for stopped, `Z` for dead and not collected; `None`
/// when there is none.
fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until something is so.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Terminal {
    fn open(rows: u16, columns: u16, env: &[(&str, &str)]) -> Self {
        Self::open_with(rows, columns, env, &[])
    }

    /// With more arguments for the example.
    fn open_with(rows: u16, columns: u16, env: &[(&str, &str)], arguments: &[&str]) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(fixture());
        command.arg("60");
        command.args(arguments);
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
        let unread = Arc::new(AtomicBool::new(false));
        let let_go = Arc::clone(&unread);
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
            drop(output);
            let_go.store(true, Ordering::SeqCst);
        });
        let keys = pair.master.take_writer().expect("a writer");
        Self { master: Some(pair.master), keys: Some(keys), child, parser, written, gone, unread }
    }

    /// Whether the terminal tells what the mouse does.
    fn has_mouse(&self) -> bool {
        self.screen(vt100::Screen::mouse_protocol_mode) != vt100::MouseProtocolMode::None
    }

    fn id(&self) -> u32 {
        self.child.process_id().expect("it runs")
    }

    /// Whether the terminal edits and shows lines, as a shell leaves it.
    fn is_cooked(&self) -> bool {
        let master = self.master.as_ref().expect("it is open");
        let termios = master.get_termios().expect("a terminal has them");
        termios.local_flags.bits() & ICANON_ECHO == ICANON_ECHO
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.as_ref().expect("it is open").resize(size).expect("it resizes");
        let cells = |count: u16| NonZeroU16::new(count).expect("a terminal has cells");
        let mut parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
        parser.screen_mut().set_size(cells(rows), cells(columns));
    }

    /// Everything that was ever written.
    fn written(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
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
        let pid = Pid::from_raw(i32::try_from(self.id()).expect("a pid")).expect("not zero");
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

    /// It ends as fast as it has to, and nothing of it stays.
    #[track_caller]
    fn leaves_at_once(&mut self) -> ExitStatus {
        let (id, since) = (self.id(), Instant::now());
        let status = self.wait_for_exit();
        assert!(since.elapsed() < LEAVING_MAX, "it took {:?}", since.elapsed());
        assert_eq!(state_of(id), None, "something of it is left");
        status
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
        assert!(self.is_cooked(), "raw mode is on");
        assert!(!self.has_mouse(), "the mouse is taken");
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
        assert!(!terminal.is_cooked());
        terminal.signal(signal);
        assert!(terminal.leaves_at_once().success(), "{name}");
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
    wait_until("let go by the reader", || terminal.unread.load(Ordering::SeqCst));
    terminal.leaves_at_once();
}

#[test]
fn it_ends_when_the_tmux_server_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("weir-test-{}", std::process::id());
    let tmux = |arguments: &[&str]| {
        Command::new("tmux")
            .args(["-L", &name, "-f", "/dev/null"])
            .args(arguments)
            .env("TMUX_TMPDIR", folder.path())
            .env_remove("TMUX")
            .output()
            .expect("tmux, which tests/run.sh installs")
    };
    let example = fixture();
    let program = example.to_str().expect("a path that is text");
    let size = ["-x", "80", "-y", "24"];
    let started = tmux(&[&["new-session", "-d"], &size[..], &[program, "60"]].concat());
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    wait_until("drawn in tmux", || {
        String::from_utf8_lossy(&tmux(&["capture-pane", "-p"]).stdout).contains("nested-retries")
    });
    let shown = tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
    let process: u32 = String::from_utf8_lossy(&shown).trim().parse().expect("its process");
    let runs = std::fs::read_link(format!("/proc/{process}/exe")).expect("it runs");
    assert_eq!(runs, example.canonicalize().expect("it is there"));
    let since = Instant::now();
    assert!(tmux(&["kill-server"]).status.success());
    // Nobody here is its parent: it may stay as a name that is not collected, and runs no more.
    wait_until("ended", || matches!(state_of(process), None | Some('Z')));
    assert!(since.elapsed() < LEAVING_MAX, "it took {:?}", since.elapsed());
}

#[test]
fn it_stops_and_goes_on_with_the_terminal_given_back_between() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    for by_key in [true, false] {
        if by_key {
            terminal.press("\x1a");
        } else {
            terminal.signal(Signal::TSTP);
        }
        let id = terminal.id();
        wait_until("stopped", || state_of(id) == Some('T'));
        terminal.is_restored("");
        // The size may change meanwhile.
        let columns = if by_key { 120 } else { 100 };
        terminal.resize(30, columns);
        terminal.signal(Signal::CONT);
        terminal.wait_for("INCIDENT nested-retries");
        wait_until("on its own screen", || terminal.screen(vt100::Screen::alternate_screen));
        wait_until("in raw mode", || !terminal.is_cooked());
        let edge = usize::from(columns);
        wait_until("as wide as the terminal", || {
            terminal.screen(|screen| {
                let rows: Vec<String> = screen.rows(0, columns).collect();
                rows.len() == 30 && rows.iter().any(|row| row.chars().count() == edge)
            })
        });
    }
    // Each time once: that it goes on is no news to whoever has stopped itself.
    assert_eq!(terminal.written().matches("\x1b[?1049h").count(), 3);
    terminal.press("q");
    assert!(terminal.leaves_at_once().success());
    terminal.is_restored("Quit");
}

#[test]
fn after_a_stop_from_outside_it_takes_the_terminal_anew() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    let taken = |terminal: &Terminal| terminal.written().matches("\x1b[?1049h").count();
    assert_eq!(taken(&terminal), 1);
    terminal.signal(Signal::STOP);
    let id = terminal.id();
    wait_until("stopped", || state_of(id) == Some('T'));
    terminal.signal(Signal::CONT);
    wait_until("taken anew", || taken(&terminal) == 2);
    wait_until("in raw mode", || !terminal.is_cooked());
    // What was drawn before is gone with the screen, so this is a whole frame.
    terminal.wait_for("INCIDENT nested-retries");
    terminal.press("q");
    assert!(terminal.leaves_at_once().success());
    terminal.is_restored("Quit");
}

#[test]
fn what_is_pasted_is_text_where_text_is_typed_and_nothing_elsewhere() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    // Keys that would plan, leave, and press buttons.
    terminal.press("\x1b[200~cq\tq\r\x03q\r\n\x1b[201~");
    terminal.press("n");
    terminal.wait_for("note for journal and timeline");
    terminal.press("\x1b[200~rm -rf q\r\x1b:q?\x1b[201~");
    terminal.wait_for("rm -rf q :q?");
    terminal.press("!\x1b");
    wait_until("closed", || {
        !terminal.screen(|screen| screen.contents().contains("note for journal"))
    });
    terminal.wait_for("INCIDENT nested-retries");
    let written = terminal.written();
    for never in ["PLAN", "leave weir?", "what do you want to do?"] {
        assert!(!written.contains(never), "{never}");
    }
    terminal.press("q");
    assert!(terminal.leaves_at_once().success());
    terminal.is_restored("Quit");
}

#[test]
fn the_wheel_moves_rows_once_it_is_asked_for_and_a_click_does_nothing() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    assert!(!terminal.has_mouse(), "selecting text is the terminal's");
    terminal.press("M");
    wait_until("taken", || terminal.has_mouse());
    terminal.press("?");
    terminal.wait_for(" more rows ");
    let below = |screen: &vt100::Screen| {
        let text = screen.contents();
        let row = text.lines().find_map(|row| row.split_once(" more rows ")).unwrap_or_default().0;
        row.rsplit(' ').next().and_then(|count| count.parse::<usize>().ok())
    };
    let all = terminal.screen(below).expect("how many rows lie below");
    terminal.press("\x1b[<65;10;10M\x1b[<65;10;10M\x1b[<64;10;10M");
    wait_until("a row further", || terminal.screen(below) == Some(all - 1));
    terminal.press("q\x1b[<0;20;2M\x1b[<0;20;2m");
    wait_until("closed", || !terminal.screen(|screen| screen.contents().contains("more rows")));
    terminal.press("M");
    wait_until("given back", || !terminal.has_mouse());
    terminal.press("Mq");
    assert!(terminal.leaves_at_once().success());
    terminal.is_restored("Quit");
}

#[test]
fn a_panic_while_drawing_gives_the_terminal_back_and_is_reported() {
    let mut terminal = Terminal::open_with(24, 80, &[("RUST_BACKTRACE", "0")], &["frame"]);
    terminal.wait_for("INCIDENT nested-retries");
    let status = terminal.wait_for_exit();
    assert_eq!(status.exit_code(), 101);
    terminal.is_restored("panicked at");
    let screen = terminal.screen(vt100::Screen::contents);
    assert!(screen.contains("src/tui/view/"), "it says where:\n{screen}");
}

#[test]
fn a_task_that_panics_does_not_take_the_screen_away() {
    let mut terminal = Terminal::open_with(24, 80, &[("RUST_BACKTRACE", "0")], &["port"]);
    terminal.wait_for("INCIDENT nested-retries");
    terminal.press("8\r4711\r");
    wait_until("reported", || terminal.written().contains("the port broke over 4711"));
    terminal.wait_for("INCIDENT nested-retries");
    wait_until("on its own screen", || terminal.screen(vt100::Screen::alternate_screen));
    wait_until("in raw mode", || !terminal.is_cooked());
    terminal.press("t");
    terminal.wait_for("a task of weir failed, its answer will not come");
    terminal.press("oq");
    assert!(terminal.leaves_at_once().success());
    terminal.is_restored("Quit");
}

#[test]
fn four_keys_cure_the_storm_on_a_real_terminal() {
    let mut terminal = Terminal::open(24, 80, &[]);
    terminal.wait_for("INCIDENT nested-retries");
    terminal.press("d");
    terminal.wait_for("<< here");
    terminal.press("\r");
    terminal.wait_for("[ Cancel ]");
    // As long as a plan that has just appeared takes no keys; nothing on the screen tells.
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
        let before = terminal.written().len();
        terminal.resize(rows, columns);
        wait_until("drawn at its size, the verdict on the first line", || {
            let row = |screen: &vt100::Screen| screen.rows(0, columns).next().unwrap_or_default();
            terminal.written().len() > before && terminal.screen(row).contains('✗')
        });
    }
    // As fast as a window that is dragged.
    for step in 0..100 {
        terminal.resize(10 + step % 30, 40 + step);
    }
    terminal.resize(24, 80);
    terminal.wait_for("INCIDENT nested-retries  confirmed");
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
