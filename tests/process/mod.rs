//! A process of weir that has said where it listens, and ends with the value or with the test.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub struct Process {
    /// The process itself, for whoever ends it in another way.
    pub child: Child,
    ready: Value,
}

impl Process {
    /// Starts `weir` with these arguments; what it keeps, it keeps below `home`.
    pub fn start(arguments: &[&str], home: &Path) -> Self {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        Self::of(weir.args(arguments).arg("--exit-on-stdin-eof"), home)
    }

    /// The same for a command that ends in `weir`, with `--exit-on-stdin-eof` among its arguments.
    pub fn of(command: &mut Command, home: &Path) -> Self {
        let mut child = command
            .env("XDG_STATE_HOME", home.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("weir starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("UTF-8");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { child, ready }
    }

    /// One of the addresses that it says.
    pub fn address(&self, key: &str) -> SocketAddr {
        let address = self.ready[key].as_str().unwrap_or_else(|| panic!("{}", self.ready));
        address.trim_start_matches("http://").parse().expect("an address")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
