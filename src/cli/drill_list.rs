//! `weir drill --list`: the scenarios that ship, by name, with the cause that each stages.

use std::fmt::Write as _;
use std::process::ExitCode;

use color_eyre::eyre::Result;
use serde_json::{Value, json};

use super::columns::{COLUMNS, wrap};
use super::out;
use crate::drill::scenario::{Scenario, names};

/// Narrowest column of titles.
const TITLE_COLUMNS_MIN: usize = 20;

/// Lists them.
///
/// # Errors
/// When one of them cannot be read, which a test rules out, or standard output is closed.
pub fn run(as_json: bool) -> Result<ExitCode> {
    let mut scenarios = names().map(Scenario::load).collect::<Result<Vec<_>, _>>()?;
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    if as_json {
        let rows: Vec<Value> = scenarios
            .iter()
            .map(|scenario| {
                json!({
                    "name": scenario.name,
                    "title": scenario.title,
                    "seconds": scenario.duration.as_secs_f64(),
                    "cause": scenario.expect.cause,
                })
            })
            .collect();
        out::line(Value::from(rows))?;
    } else {
        out::text(&listed(&scenarios))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Name, cause and title. A title that would go beyond the last column continues below itself.
fn listed(scenarios: &[Scenario]) -> String {
    let longest = |of: fn(&Scenario) -> &str| scenarios.iter().map(|one| of(one).len()).max();
    let name = longest(|one| &one.name).unwrap_or(0);
    let cause = longest(|one| &one.expect.cause).unwrap_or(0);
    let room = COLUMNS.saturating_sub(name + cause + 4).max(TITLE_COLUMNS_MIN);
    let mut text = String::new();
    for scenario in scenarios {
        let mut lines = wrap(&scenario.title, room).into_iter();
        let first = lines.next().unwrap_or_default();
        let (own, expected) = (&scenario.name, &scenario.expect.cause);
        let _ = writeln!(text, "{own:<name$}  {expected:<cause$}  {first}");
        for more in lines {
            let _ = writeln!(text, "{:<name$}  {:<cause$}  {more}", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_a_narrow_terminal_and_lose_no_word() {
        let scenarios: Vec<_> =
            names().map(|name| Scenario::load(name).expect("it ships")).collect();
        let text = listed(&scenarios);
        for scenario in &scenarios {
            let row = text.lines().find(|line| line.starts_with(&format!("{} ", scenario.name)));
            assert!(row.is_some_and(|row| row.contains(&scenario.expect.cause)), "{text}");
            for word in scenario.title.split_whitespace() {
                assert!(text.contains(word), "`{word}` of {}", scenario.name);
            }
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }
}
