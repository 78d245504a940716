//! A real Envoy with nothing but an admin port, which can be frozen, killed and started again.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest that an Envoy may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// The name of the layer that takes overrides.
pub const LAYER: &str = "by_hand";

/// The server; killed when dropped.
pub struct Envoy {
    port: u16,
    configuration: String,
    directory: tempfile::TempDir,
    child: Child,
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
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let address = format!("{{address: 127.0.0.1, port_value: {port}}}");
        let configuration = format!(
            "admin: {{address: {{socket_address: {address}}}}}\n\
             layered_runtime: {{layers: {layers}}}\n"
        );
        let directory = tempfile::tempdir().expect("a directory");
        let child = spawn(&configuration, directory.path());
        let server = Self { port, configuration, directory, child };
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
        let process = self.process();
        move || kill_process(process, Signal::STOP).expect("our own child")
    }

    pub fn thaw(&self) {
        kill_process(self.process(), Signal::CONT).expect("our own child");
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Anew, at the same address, with what its configuration says.
    pub async fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.configuration, self.directory.path());
        self.wait().await;
    }

    fn process(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process")
    }

    async fn wait(&self) {
        let begun = Instant::now();
        while reqwest::get(format!("{}/ready", self.url())).await.is_err() {
            assert!(begun.elapsed() < START_MAX, "Envoy does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(configuration: &str, directory: &Path) -> Child {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci-venv/bin/envoy");
    let envoy = std::env::var_os("WEIR_TEST_ENVOY").map_or(installed, PathBuf::from);
    let file = directory.join("envoy.yaml");
    std::fs::write(&file, configuration).expect("a file");
    // Several run at once: none may share memory with another.
    Command::new(&envoy)
        .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "critical", "-c"])
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test runs Envoy: {error}; tests/run.sh installs it"))
}
