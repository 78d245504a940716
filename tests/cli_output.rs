//! Standard output that cannot be written: no command panics, a reader who has left is no failure.

use std::io::Read as _;
use std::process::{Command, Stdio};

const COMMANDS: [&[&str]; 10] = [
    &["--help"],
    &["--version"],
    &["man"],
    &["completions", "bash"],
    &["drill", "--list"],
    &["drill", "--virtual", "--for", "12s", "--json"],
    &["runbook", "list"],
    &["runbook", "show", "nested-retries"],
    &["runbook", "lint"],
    &["runbook", "format"],
];

fn weir(args: &[&str], stdout: Stdio) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts")
}

#[test]
fn a_full_disk_is_an_error_in_one_sentence() {
    for args in COMMANDS {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux");
        let output = weir(args, full.into()).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: cannot write to standard output: No space"), "{said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
}

#[test]
fn a_reader_who_has_left_ends_a_command_quietly() {
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = weir(args, writer.into());
        let mut said = String::new();
        let mut err = child.stderr.take().expect("a pipe");
        err.read_to_string(&mut said).expect("UTF-8");
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{args:?}: {said}");
        assert_eq!(said, "", "{args:?}");
    }
}

#[test]
fn nothing_of_a_second_is_a_length() {
    let output = weir(&["drill", "--for", "0s"], Stdio::piped()).wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("must be longer than 0 s"), "{said}");
}
