//! A real Redis on a free loopback port, that can be stopped, killed and started again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest that a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// The server; killed when dropped.
pub struct RedisServer {
    address: SocketAddr,
    child: Child,
    data: tempfile::TempDir,
}

impl RedisServer {
    /// An empty server that answers.
    pub fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let child = spawn(address, &data);
        let server = Self { address, child, data };
        server.wait();
        server
    }

    /// Where it is, as the configuration writes it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Every connection stays open, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Without a word, as by the kernel; what it knew is lost.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Anew, at the same address, knowing nothing.
    pub fn restart(&mut self) {
        self.child = spawn(self.address, &self.data);
        self.wait();
    }

    /// What one command answers, as it comes.
    pub fn ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(START_MAX))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    fn wait(&self) {
        let begun = Instant::now();
        while !self.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG")) {
            assert!(begun.elapsed() < START_MAX, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, signal).expect("our own child");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(address: SocketAddr, data: &tempfile::TempDir) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(data.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("this test runs redis-server: {error}; install the redis-server package")
        })
}
