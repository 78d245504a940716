//! A real etcd on free loopback ports, that can be stopped, killed and started again.

#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "../local_process/mod.rs"]
mod local_process;

use std::process::Command;
use std::time::Duration;

use local_process::{LocalProcess, free_ports, wait_until};

/// The server; killed when dropped.
pub struct EtcdServer {
    client: u16,
    peer: u16,
    process: LocalProcess,
    data: tempfile::TempDir,
}

impl EtcdServer {
    /// An empty server that answers.
    pub fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let [client, peer] = free_ports();
        let process = spawn(client, peer, &data);
        let server = Self { client, peer, process, data };
        server.wait();
        server
    }

    /// Where it takes calls.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Every connection stays open, nothing answers.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Without a word, as by the kernel.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Anew, at the same address, with its data and without its sessions.
    pub fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.client, self.peer, &self.data);
        self.wait();
    }

    /// What `etcdctl` says; it must succeed.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            ran.status.success(),
            "{arguments:?}: {said}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        said
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url()])
            .args(arguments)
            .output()
            .unwrap_or_else(|error| {
                panic!("this test runs etcdctl: {error}; install etcd-client, as tests/run.sh does")
            })
    }

    fn wait(&self) {
        // Health is refused without a log-in once users are on; then it is up all the same.
        wait_until("etcd", || answers(self.client));
    }
}

/// Whether it serves calls: it opens its port before it can.
fn answers(port: u16) -> bool {
    use std::io::{Read, Write};
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"true\""))
}

fn spawn(client: u16, peer: u16, data: &tempfile::TempDir) -> LocalProcess {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(data.path())
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // The shortest lease is one and a half election time-outs.
        .args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
    LocalProcess::start(&mut command, "etcd-server")
}
