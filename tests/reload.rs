//! A configuration that is saved while the dashboard runs, and the first one, as a person meets them: on a
//! terminal.

mod pages;

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// How long a screen may take to show something.
const PATIENCE: Duration = Duration::from_mins(1);
const ROWS: u16 = 40;
const COLUMNS: u16 = 200;

/// What a terminal sends for F7.
const F7: &str = "\u{1b}[18~";

struct Terminal {
    _master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn open(folder: &Path, arguments: &[&str]) -> Self {
        let size = PtySize { rows: ROWS, cols: COLUMNS, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments);
        command.cwd(folder);
        command.env("TERM", "xterm-256color");
        command.env("XDG_STATE_HOME", folder.join("state"));
        for name in ["WEIR_CONFIG", "WEIR_THEME", "WEIR_ADMIN_TOKEN", "NO_COLOR", "COLORTERM"] {
            command.env_remove(name);
        }
        let child = pair.slave.spawn_command(command).expect("weir starts");
        drop(pair.slave);
        let cells = |count| NonZeroU16::new(count).expect("not zero");
        let parser = Arc::new(Mutex::new(vt100::Parser::new(cells(ROWS), cells(COLUMNS), 0)));
        let (mut reader, sink) =
            (pair.master.try_clone_reader().expect("a terminal"), Arc::clone(&parser));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..count]);
            }
        });
        let keys = pair.master.take_writer().expect("a terminal");
        Self { _master: pair.master, keys, child, parser }
    }

    fn contents(&self) -> String {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    #[track_caller]
    fn wait_for(&self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.contents().contains(wanted) {
            assert!(Instant::now() < until, "no `{wanted}` on\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("it reads");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_saved_file_is_taken_over_where_it_can_be_and_the_rest_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = |scope: &'static str| {
        pages::serve(move || {
            Some(format!("weir_originals_total{{scope=\"{scope}\"}} 1\n").into_bytes())
        })
    };
    let (one, other) = (page("first/scope"), page("second/scope"));
    let save = |environment: &str, name: &str, url: &str, rest: &str| {
        let source = format!("[[source]]\nname = '{name}'\nadapter = 'weir'\nurl = '{url}'\n");
        let text = format!("environment = '{environment}'\n{source}{rest}");
        std::fs::write(folder.path().join("weir.toml"), text).expect("written");
    };
    save("staging", "one", &one, "");
    let mut terminal = Terminal::open(folder.path(), &["watch"]);
    terminal.wait_for("q quit");
    // The timeline keeps what is said only for some seconds elsewhere.
    terminal.press("t");
    let keys = "[keys]\nfreeze = ['f7']\n[ui]\ntheme = 'high-contrast'\n";
    save("staging", "one", &one, keys);
    terminal.wait_for("weir.toml was read again, in force: ui, keys");
    terminal.press(F7);
    terminal.wait_for("FROZEN");
    terminal.press(F7);
    save("staging", "one", &one, "[ui]\ntheme = 'mauve'\n");
    terminal.wait_for("weir.toml:7:1: `ui.theme`: there is no theme `mauve`");
    terminal.wait_for("what was read before stays in force");
    save("production", "two", &other, keys);
    terminal.wait_for("in force: sources (rates need some seconds again)");
    terminal.wait_for("restart weir watch for: environment");
    terminal.wait_for("two");
}

#[test]
fn the_first_file_is_asked_for_on_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = pages::serve(|| Some(b"weir_originals_total 1\n".to_vec()));
    let mut terminal = Terminal::open(folder.path(), &["init", "--page", &page]);
    terminal.wait_for("take it? [Y/n]");
    terminal.press("\r");
    terminal.wait_for("Environment [production]:");
    terminal.press("night\r");
    terminal.wait_for("weir.toml is written");
    let written = std::fs::read_to_string(folder.path().join("weir.toml")).expect("written");
    assert!(written.contains("environment = \"night\"") && written.contains(&page), "{written}");
}
