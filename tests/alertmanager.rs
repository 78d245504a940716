//! Alerts and silences of a real Alertmanager, and what an odd or broken one costs: one round.

mod eventually;

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use eventually::{PATIENCE, eventually};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::Instant;
use weir::ingest::{Access, AlertSource, AlertState, AlertWatch, Alertmanager, Alerts, Severity};
use weir::signal::Mono;

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("loopback")
}

/// A running Alertmanager; ends with the value.
struct Server {
    child: Child,
    url: String,
    http: Client,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("alertmanager.yml");
        let inhibit = "inhibit_rules:\n- source_matchers: ['alertname=\"Down\"']\n  \
                       target_matchers: ['alertname=\"Slow\"']\n";
        let text = format!("route: {{ receiver: none }}\nreceivers: [{{ name: none }}]\n{inhibit}");
        std::fs::write(&config, text).expect("written");
        let address = free();
        let child = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Whoever builds with a set-up of its own for TLS chooses the provider first.
        let http = Access::default().client().expect("a client");
        let server = Self { child, url: format!("http://{address}"), http, _folder: folder };
        let ready = format!("{}/-/ready", server.url);
        eventually("a server that is ready", async || {
            server.http.get(&ready).send().await.ok().filter(|answer| answer.status().is_success())
        })
        .await;
        server
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/api/v2/{path}", self.url);
        let request = self.http.post(url).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let text = answer.text().await.expect("a body");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn asked(&self) -> Alertmanager {
        asked(&self.url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn asked(url: &str) -> Alertmanager {
    Alertmanager::new("am", url, Access::default(), Duration::from_secs(2)).expect("a client")
}

fn alert(name: &str, severity: &str) -> Value {
    json!({
        "labels": { "alertname": name, "severity": severity, "job": "gateway" },
        "annotations": { "summary": "what a person should know" },
        "startsAt": (Utc::now() - TimeDelta::minutes(12)).to_rfc3339(),
    })
}

fn state(alerts: &Alerts, name: &str) -> Option<AlertState> {
    alerts.alerts.iter().find(|alert| alert.name == name).map(|alert| alert.state)
}

#[tokio::test]
async fn alerts_and_silences_of_a_real_one() {
    let server = Server::start().await;
    let am = server.asked();
    let look = async || am.look(|| Mono::START).await.expect("an answer");
    assert_eq!(look().await.alerts, [], "nothing was posted");

    let all = json!([alert("Errors", "critical"), alert("Down", "warning"), alert("Slow", "page")]);
    server.post("alerts", &all).await;
    let matcher = json!({ "name": "alertname", "value": "Errors", "isRegex": false });
    let silence = json!({
        "matchers": [matcher], "createdBy": "ada", "comment": "known since nine",
        "startsAt": Utc::now().to_rfc3339(),
        "endsAt": (Utc::now() + TimeDelta::hours(1)).to_rfc3339(),
    });
    let id = server.post("silences", &silence).await["silenceID"].clone();

    let seen = eventually("one that fires, one silenced, one inhibited", async || {
        let alerts = look().await;
        let states = ["Down", "Errors", "Slow"].map(|name| state(&alerts, name));
        let wanted = [AlertState::Firing, AlertState::Silenced, AlertState::Inhibited].map(Some);
        (states == wanted).then_some(alerts)
    })
    .await;
    let worst = seen.worst().expect("one fires");
    assert_eq!((worst.name.as_str(), worst.severity), ("Down", Severity::Warning));
    assert_eq!(worst.summary.as_deref(), Some("what a person should know"));
    assert_eq!(worst.labels.get("job").map(String::as_str), Some("gateway"));
    let age = Utc::now() - worst.since.expect("it says since when");
    assert!((11..=13).contains(&age.num_minutes()), "{age}");
    let errors = seen.alerts.iter().find(|alert| alert.name == "Errors").expect("seen");
    let by = errors.silenced_by.first().and_then(|id| seen.silence(id)).expect("its silence");
    assert_eq!(json!(by.id), id);
    assert_eq!((by.by.as_str(), by.matchers[0].as_str()), ("ada", "alertname=\"Errors\""));
    assert_eq!(seen.left_out, 0);
}

#[tokio::test]
async fn a_server_that_dies_is_named_with_the_age_of_what_it_said() {
    let server = Server::start().await;
    server.post("alerts", &json!([alert("Errors", "critical")])).await;
    let (sender, mut receiver) = watch::channel(None);
    let interval = Duration::from_millis(100);
    let watching = AlertWatch::spawn(
        AlertSource::Alertmanager(Box::new(server.asked())),
        interval,
        Instant::now(),
        sender,
    );
    let mut next = async |what: &str, wanted: fn(&Alerts) -> bool| -> Arc<Alerts> {
        let found =
            receiver.wait_for(|news: &Option<Arc<Alerts>>| news.as_deref().is_some_and(wanted));
        let found = tokio::time::timeout(PATIENCE, found).await;
        let found = found.unwrap_or_else(|_| panic!("never: {what}")).expect("it goes on");
        found.clone().expect("it is what was waited for")
    };
    let good = next("an alert", |alerts| alerts.worst().is_some()).await;
    assert_eq!(good.error, None);
    drop(server);
    let down = next("an error", |alerts| alerts.error.is_some()).await;
    let error = down.error.clone().expect("waited for");
    assert!(error.starts_with("am: at http://127.0.0.1:"), "{error}");
    assert!(error.contains("nothing answers"), "{error}");
    assert!(down.worst().is_some() && down.at.is_some(), "what was known stays");
    drop(watching);
}

/// A server that answers everything with these bytes.
async fn saying(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                if answer.is_empty() {
                    tokio::time::sleep(PATIENCE).await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn what_is_no_answer_is_named() {
    for (answer, expected) in [
        (
            "HTTP/1.1 400 x\r\ncontent-length: 32\r\n\r\n{\"code\":601,\"message\":\"bad one\"}\n",
            "am: answered HTTP 400 (bad one)",
        ),
        (
            "HTTP/1.1 400 x\r\ncontent-length: 14\r\n\r\n\"bad matchers\"",
            "am: answered HTTP 400 (bad matchers)",
        ),
        ("HTTP/1.1 401 x\r\ncontent-length: 0\r\n\r\n", "am: answered HTTP 401: set `token_env`"),
        ("HTTP/1.1 404 x\r\ncontent-length: 4\r\n\r\ngone", "am: answered HTTP 404 (gone): is its"),
        ("HTTP/1.1 200 x\r\ncontent-length: 6\r\n\r\n<html>", "is no list of the v2 API"),
        ("HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\n{}", "is that an Alertmanager?"),
        ("HTTP/1.1 200 x\r\ncontent-length: 90\r\n\r\n[", "the answer was cut after 1 bytes"),
        ("", "am: no whole answer within 300 ms"),
    ] {
        let url = saying(answer).await;
        let limit = Duration::from_millis(300);
        let am = Alertmanager::new("am", &url, Access::default(), limit).expect("a client");
        let error = am.look(|| Mono::START).await.expect_err(answer).to_string();
        assert!(error.contains(expected), "{answer:?}: {error}");
    }
    let nobody = asked(&format!("http://{}", free())).look(|| Mono::START).await;
    let error = nobody.expect_err("nobody listens").to_string();
    assert!(error.contains("nothing answers"), "{error}");
}
