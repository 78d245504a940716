//! TLS on both sides: whom the gateway trusts, what it shows, and what it says when that fails.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir::gateway::GatewayConfig;

use crate::eventually::eventually;
use crate::served::{Manner, Pki, Served, asking, certificates, http1_on, http2_on};
use crate::support::{Gate, Sim, WIDE};

/// `[gateway.upstream]` of a provider over TLS.
fn upstream(more: &str) -> String {
    format!("[upstream]\nurl = 'UPSTREAM'\n{more}")
}

#[tokio::test]
async fn a_provider_whose_authority_is_named_is_spoken_to_in_http2_unless_it_is_switched_off() {
    let pki = Pki::new();
    pki.issue("server", "localhost", 2099);
    let trust = format!("ca_file = {}", pki.quoted("ca.pem"));
    for (more, version) in
        [("", "HTTP/2.0"), ("http2 = true", "HTTP/2.0"), ("http2 = false", "HTTP/1.1")]
    {
        let served =
            Served::start(Manner { tls: Some((&pki, "server")), ..Manner::default() }).await;
        let url = format!("https://localhost:{}", served.address.port());
        let gate = Gate::start(&url, &upstream(&format!("{trust}\n{more}")), WIDE).await;
        for text in ["a", "b", "c"] {
            let reply = gate.embed(text).await;
            assert_eq!(reply.status, 200, "{more}: {}", reply.text());
            let said = reply.json();
            assert_eq!(said["version"], version, "{more}: {said}");
            assert!(
                said["uri"].as_str().is_some_and(|uri| uri.ends_with("/v1/embeddings")),
                "{said}"
            );
        }
        assert_eq!(served.connections(), 1, "{more}");
        gate.idle().await;
        let protocol = if version == "HTTP/2.0" { "http2" } else { "http1" };
        let metrics = gate.metrics().await;
        for (name, wanted) in
            [("weir_upstream_connections", 1), ("weir_upstream_connections_total", 1)]
        {
            assert_eq!(metrics.count(name, &[]), wanted, "{name}");
            assert_eq!(metrics.count(name, &[("protocol", protocol)]), wanted, "{name}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_not_trusted_is_told_apart_and_no_attempt_is_counted() {
    let pki = Pki::new();
    pki.issue("server", "localhost", 2099);
    pki.issue("expired", "localhost", 2001);
    pki.issue("other", "other.example", 2099);
    let trust = format!("ca_file = {}", pki.quoted("ca.pem"));
    for (certificate, more, words) in [
        ("server", "", &["UnknownIssuer", "gateway.upstream.ca_file"][..]),
        ("expired", &trust, &["expired", "renewed"]),
        ("other", &trust, &["not valid for name", "as its certificate names it"]),
    ] {
        let tls = Some((&pki, certificate));
        let served = Served::start(Manner { tls, ..Manner::default() }).await;
        let url = format!("https://localhost:{}", served.address.port());
        let gate = Gate::start(&url, &upstream(more), WIDE).await;
        let reply = gate.embed("a").await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "weir_upstream_tls"));
        for word in words {
            assert!(reply.message().contains(word), "{certificate}: {}", reply.message());
        }
        assert_eq!(reply.header("x-weir-attempts"), Some("0"));
        gate.idle().await;
        let metrics = gate.metrics().await;
        assert!(metrics.count("weir_upstream_faults_total", &[("reason", "tls")]) >= 1);
        for name in ["weir_attempts_total", "weir_upstream_connections"] {
            assert_eq!(metrics.count(name, &[]), 0, "{name}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_speaks_no_tls_is_told_apart() {
    // What is no TLS at all is answered in the clear, or cut short.
    for (said, words) in
        [("HTTP/1.1 400 Bad Request\r\n\r\n", "is it http://?"), ("", "a TLS port?")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(said.as_bytes()).await;
            }
        });
        let gate = Gate::start(&format!("https://localhost:{port}"), "", WIDE).await;
        let reply = gate.embed("a").await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "weir_upstream_tls"));
        assert!(reply.message().contains(words), "{}", reply.message());
        gate.idle().await;
    }
}

/// A gateway that shows a certificate for `localhost` which ends in that year, and its provider.
async fn with_certificate(year: i32) -> (Pki, Gate, Sim) {
    let pki = Pki::new();
    pki.issue("gate", "localhost", year);
    let sim = Sim::start("").await;
    let config = format!(
        "[tls]\ncert_file = {}\nkey_file = {}",
        pki.quoted("gate.pem"),
        pki.quoted("gate.key")
    );
    let gate = Gate::start(&sim.url(), &config, WIDE).await;
    (pki, gate, sim)
}

