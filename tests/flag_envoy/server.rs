//! A real Envoy with nothing but an admin port, which can be frozen, killed and started again.

#[path = "../local_process/mod.rs"]
mod local_process;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use local_process::{LocalProcess, START_MAX, free_port};
use rustix::process::{Signal, kill_process};

/// The name of the layer that takes overrides.
pub const LAYER: &str = "by_hand";

/// The server; killed when dropped.
pub struct Envoy {
    port: u16,
    configuration: String,
    directory: tempfile::TempDir,
    process: LocalProcess,
}

impl Envoy {
    /// An Envoy whose static layer holds these keys and values, in YAML's flow style.
    pub async fn start(fixed: &str) -> Self {
        Self::with_layers(&format!(
            "[{{name: fixed, static_layer: {{{fixed}}}}}, {{name: {LAYER}, admin_layer: {{}}}}]"
        ))
        .await
    }

    pub async fn with_layers(layers: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let port = free_port();
        let address = format!("{{address: 127.0.0.1, port_value: {port}}}");
        let configuration = format!(
            "admin: {{address: {{socket_address: {address}}}}}\n\
             layered_runtime: {{layers: {layers}}}\n"
        );
        let directory = tempfile::tempdir().expect("a directory");
        let process = spawn(&configuration, directory.path());
        let server = Self { port, configuration, directory, process };
        server.wait().await;
        server
    }

    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.place())
    }

    /// As somebody does who has no weir.
    pub async fn modify(&self, query: &str) {
        let url = format!("{}/runtime_modify?{query}", self.url());
        let answer = reqwest::Client::new().post(url).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    pub fn freezer(&self) -> impl Fn() + Send + Sync + 'static {
        let process = self.process.id();
        move || kill_process(process, Signal::STOP).expect("our own child")
    }

    pub fn thaw(&self) {
        self.process.thaw();
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Anew, at the same address, with what its configuration says.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.configuration, self.directory.path());
        self.wait().await;
    }

    async fn wait(&self) {
        let begun = Instant::now();
        while reqwest::get(format!("{}/ready", self.url())).await.is_err() {
            assert!(begun.elapsed() < START_MAX, "Envoy does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(configuration: &str, directory: &Path) -> LocalProcess {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci-venv/bin/envoy");
    let envoy = std::env::var_os("WEIR_TEST_ENVOY").map_or(installed, PathBuf::from);
    let file = directory.join("envoy.yaml");
    std::fs::write(&file, configuration).expect("a file");
    // Several run at once: none may share memory with another.
    let mut command = Command::new(&envoy);
    command
        .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "critical", "-c"])
        .arg(file);
    LocalProcess::start(&mut command, "Envoy")
}
