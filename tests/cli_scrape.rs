//! `weir scrape` as a shell sees it: what fails, and what a hostile page may not do to a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Exit code, standard output and standard error of `weir scrape -` on a page.
fn scrape(page: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["scrape", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(page.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_page_without_a_sample_fails() {
    for (page, code, said) in [
        ("", 1, "standard input is empty"),
        ("\n \n", 1, "standard input is empty"),
        ("x\n", 1, "holds no sample"),
        ("# TYPE a counter\n", 1, "holds no sample"),
        ("a 1\n", 0, ""),
        ("a 1\nx\n", 0, ""),
    ] {
        for args in [&[] as &[_], &["--json"]] {
            let (found, out, err) = scrape(page, args);
            assert_eq!(found, Some(code), "{page:?} {args:?}: {out}{err}");
            assert!(err.contains(said), "{page:?} {args:?}: {err}");
        }
    }
}

#[test]
fn a_hostile_page_cannot_steer_the_terminal() {
    let page = "{\"a\u{1b}]0;x\u{7}\",\"l\u{202e}\"=\"v\u{1b}[2J\"} 1\nb\u{1b}[31m 1\n\
                c{\u{9b}x\nd{x=\"1\",x\u{1b}=\"2\"} 1\n";
    let (code, out, err) = scrape(page, &[]);
    assert_eq!(code, Some(0), "{out}{err}");
    let steers = |letter: &char| (letter.is_control() && *letter != '\n') || *letter == '\u{202e}';
    let found: Vec<char> = (out.clone() + &err).chars().filter(steers).collect();
    assert!(found.is_empty(), "{found:?} in {out}");
    assert!(out.contains("a\\u{1b}]0;x\\u{7}"), "{out}");
}

#[test]
fn the_end_of_a_line_is_called_that() {
    let (_, out, _) = scrape("a 1\nc{", &[]);
    assert!(out.contains("got the end of the line"), "{out}");
}