#[tokio::test]
async fn the_data_plane_speaks_tls_in_both_protocols() {
    let (pki, gate, _sim) = with_certificate(2099).await;
    let host = gate.data_host();

    let stream = pki.connect(host, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = http2_on(stream).await;
    let answer = sender.send_request(asking(host, "a")).await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));

    for alpn in [&["http/1.1"][..], &[]] {
        let mut sender = http1_on(pki.connect(host, alpn).await).await;
        let answer = sender.send_request(asking(host, "b")).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_11));
    }

    // Who does not speak TLS is not kept.
    let mut plain = TcpStream::connect(host).await.expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it reads");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    gate.reaches("weir_client_faults_total", &[("reason", "tls")], 1).await;
    gate.idle().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    let (pki, gate, _sim) = with_certificate(2098).await;
    let shown = async || {
        let stream = pki.connect(gate.data_host(), &["http/1.1"]).await;
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone()
    };
    let first = certificates(&pki.path("gate.pem")).remove(0);
    assert_eq!(shown().await, first);

    // The pair is not moved as one: whatever is seen in between, a pair that fits is shown.
    pki.issue("gate", "localhost", 2099);
    let second = certificates(&pki.path("gate.pem")).remove(0);
    assert_ne!(first, second);
    eventually("the new certificate", async || (shown().await == second).then_some(())).await;

    std::fs::write(pki.path("gate.pem"), "no certificate").expect("written");
    let before = gate.metrics().await.count("weir_certificate_failures_total", &[]);
    gate.reaches("weir_certificate_failures_total", &[], before + 1).await;
    assert_eq!(shown().await, second);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_what_to_do() {
    let pki = Pki::new();
    pki.issue("one", "localhost", 2099);
    pki.issue("two", "localhost", 2099);
    std::fs::write(pki.path("empty"), "").expect("written");
    let tls = |cert: &str, key: &str| {
        format!("[tls]\ncert_file = {}\nkey_file = {}", pki.quoted(cert), pki.quoted(key))
    };
    let ca = |name: &str| format!("[upstream]\nurl = 'https://a'\nca_file = {}", pki.quoted(name));
    let http = format!("[upstream]\nurl = 'http://a'\nca_file = {}", pki.quoted("ca.pem"));
    for (text, words) in [
        (tls("none", "one.key"), ["`gateway.tls.cert_file`: cannot read ", "may read"]),
        (tls("empty", "one.key"), ["holds no certificate in PEM", "BEGIN CERTIFICATE"]),
        (tls("one.pem", "one.pem"), ["`gateway.tls.key_file`", "holds no private key in PEM"]),
        (tls("one.pem", "two.key"), ["cannot be used", "belongs to the first certificate"]),
        (ca("none"), ["`gateway.upstream.ca_file`: cannot read ", "may read"]),
        (ca("one.key"), ["holds no certificate", "BEGIN CERTIFICATE"]),
        (http, ["`gateway.upstream.ca_file`: is never asked", "write https://"]),
    ] {
        let upstream = if text.contains("upstream") { "" } else { "upstream = 'http://a'\n" };
        let text =
            format!("listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n{upstream}{text}");
        let config: GatewayConfig = toml::from_str(&text).expect("well-formed");
        let error = config.check().expect_err(&text).to_string();
        for word in words {
            assert!(error.contains(word), "{error}");
        }
    }
}

#[tokio::test]
async fn a_tls_handshake_that_does_not_come_ends_by_itself() {
    let pki = Pki::new();
    pki.issue("gate", "localhost", 2099);
    let config = format!(
        "[tls]\ncert_file = {}\nkey_file = {}\n[transport]\nhead_timeout_s = 0.2",
        pki.quoted("gate.pem"),
        pki.quoted("gate.key")
    );
    let gate = Gate::start("http://127.0.0.1:9", &config, WIDE).await;
    let mut silent = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let mut said = Vec::new();
    let end = silent.read_to_end(&mut said);
    let end = tokio::time::timeout(Duration::from_secs(10), end).await.expect("it is closed");
    assert!(end.is_ok() && said.is_empty());
    gate.reaches("weir_client_faults_total", &[("reason", "tls")], 1).await;
}
