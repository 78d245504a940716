//! A server of a test's own: a child on loopback that can be frozen, thawed and killed, and that ends with
//! the value.

#![allow(dead_code, reason = "each server uses a part of it")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest that a server may take to start.
pub const START_MAX: Duration = Duration::from_secs(20);

/// The child.
pub struct LocalProcess(Child);

impl LocalProcess {
    /// Starts a program without a word of its own; `package` is what it comes with.
    pub fn start(command: &mut Command, package: &str) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| {
            let program = command.get_program().display().to_string();
            panic!("this test runs {program}: {error}; install {package}, as tests/run.sh does")
        }))
    }

    pub fn id(&self) -> Pid {
        i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a process")
    }

    /// Every connection stays open, nothing answers.
    pub fn freeze(&self) {
        kill_process(self.id(), Signal::STOP).expect("our own child");
    }

    pub fn thaw(&self) {
        kill_process(self.id(), Signal::CONT).expect("our own child");
    }

    /// Without a word, as by the kernel.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that nobody has now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound").port()
}

/// So many different ones.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback"));
    held.map(|listener| listener.local_addr().expect("bound").port())
}

/// Waits until the server answers.
pub fn wait_until(what: &str, mut answers: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !answers() {
        assert!(begun.elapsed() < START_MAX, "{what} does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}
