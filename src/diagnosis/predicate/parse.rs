//! Reads one predicate from its text. Knows the grammar and where a text leaves it, nothing else.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::signal::parse_duration;

use super::{
    Bound, CodePatterns, Heading, MAX_PAST, MAX_SPAN, MIN_SPAN, Moved, Op, Operand, PredicateError,
    Test, Window,
};

/// The word that asks whether there is a reading.
const KNOWN: &str = "known";

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn fail<T>(
        &self,
        problem: impl Into<String>,
        remedy: &'static str,
    ) -> Result<T, PredicateError> {
        let column = self.text[..self.at].chars().count() + 1;
        Err(PredicateError { column, problem: problem.into(), remedy })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn take(&mut self, token: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len_utf8();
        }
        found
    }

    pub(super) fn peek_word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        &rest[..rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len())]
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    fn expect(&mut self, token: char, remedy: &'static str) -> Result<(), PredicateError> {
        if self.take(token) { Ok(()) } else { self.fail(format!("`{token}` is missing"), remedy) }
    }

    pub(super) fn operand(&mut self) -> Result<Operand, PredicateError> {
        self.skip_space();
        let start = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.ends_with('.') {
            self.at = start;
            return self.fail("a signal is missing", "write a name of the signal catalogue");
        }
        let window = if self.rest().starts_with('[') { self.window()? } else { Window::Fast };
        let mut ago = None;
        if self.rest().starts_with('@') {
            self.at += 1;
            ago = Some(self.past()?);
        }
        let back = match window {
            Window::Fast => Duration::ZERO,
            Window::Span(span) => span,
        };
        if back + ago.unwrap_or_default() > MAX_PAST {
            self.at = start;
            return self.fail("that window is not kept", "let it begin within the last 61 minutes");
        }
        Ok(Operand { signal: name.to_owned(), window, ago })
    }

    fn window(&mut self) -> Result<Window, PredicateError> {
        self.at += 1;
        let window = if self.take_word("fast") { Window::Fast } else { Window::Span(self.past()?) };
        self.expect(']', "close the window, as in `[1m]` or `[fast]`")?;
        Ok(window)
    }

    /// A window, an `@` or the span of a trend: no more than an hour is kept.
    fn past(&mut self) -> Result<Duration, PredicateError> {
        self.duration(MIN_SPAN..=MAX_SPAN, "only an hour is kept; write from `1s` to `1h`")
    }

    /// A signal alone: a trend and an onset are read from the samples, a word and codes from the newest.
    fn bare(&mut self, operand: Operand, at: usize) -> Result<String, PredicateError> {
        if operand.window == Window::Fast && operand.ago.is_none() {
            return Ok(operand.signal);
        }
        self.at = at;
        self.fail(
            "a move, a word and codes have no window and no `@`",
            "write the signal alone, as in `x rising 10m`",
        )
    }

    pub(super) fn duration(
        &mut self,
        within: RangeInclusive<Duration>,
        remedy: &'static str,
    ) -> Result<Duration, PredicateError> {
        self.skip_space();
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '.');
        match parse_duration(word) {
            Some(span) if within.contains(&span) => Ok(span),
            Some(span) => {
                self.at = start;
                let which = if span > *within.end() { "long" } else { "short" };
                self.fail(format!("`{word}` is too {which}"), remedy)
            }
            None => {
                self.at = start;
                self.fail(format!("`{word}` is no duration"), "write `30s`, `5m` or `1h`")
            }
        }
    }

    pub(super) fn op(&mut self) -> Result<Op, PredicateError> {
        if self.take('<') {
            Ok(Op::Below)
        } else if self.take('>') {
            Ok(Op::Above)
        } else {
            self.fail("a comparison is missing", "write `<`, `>`, `is WORD`, `matching /CODE/`, `rising 10m` or `rose before SIGNAL`")
        }
    }

    pub(super) fn number(&mut self) -> Result<f64, PredicateError> {
        self.skip_space();
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
        match word.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                let percent = self.take('%');
                Ok(if percent { number / 100.0 } else { number })
            }
            _ => {
                self.at = start;
                self.fail("a number is missing", "write a number such as `0.05`, `5%` or `30`")
            }
        }
    }

    pub(super) fn bound(&mut self) -> Result<Bound, PredicateError> {
        self.skip_space();
        if self.rest().starts_with('=') {
            return self.fail("`=` is not part of the language", "use `<` or `>` alone");
        }
        if self.rest().starts_with(|c: char| c.is_ascii_lowercase()) {
            let operand = self.operand()?;
            let times = if self.take('*') { self.number()? } else { 1.0 };
            return Ok(Bound::Scaled { operand, times });
        }
        Ok(Bound::Fixed(self.number()?))
    }

    pub(super) fn text_test(&mut self, left: Operand) -> Result<Test, PredicateError> {
        let path = self.bare(left, 0)?;
        self.take_word("is");
        let negated = self.take_word("not");
        self.skip_space();
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
        if word.is_empty() {
            return self.fail("a word is missing", "write what it should be, as in `is open`");
        }
        if word == KNOWN {
            if negated {
                self.at = start;
                let remedy = "write `is known`; what it stands in is unknown then";
                return self.fail("what is not known makes nothing true", remedy);
            }
            return Ok(Test::Known { path });
        }
        Ok(Test::Is { path, word: word.to_owned(), negated })
    }

    pub(super) fn codes_test(&mut self, left: Operand) -> Result<Test, PredicateError> {
        let signal = self.bare(left, 0)?;
        if signal != "error_codes" {
            return self
                .fail(format!("`{signal}` has no codes"), "`matching` reads `error_codes` only");
        }
        self.take_word("matching");
        self.expect('/', "write the codes as `/first|second*/`")?;
        let inside = self.take_while(|c| c != '/');
        let Some(patterns) = CodePatterns::parse(inside) else {
            return self.fail(
                "the codes cannot be used",
                "write `/first|second*/`, 1 to 40 of them; either all begin with `gate:` or none",
            );
        };
        self.expect('/', "close the codes with `/`")?;
        let op = self.op()?;
        let share = self.number()?;
        Ok(Test::Codes { patterns, op, share })
    }

    pub(super) fn trend_test(&mut self, left: Operand) -> Result<Test, PredicateError> {
        let signal = self.bare(left, 0)?;
        let is_up = self.take_word(Heading::Up.moving());
        let way = if is_up || !self.take_word(Heading::Down.moving()) {
            Heading::Up
        } else {
            Heading::Down
        };
        let span = self.past()?;
        Ok(Test::Trend { signal, way, span })
    }

    pub(super) fn order_test(&mut self, left: Operand) -> Result<Test, PredicateError> {
        let signal = self.bare(left, 0)?;
        let first = Moved { signal, way: self.moved().unwrap_or(Heading::Up) };
        if !self.take_word("before") {
            return self
                .fail("`before` is missing", "write `x rose before y` or `x fell before y rose`");
        }
        self.skip_space();
        let start = self.at;
        let operand = self.operand()?;
        let signal = self.bare(operand, start)?;
        let then = Moved { signal, way: self.moved().unwrap_or(Heading::Up) };
        if first == then {
            self.at = start;
            return self.fail("nothing moves before itself", "name two signals, or two directions");
        }
        Ok(Test::Order { first, then })
    }

    fn moved(&mut self) -> Option<Heading> {
        [Heading::Up, Heading::Down].into_iter().find(|way| self.take_word(way.moved()))
    }

    pub(super) fn end(&mut self) -> Result<(), PredicateError> {
        self.skip_space();
        if self.rest().is_empty() {
            return Ok(());
        }
        let word = self.rest().split_whitespace().next().unwrap_or_default();
        self.fail(
            format!("`{word}` does not belong here"),
            "after the comparison only `for DURATION` and then `clear NUMBER` may follow",
        )
    }
}
