//! Starts the processes of a drill and waits until each says where it listens.
//!
//! Each child ends when its standard input does, so none survives the drill, however that ends. A
//! child's environment holds the provider's key only if it is handed over.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::stage::StageError;

/// How long a child may take to say that it listens.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Last part of a child's log that an error shows.
const LOG_TAIL_BYTES: usize = 2_000;

/// A child and its standard input, which waiting for the child would otherwise close.
pub struct Running {
    /// The process.
    pub child: Child,
    _stdin: Option<ChildStdin>,
}

/// Starts children of one program.
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Holds their files and logs.
    pub folder: PathBuf,
    /// An environment variable that no child inherits.
    pub withheld: Option<String>,
}

impl Launcher {
    /// Starts a child with `environment` added, and reads the line that says it is ready.
    ///
    /// # Errors
    /// [`StageError`] shows the end of its log.
    pub async fn spawn<T: DeserializeOwned>(
        &self,
        name: &'static str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(Running, T), StageError> {
        let log_path = self.folder.join(format!("{name}.log"));
        let fail = |error: String| StageError::Child { name, error, log: tail_of(&log_path) };
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(|error| StageError::File { path: log_path.clone(), error })?;
        let mut command = Command::new(&self.program);
        if let Some(variable) = &self.withheld {
            command.env_remove(variable);
        }
        let mut child = command
            .args(arguments)
            .arg("--exit-on-stdin-eof")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            // A Ctrl-C at the terminal is the dashboard's to handle, not the stage's.
            .process_group(0)
            .spawn()
            .map_err(|error| fail(error.to_string()))?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(fail("it has no standard output".to_owned()));
        };
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(READY_TIMEOUT, lines.next_line())
            .await
            .map_err(|_| fail(format!("no word from it in {} s", READY_TIMEOUT.as_secs())))?
            .map_err(|error| fail(error.to_string()))?
            .ok_or_else(|| fail("it ended at once".to_owned()))?;
        let ready =
            serde_json::from_str(&line).map_err(|error| fail(format!("{error}: {line}")))?;
        // A reader must stay, or the child's next line would break its pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok((Running { child, _stdin: stdin }, ready))
    }
}

/// The end of a log, for an error.
pub(super) fn tail_of(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let tail = &text[text.len().saturating_sub(LOG_TAIL_BYTES)..];
    if tail.is_empty() {
        return String::new();
    }
    format!("\n{}", String::from_utf8_lossy(tail).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set by cargo for every test.
    const INHERITED: &str = "CARGO_PKG_NAME";

    /// What a child finds in the variable when its parent has it, withholds it and hands this over.
    async fn check(withheld: bool, environment: &[(&str, &str)], expected: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let launcher = Launcher {
            program: PathBuf::from("sh"),
            folder: folder.path().to_owned(),
            withheld: withheld.then(|| INHERITED.to_owned()),
        };
        let script = format!(r#"printf '"%s"\n' "${{{INHERITED}-nothing}}""#);
        let spawned = launcher.spawn::<String>("child", &["-c", &script], environment).await;
        let (_child, seen) = spawned.expect("a shell starts");
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_child_gets_the_key_only_when_it_is_handed_over() {
        check(false, &[], "weir").await;
        check(true, &[], "nothing").await;
        check(true, &[(INHERITED, "a key")], "a key").await;
    }
}
