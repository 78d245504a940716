//! A real Redis on a free loopback port, that can be stopped, killed and started again.

#[path = "../local_process/mod.rs"]
mod local_process;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use local_process::{LocalProcess, START_MAX, free_port, wait_until};

/// The server; killed when dropped.
pub struct RedisServer {
    address: SocketAddr,
    process: LocalProcess,
    data: tempfile::TempDir,
}

impl RedisServer {
    /// An empty server that answers.
    pub fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = spawn(address, &data);
        let server = Self { address, process, data };
        server.wait();
        server
    }

    /// Where it is, as the configuration writes it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Every connection stays open, nothing answers.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Without a word, as by the kernel; what it knew is lost.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Anew, at the same address, knowing nothing.
    pub fn restart(&mut self) {
        self.process = spawn(self.address, &self.data);
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
        wait_until("redis-server", || {
            self.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG"))
        });
    }
}

fn spawn(address: SocketAddr, data: &tempfile::TempDir) -> LocalProcess {
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(data.path());
    LocalProcess::start(&mut command, "redis-server")
}
