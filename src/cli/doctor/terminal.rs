//! Whether the dashboard would be legible here, judged by what the terminal says about itself.

use std::io::IsTerminal as _;

use crate::tui::Appearance;
use crate::tui::theme::{ASCII, Depth};

use super::finding::Finding;

/// Columns and rows from which panels fit.
const SIZE: (u16, u16) = (80, 24);

/// Where weir would run.
pub struct Seat {
    /// Whether keys can be read and a screen drawn.
    pub is_terminal: bool,
    /// Columns and rows.
    pub size: Option<(u16, u16)>,
}

impl Seat {
    /// The seat of this process.
    pub fn ours() -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let size = crossterm::terminal::size().ok().filter(|_| is_terminal);
        Self { is_terminal, size }
    }
}

/// What there is to say about a seat and its environment.
pub fn check(seat: &Seat, var: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    const WHAT: &str = "terminal";
    let named = |name: &str| var(name).filter(|value| !value.is_empty());
    if !seat.is_terminal {
        let next = "run `weir watch` in one; `weir diagnose` and `weir signals` need none";
        return vec![Finding::note(WHAT, "this is no terminal", next)];
    }
    let mut findings = Vec::new();
    match (named("TERM").as_deref(), seat.size) {
        (None | Some("dumb"), _) => {
            let next = "export TERM as your terminal is called, such as xterm-256color";
            findings.push(Finding::note(WHAT, "TERM says that nothing can be drawn", next));
        }
        (Some(term), Some((columns, rows))) if columns < SIZE.0 || rows < SIZE.1 => {
            let said = format!("{term} with {columns}x{rows}: the verdict fits, panels do not");
            let next = format!("enlarge the window to {}x{}", SIZE.0, SIZE.1);
            findings.push(Finding::note(WHAT, said, next));
        }
        (Some(term), size) => {
            let (columns, rows) = size.unwrap_or(SIZE);
            findings.push(Finding::good(WHAT, format!("{term} with {columns}x{rows}")));
        }
    }
    let appearance = Appearance::from_env(&var);
    findings.push(match appearance.depth {
        Depth::Mono => Finding::good("colours", "none: every status is a word and a mark too"),
        Depth::Ansi16 => Finding::good("colours", "the terminal's own 16"),
        Depth::Ansi256 => Finding::good("colours", "256"),
        Depth::TrueColor | Depth::Themed(_) => Finding::good("colours", "all"),
    });
    if std::ptr::eq(appearance.glyphs, &raw const ASCII) {
        let said = "the locale does not say UTF-8: lines and marks are plain ASCII";
        findings.push(Finding::note("locale", said, "export LC_ALL=C.UTF-8"));
    }
    if named("TMUX").is_some() {
        let said = "in tmux, what `y` copies stays in weir by default";
        let next = "tmux set -s set-clipboard on";
        findings.push(Finding::note("tmux", said, next));
    }
    if named("SSH_CONNECTION").is_some() && named("TMUX").is_none() && named("STY").is_none() {
        let said = "over ssh, and without tmux or screen the view is lost with the line";
        findings.push(Finding::note("ssh", said, "start tmux first"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Standing;

    /// A seat, its environment, what the finding is about, and a part of its words.
    type Case<'a> = (Seat, &'a [(&'a str, &'a str)], &'a str, &'a str);

    #[test]
    fn what_a_terminal_lacks_is_said_with_a_remedy() {
        let seat = |size| Seat { is_terminal: true, size: Some(size) };
        let nowhere = Seat { is_terminal: false, size: None };
        let plain: &[(&str, &str)] = &[("TERM", "xterm"), ("LANG", "C.UTF-8")];
        let cases: [Case<'_>; 7] = [
            (nowhere, plain, "terminal", "run `weir watch` in one"),
            (seat((79, 24)), plain, "terminal", "enlarge the window to 80x24"),
            (seat((80, 23)), plain, "terminal", "enlarge the window to 80x24"),
            (seat((80, 24)), &[("LANG", "C.UTF-8")], "terminal", "export TERM"),
            (seat((80, 24)), &[("TERM", "xterm"), ("LANG", "C")], "locale", "LC_ALL=C.UTF-8"),
            (
                seat((80, 24)),
                &[("TERM", "tmux"), ("LANG", "C.UTF-8"), ("TMUX", "/tmp/x")],
                "tmux",
                "set-clipboard on",
            ),
            (
                seat((80, 24)),
                &[("TERM", "xterm"), ("LANG", "C.UTF-8"), ("SSH_CONNECTION", "x")],
                "ssh",
                "start tmux",
            ),
        ];
        for (seat, vars, what, remedy) in cases {
            let var = |name: &str| {
                let found = vars.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let findings = check(&seat, var);
            let notes: Vec<_> =
                findings.iter().filter(|finding| finding.standing == Standing::Note).collect();
            assert_eq!(notes.len(), 1, "{findings:?}");
            assert_eq!(notes[0].what, what);
            assert!(
                notes[0].next.as_deref().is_some_and(|next| next.contains(remedy)),
                "{notes:?}"
            );
        }
        let at_home = |name: &str| match name {
            "TERM" => Some("xterm-256color".to_owned()),
            "LANG" => Some("en_GB.UTF-8".to_owned()),
            _ => None,
        };
        let findings = check(&seat((80, 24)), at_home);
        assert!(findings.iter().all(|finding| finding.standing == Standing::Good), "{findings:?}");
    }
}
