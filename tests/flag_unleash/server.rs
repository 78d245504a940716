//! A real Unleash with its database on free loopback ports, one for all tests here.
//!
//! Both end with the test process, however that ends: a shell watches a pipe that only the process
//! holds open. Tests keep apart by the prefix of their features.

#[path = "../local_process/mod.rs"]
mod local_process;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use local_process::free_ports;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The longest that both may take to start: Unleash makes its tables first.
const START_MAX: Duration = Duration::from_mins(1);
/// Who runs the database, which refuses root: `nobody`.
const NOBODY: u32 = 65534;

pub const ADMIN: &str = "*:*.weir-test-admin-token";
pub const SDK: &str = "*:development.weir-test-backend-token";
pub const ENVIRONMENT: &str = "development";

/// Starts the database, then Unleash, says the process of the first, and ends both with its input.
const SCRIPT: &str = r#"
"$POSTGRES/initdb" -D "$DATA/db" -A trust -U postgres -N >"$DATA/log" 2>&1
"$POSTGRES/postgres" -D "$DATA/db" -p "$DATABASE_PORT" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c fsync=off >>"$DATA/log" 2>&1 &
database=$!
until "$POSTGRES/pg_isready" -q -h 127.0.0.1 -p "$DATABASE_PORT"; do
    kill -0 $database || exit 1
    sleep 0.05
done
node "$UNLEASH/node_modules/unleash-server/dist/server.js" >>"$DATA/log" 2>&1 &
server=$!
echo $database
cat >/dev/null
kill -KILL $server
for process in $database $(cat /proc/$database/task/$database/children); do
    kill -CONT $process
done
kill -INT $database
wait
rm -rf "$DATA"
"#;

pub struct Server {
    url: String,
    database: Pid,
    bob: String,
    viewer: String,
    /// Holds the pipe.
    _watcher: Child,
}

/// The server, started by whoever asks first.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    // Not within a test's own runtime, which must not block.
    SERVER.get_or_init(|| std::thread::spawn(Server::start).join().expect("Unleash starts"))
}

impl Server {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The token of a person who may change everything.
    pub fn bob(&self) -> &str {
        &self.bob
    }

    /// The token of a person who may change nothing.
    pub fn viewer(&self) -> &str {
        &self.viewer
    }

    /// The database answers nobody; connections stay open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Each connection has its own process.
    fn signal(&self, signal: Signal) {
        let id = self.database.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.expect("the database is there");
        let children = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
        for process in std::iter::once(self.database).chain(children) {
            let _ = kill_process(process, signal);
        }
    }

    fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let data = tempfile::tempdir().expect("a directory").keep();
        let [port, database] = free_ports();
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.env("POSTGRES", postgres()).env("UNLEASH", unleash()).env("DATA", &data);
        for (key, value) in [
            ("DATABASE_HOST", "127.0.0.1"),
            ("DATABASE_PORT", &database.to_string()),
            ("DATABASE_NAME", "postgres"),
            ("DATABASE_USERNAME", "postgres"),
            ("DATABASE_PASSWORD", "none"),
            ("DATABASE_SSL", "false"),
            ("HTTP_HOST", "127.0.0.1"),
            ("HTTP_PORT", &port.to_string()),
            ("CHECK_VERSION", "false"),
            ("SEND_TELEMETRY", "false"),
            ("LOG_LEVEL", "warn"),
            ("AUTH_TYPE", "open-source"),
            ("INIT_ADMIN_API_TOKENS", ADMIN),
            ("INIT_BACKEND_API_TOKENS", SDK),
        ] {
            shell.env(key, value);
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).expect("root may");
            shell.uid(NOBODY).gid(NOBODY);
        }
        let mut watcher = shell.spawn().expect("a shell");
        let mut line = String::new();
        let stdout = watcher.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("UTF-8");
        let log = data.join("log");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let database = line.trim().parse().ok().and_then(Pid::from_raw);
        let database = database.unwrap_or_else(|| panic!("PostgreSQL does not start: {}", said()));
        let url = format!("http://127.0.0.1:{port}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (bob, viewer) = runtime.expect("a runtime").block_on(async {
            let begun = Instant::now();
            while reqwest::get(format!("{url}/health")).await.is_err() {
                assert!(begun.elapsed() < START_MAX, "Unleash does not start: {}", said());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // Roles: 2 is an editor, 3 a viewer.
            (person(&url, "bob", 2).await, person(&url, "viewer", 3).await)
        });
        Self { url, database, bob, viewer, _watcher: watcher }
    }

    /// Features that a person made, all off.
    pub async fn create(&self, prefix: &str, keys: &[&str]) {
        for key in keys {
            let body = json!({ "name": format!("{prefix}{key}"), "type": "operational" });
            self.send("POST", "projects/default/features", Some(body)).await;
        }
    }

    /// A call of the admin API that must work.
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        send(&format!("{}/api/admin/{path}", self.url), method, body).await
    }
}

async fn send(url: &str, method: &str, body: Option<Value>) -> Value {
    let method = method.parse().expect("a method");
    let mut request = reqwest::Client::new().request(method, url).header("Authorization", ADMIN);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let body = answer.text().await.expect("a body");
    assert!(status.is_success(), "{url}: {status} {body}");
    serde_json::from_str(&body).unwrap_or_default()
}

/// Makes an account with this role, and a token of its own.
async fn person(url: &str, name: &str, role: u32) -> String {
    let password = "Correct-Horse-42-Battery";
    let account = json!({ "username": name, "rootRole": role, "password": password,
        "sendEmail": false });
    send(&format!("{url}/api/admin/user-admin"), "POST", Some(account)).await;
    let client = reqwest::Client::new();
    let login = json!({ "username": name, "password": password });
    let login = client.post(format!("{url}/auth/simple/login")).json(&login).send().await;
    let login = login.expect("an answer");
    let cookie = login.headers()["set-cookie"].to_str().expect("ASCII").to_owned();
    let cookie = cookie.split(';').next().unwrap_or_default();
    let token = json!({ "description": "test", "expiresAt": "2099-01-01T00:00:00.000Z" });
    let begun = Instant::now();
    loop {
        let request = client.post(format!("{url}/api/admin/user/tokens")).header("Cookie", cookie);
        let answer = request.json(&token).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        if let Some(secret) = answer["secret"].as_str() {
            return secret.to_owned();
        }
        // The answer to a login can come before its session is stored.
        assert!(begun.elapsed() < START_MAX, "no token for {name}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn unleash() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci-unleash");
    let installed = std::env::var_os("WEIR_TEST_UNLEASH").map_or(installed, PathBuf::from);
    let there = installed.join("node_modules/unleash-server").exists();
    assert!(there, "this test runs Unleash; tests/run.sh installs it");
    installed
}

fn postgres() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<_> =
        versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    found.retain(|bin| bin.join("postgres").exists());
    found.sort();
    found.pop().expect("this test runs PostgreSQL; tests/run.sh installs it")
}
