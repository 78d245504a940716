//! The verdicts of a gate as the XML of `JUnit`, as Jenkins and GitLab read it: a suite per seed, a
//! case per bound. Judges nothing.

use std::fmt::Write as _;

use super::Gated;
use super::bounds::State;

/// The whole document.
#[must_use]
pub fn write(gated: &Gated) -> String {
    let failures = |states: &mut dyn Iterator<Item = State>| {
        states.filter(|state| *state != State::Kept).count()
    };
    let all = || gated.runs.iter().flat_map(|run| &run.bounds).map(|bound| bound.state);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\">\n",
        escaped(&gated.title),
        all().count(),
        failures(&mut all()),
    );
    for run in &gated.runs {
        let name = format!("{}, seed {}", gated.title, run.seed);
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\">",
            escaped(&name),
            run.bounds.len(),
            failures(&mut run.bounds.iter().map(|bound| bound.state)),
        );
        for bound in &run.bounds {
            let (word, asked) = (bound.measure.word(), bound.asked());
            let _ = write!(
                xml,
                "    <testcase classname=\"{}\" name=\"{word} {}\"",
                escaped(&format!("weir.{}.seed-{}", gated.scenario, run.seed)),
                escaped(&asked),
            );
            let said = match (bound.state, bound.value) {
                (State::Kept, _) => {
                    xml.push_str("/>\n");
                    continue;
                }
                (State::Broken, Some(value)) => format!("{word} is {value}, wanted {asked}"),
                (State::Broken | State::Unknown, _) => {
                    format!("{word} is unknown, wanted {asked}")
                }
            };
            let kind = if bound.value.is_some() { "broken" } else { "unknown" };
            let said = escaped(&said);
            let _ = writeln!(
                xml,
                ">\n      <failure type=\"{kind}\" message=\"{said}\">{said}</failure>\n    </testcase>"
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// Text as it may stand in an attribute or an element. What XML 1.0 cannot hold at all is replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(safe, "&#{};", u32::from(character));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::bounds::{Bound, Measure};
    use super::*;

    /// Reads a document back as far as this one goes: the elements with their attributes, in order.
    /// Panics where it is not well-formed.
    fn elements(xml: &str) -> Vec<(String, Vec<(String, String)>)> {
        let mut rest =
            xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").expect("a head");
        let (mut found, mut open) = (Vec::new(), Vec::new());
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>') && open.is_empty() <= text.trim().is_empty(), "{text}");
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "tags are nested");
                continue;
            }
            let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let mut read = Vec::new();
            while let Some((key, after)) = attributes.trim_start().split_once("=\"") {
                let (value, after) = after.split_once('"').expect("a value ends");
                assert!(!value.contains('<'), "{value}");
                read.push((key.to_owned(), value.to_owned()));
                attributes = after;
            }
            found.push((name.to_owned(), read));
            if !is_empty {
                open.push(name.to_owned());
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "everything is closed");
        found
    }

    fn gated(title: &str) -> Gated {
        let bound = |max, value: Option<f64>| {
            let figures = value.map(|value| (Measure::Amplification, value)).into_iter().collect();
            Bound { measure: Measure::Amplification, min: None, max: Some(max), live: true }
                .judge(&figures)
        };
        let bounds = vec![bound(1.1, Some(1.0)), bound(1.1, Some(9.5)), bound(1.1, None)];
        let runs = vec![Run { seed: 7, passed: false, bounds }];
        let scenario = "launch-0900".to_owned();
        Gated { title: title.to_owned(), scenario, on_virtual_clock: true, passed: false, runs }
    }

    #[test]
    fn suites_cases_and_failures_are_well_formed() {
        let xml = write(&gated("the surge"));
        let read = elements(&xml);
        let names: Vec<_> = read.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["testsuites", "testsuite", "testcase", "testcase", "failure", "testcase", "failure"];
        assert_eq!(names, expected, "{xml}");
        let attribute = |element: usize, key: &str| {
            let found = read[element].1.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.clone()).expect(key)
        };
        assert_eq!((attribute(0, "tests"), attribute(0, "failures")), ("3".into(), "2".into()));
        assert_eq!(attribute(2, "classname"), "weir.launch-0900.seed-7");
        assert_eq!(attribute(4, "message"), "amplification is 9.5, wanted at most 1.1");
        assert_eq!(
            (attribute(4, "type"), attribute(6, "type")),
            ("broken".into(), "unknown".into())
        );
    }

    #[test]
    fn what_xml_cannot_hold_does_not_break_it() {
        let xml = write(&gated("a \"<b>\" & 'c'\n\u{1}\u{fffe}"));
        let title = &elements(&xml)[0].1[0].1;
        assert_eq!(title, "a &quot;&lt;b&gt;&quot; &amp; &apos;c&apos;&#10;\u{fffd}\u{fffd}");
    }
}
