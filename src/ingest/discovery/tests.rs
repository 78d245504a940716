//! Instances from lists, names and files, and what is said when they are not to be had.

use std::fs;
use std::path::Path;

use super::*;

fn endpoint() -> Endpoint {
    Endpoint { scheme: Scheme::Http, path: "/metrics".to_owned() }
}

fn pairs(instances: &[Instance]) -> Vec<(&str, &str)> {
    instances.iter().map(|one| (one.name.as_str(), one.url.as_str())).collect()
}

async fn in_folder(folder: &Path, patterns: &[&str]) -> Result<Vec<Instance>, DiscoveryError> {
    let patterns = patterns.iter().map(|pattern| folder.join(pattern)).collect();
    Discovery::FileSd { patterns, endpoint: endpoint() }.instances().await
}

/// The message that a file gives, without its folder.
async fn complaint(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.json"), text).expect("written");
    let error = in_folder(folder.path(), &["*.json"]).await.expect_err(text).to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[tokio::test]
async fn a_list_is_sorted_and_each_page_stands_once() {
    let urls =
        ["http://b:2/metrics", "http://a/metrics", "http://b:2/metrics", "https://a/metrics"];
    let instances = Discovery::of_urls(urls).instances().await.expect("a list");
    let expected = [
        ("a:443", "https://a/metrics"),
        ("a:80", "http://a/metrics"),
        ("b:2", "http://b:2/metrics"),
    ];
    assert_eq!(pairs(&instances), expected);
}

#[tokio::test]
async fn two_pages_of_one_port_are_told_apart() {
    let urls = ["http://a:1/x", "http://a:1/y"];
    let instances = Discovery::of_urls(urls).instances().await.expect("a list");
    assert_eq!(
        pairs(&instances),
        [("http://a:1/x", "http://a:1/x"), ("http://a:1/y", "http://a:1/y")]
    );
}

#[tokio::test]
async fn a_name_in_dns_is_every_address_of_it() {
    let of =
        |host: &str| Discovery::Dns { host: host.to_owned(), port: 4000, endpoint: endpoint() };
    let instances = of("localhost").instances().await.expect("loopback has a name");
    assert!(
        instances.iter().any(|one| one.url == "http://127.0.0.1:4000/metrics"),
        "{instances:?}"
    );
    let six = of("::1").instances().await.expect("an address is its own");
    assert_eq!(pairs(&six), [("[::1]:4000", "http://[::1]:4000/metrics")]);
    let error = of("no-such-name.invalid").instances().await.expect_err("reserved").to_string();
    assert!(error.starts_with("cannot look up `no-such-name.invalid`: "), "{error}");
    assert_eq!(of("gw").to_string(), "http://gw:4000/metrics (DNS)");
}

#[tokio::test]
async fn file_sd_files_are_read_with_the_labels_that_matter() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write(
        "eu.json",
        r#"[{"targets": ["10.0.0.2:4000", "10.0.0.1:4000"], "labels": {"zone": "eu"}},
            {"targets": ["gw:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/m",
             "__param_team": "a b", "instance": "canary"}}]"#,
    );
    write("us.json", r#"[{"targets": ["[fd00::1]:4000", "10.0.0.1:4000"]}]"#);
    write("notes.txt", "not read");
    let instances = in_folder(folder.path(), &["*.json"]).await.expect("two files");
    let expected = [
        ("10.0.0.1:4000", "http://10.0.0.1:4000/metrics"),
        ("10.0.0.2:4000", "http://10.0.0.2:4000/metrics"),
        ("[fd00::1]:4000", "http://[fd00::1]:4000/metrics"),
        ("canary", "https://gw/m?team=a+b"),
    ];
    assert_eq!(pairs(&instances), expected);
    write("us.json", "[]");
    let fewer = in_folder(folder.path(), &["us.json"]).await.expect("an empty list is one");
    assert!(fewer.is_empty());
}

#[tokio::test]
async fn a_wrong_file_is_named_with_line_and_remedy() {
    for (text, expected) in [
        (
            "[{\"targets\": [\n\"a:1\",\n\"http://b:2/\"]}]",
            "a.json:3:14: `http://b:2/` is no host:port; write [{\"targets\"",
        ),
        ("[{\"targets\": [\"a:99999\"]}]", "`a:99999` is no host:port"),
        ("[{\"target\": []}]", "a.json:1:10: unknown field `target`, expected `targets`"),
        (
            "[{\"targets\": [], \"labels\": {\"__scheme__\": \"ftp\"}}]",
            "`__scheme__` is http or https",
        ),
        ("[{\"targets\": [], \"labels\": {\"__metrics_path__\": \"m\"}}]", "begins with `/`"),
        ("{}", "a.json:1:0: invalid type: map, expected a sequence"),
        ("", "a.json:1:0: EOF"),
        ("[\n", "a.json:2:0: EOF"),
    ] {
        let error = complaint(text).await;
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[tokio::test]
async fn files_that_are_not_there_or_not_json_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = |error: Result<_, DiscoveryError>| error.expect_err("wrong").to_string();
    let none = error(in_folder(folder.path(), &["*.json"]).await);
    assert!(none.starts_with("no file matches ") && none.contains("write the file"), "{none}");
    let gone = error(in_folder(folder.path(), &["gone.json"]).await);
    assert!(gone.starts_with("cannot read ") && gone.contains("gone.json"), "{gone}");
    fs::write(folder.path().join("a.yml"), "- targets: ['a:1']\n").expect("written");
    let yaml = error(in_folder(folder.path(), &["a.yml"]).await);
    assert!(yaml.contains("is YAML, and only JSON is read; write [{"), "{yaml}");
    let endless = Discovery::FileSd { patterns: vec!["/dev/zero".into()], endpoint: endpoint() };
    let endless = error(endless.instances().await);
    assert!(endless.contains("over 4194304 bytes"), "{endless}");
}

#[tokio::test]
async fn instances_are_counted_on_both_sides_of_the_limit() {
    let urls: Vec<String> = (0..=INSTANCES_MAX).map(|i| format!("http://h{i}/metrics")).collect();
    let of = |urls: &[String]| Discovery::of_urls(urls.iter().map(String::as_str));
    let all = of(&urls[..INSTANCES_MAX]).instances().await.expect("at the limit");
    assert_eq!(all.len(), INSTANCES_MAX);
    let error = of(&urls).instances().await.expect_err("over the limit");
    assert_eq!(error, DiscoveryError::TooMany { found: INSTANCES_MAX + 1 });
    assert!(error.to_string().contains("name it with `prometheus`"), "{error}");
}

#[test]
fn addresses_that_are_no_pages() {
    for text in
        ["", "metrics", "http://", "ftp://a/", "http://a:99999/", "http://u:p@a/", "http://u@a/"]
    {
        let error = page_url(text).expect_err(text);
        assert!(!error.contains("u:p"), "no password is repeated: {error}");
    }
    for text in ["http://a", "https://a:1/metrics?x=1", "http://[::1]:2/"] {
        assert!(page_url(text).is_ok(), "{text}");
    }
}
