//! A real etcd on free loopback ports, that can be stopped, killed and started again.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest that a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// The server; killed when dropped.
pub struct EtcdServer {
    client: u16,
    peer: u16,
    child: Child,
    data: tempfile::TempDir,
}

impl EtcdServer {
    /// An empty server that answers.
    pub fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let [client, peer] = free_ports();
        let child = spawn(client, peer, &data);
        let server = Self { client, peer, child, data };
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
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Without a word, as by the kernel.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Anew, at the same address, with its data and without its sessions.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.client, self.peer, &self.data);
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
            .unwrap_or_else(|error| missing("etcdctl", "etcd-client", &error))
    }

    fn wait(&self) {
        let begun = Instant::now();
        // Health is refused without a log-in once users are on; then it is up all the same.
        while !answers(self.client) {
            assert!(begun.elapsed() < START_MAX, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, signal).expect("our own child");
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
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

fn free_ports() -> [u16; 2] {
    // Both are held before one is let go, or they could be the same.
    let held = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback"));
    held.map(|listener| listener.local_addr().expect("bound").port())
}

fn spawn(client: u16, peer: u16, data: &tempfile::TempDir) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    Command::new("etcd")
        .arg("--data-dir")
        .arg(data.path())
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // The shortest lease is one and a half election time-outs.
        .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| missing("etcd", "etcd-server", &error))
}

fn missing(program: &str, package: &str, error: &std::io::Error) -> ! {
    panic!("this test runs {program}: {error}; install the {package} package")
}
