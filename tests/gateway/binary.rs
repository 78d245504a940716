//! `weir gateway` as a process of its own: what it holds open, and how it ends.

use std::net::SocketAddr;
use std::process::ExitStatus;

use http::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::process::Process;
use crate::support::{Http, Metrics, Reply, WIDE};

/// A gateway; it ends with this value.
pub struct Binary {
    process: Process,
    http: Http,
    _home: TempDir,
}

impl Binary {
    /// In front of `upstream`; `config` goes into `[gateway]`.
    pub fn start(upstream: &str, config: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("weir.toml");
        let text = format!(
            "[[scope]]\n{WIDE}permits = 'fixed'\n[gateway]\nlisten = '127.0.0.1:0'\n\
             admin_listen = '127.0.0.1:0'\nupstream = '{upstream}'\n{config}"
        );
        std::fs::write(&file, text).expect("written");
        let file = file.to_str().expect("UTF-8");
        let process = Process::start(&["gateway", "-c", file], home.path());
        Self { process, http: Http::new(), _home: home }
    }

    pub fn data(&self) -> SocketAddr {
        self.process.address("data")
    }

    pub async fn ask(&self, path: &str) -> Reply {
        let admin = self.process.address("admin");
        self.http.send(Method::GET, &format!("http://{admin}{path}"), &[], "").await
    }

    pub async fn readiness(&self) -> StatusCode {
        self.ask("/readyz").await.status
    }

    pub async fn metrics(&self) -> Metrics {
        Metrics::read(&self.ask("/metrics").await.body)
    }

    /// Waits until the sum of these samples is exactly `wanted`.
    pub async fn settles(&self, name: &str, wanted: u64) {
        eventually(&format!("{name} {wanted}"), async || {
            (self.metrics().await.count(name, &[]) == wanted).then_some(())
        })
        .await;
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", self.process.child.id()));
        folder.expect("it runs").count()
    }

    /// Resident memory in MB.
    pub fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let kb = line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number");
        kb / 1_024.0
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        let id =
            i32::try_from(self.process.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::TERM).expect("our own child");
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        eventually("the end of the gateway", async || {
            self.process.child.try_wait().expect("our own child")
        })
        .await
    }

    pub fn is_running(&mut self) -> bool {
        self.process.child.try_wait().expect("our own child").is_none()
    }
}
