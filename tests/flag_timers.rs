//! Timers of a store that has none, between processes: two running dashboards hear of a flip that a shell
//! has made, and one of them leads it back.

mod eventually;

use std::io::Read as _;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use eventually::eventually;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

const CONFIG: &str = "\
[[source]]
name = 'gateway'
adapter = 'weir'
url = 'http://127.0.0.1:1'

[flags]
kind = 'flagd'
file = 'flags.json'
";

/// A dashboard that runs until this is dropped.
struct Dashboard {
    child: Box<dyn Child + Send + Sync>,
    parser: Arc<Mutex<vt100::Parser>>,
    _master: Box<dyn MasterPty + Send>,
}

impl Dashboard {
    fn open(home: &Path) -> Self {
        let size = PtySize { rows: 40, cols: 140, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["watch", "-c", "weir.toml"]);
        command.cwd(home);
        command.env("TERM", "xterm-256color");
        command.env("HOME", home);
        command.env("XDG_STATE_HOME", home.join("state"));
        let child = pair.slave.spawn_command(command).expect("weir starts");
        drop(pair.slave);
        let cells = |count| NonZeroU16::new(count).expect("not zero");
        let parser = Arc::new(Mutex::new(vt100::Parser::new(cells(40), cells(140), 0)));
        let mut reader = pair.master.try_clone_reader().expect("a terminal");
        let mut keys = pair.master.take_writer().expect("a terminal");
        std::io::Write::write_all(&mut keys, b"f").expect("it reads");
        let shown = Arc::clone(&parser);
        std::thread::spawn(move || {
            // The keyboard stays plugged in for as long as the screen is read.
            let _keys = keys;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..count]);
            }
        });
        Self { child, parser, _master: pair.master }
    }

    fn screen(&self) -> String {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    async fn shows(&self, part: &str) {
        eventually(part, async || self.screen().contains(part).then_some(())).await;
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weir(home: &Path, args: &[&str]) -> (bool, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .current_dir(home)
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("WEIR_ACTOR", "alice")
        .output()
        .expect("weir starts");
    let said = [ran.stdout, ran.stderr].concat();
    (ran.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn a_flip_from_a_shell_is_led_back_once_by_dashboards_that_run_already() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("weir.toml"), CONFIG).expect("the disk is there");
    std::fs::write(home.path().join("flags.json"), "{\"flags\": {}}").expect("the disk is there");
    let dashboards = [Dashboard::open(home.path()), Dashboard::open(home.path())];
    for one in &dashboards {
        one.shows("cache.enabled").await;
    }
    let change = ["flag", "set", "cache.enabled=true", "--reason", "trying", "--yes"];
    let (is_set, said) = weir(home.path(), &[&change[..], &["--ttl", "4s"]].concat());
    assert!(is_set && said.contains("only while a `weir watch` runs"), "{said}");
    for one in &dashboards {
        one.shows("  reverts ").await;
    }
    let flags = || std::fs::read_to_string(home.path().join("flags.json")).expect("it is there");
    eventually("it is led back", async || (!flags().contains("\"override\"")).then_some(())).await;
    for one in &dashboards {
        one.shows("timer ").await;
        eventually("it is gone", async || (!one.screen().contains("  reverts ")).then_some(()))
            .await;
    }
    let journal = home.path().join("state/weir/journal.jsonl");
    let lines = || std::fs::read_to_string(&journal).expect("it is there");
    // Flip and outcome of the shell, flip and outcome of the one that was faster.
    eventually("it is written down", async || (lines().lines().count() >= 4).then_some(())).await;
    let text = lines();
    assert_eq!(text.matches("\"timer_of\"").count(), 1, "one of them: {text}");
    assert_eq!(text.matches("\"kind\":\"outcome\"").count(), 2, "{text}");
    let (is_whole, said) = weir(home.path(), &["audit", "verify"]);
    assert!(is_whole, "{said}");
    let (_, events) = weir(home.path(), &["flag", "events"]);
    assert!(events.contains("timer (revision") && events.contains("ran out"), "{events}");
}
