//! What the body of an answer says, gathered by the names of its fields and wherever they stand.
//!
//! Providers wrap the same few facts in many envelopes: an object, a string, a list, JSON in a string,
//! events of a stream. So the reader walks the document once, keeps what it knows by name and skips
//! the rest; it builds no tree. A body that was cut off says what came before the cut. It decides
//! nothing, and what it keeps is bounded.

mod walk;

use std::time::Duration;

use http::HeaderMap;

/// How much of a body is looked at.
pub(super) const BODY_LEN_MAX: usize = 64 * 1024;
/// How many facts of one kind are kept.
const FACTS_MAX: usize = 8;
/// How much of a code, type or reason is kept; real ones have about 30 characters.
const WORD_LEN_MAX: usize = 200;
/// How much of one message is kept.
const MESSAGE_LEN_MAX: usize = 4 * 1024;
/// How many lines of a stream of events are looked at.
const LINES_MAX: usize = 256;

/// The reason that stands for a quota that never lets anything through.
const QUOTA_OF_ZERO: &str = "quota_value=0";

/// The facts of a body. Words are as written, messages in lower case.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// `code`, `error_code`, `tag`, `__type`: the most specific names that providers give.
    pub(super) codes: Vec<String>,
    /// `type`, `error_type`.
    pub(super) kinds: Vec<String>,
    /// `reason`, `status` in words, `limit_source`, and what follows from numbers.
    pub(super) reasons: Vec<String>,
    /// Names of quotas.
    pub(super) quotas: Vec<String>,
    /// Prose.
    pub(super) messages: Vec<String>,
    /// A status that the body repeats, or that stands in for the real one.
    pub(super) status: Option<u16>,
    /// `RetryInfo.retryDelay`
    pub(super) retry_delay: Option<Duration>,
    /// `quotaResetDelay`
    pub(super) quota_reset_delay: Option<Duration>,
    /// `estimated_time`
    pub(super) estimated_time: Option<Duration>,
    /// Headers that the body repeats.
    pub(super) headers: HeaderMap,
    /// Whether it holds an `error`.
    pub(super) is_error: bool,
    pub(super) quota_limit: Option<f64>,
    pub(super) quota_current: Option<f64>,
}

impl Said {
    /// Reads the body of an answer that is an error.
    pub(super) fn of_error(body: &[u8]) -> Self {
        let mut said = Self::default();
        let body = start_of(body);
        match body.first() {
            Some(b'{' | b'[' | b'"') => walk::json(&mut said, body),
            Some(_) if !said.events(body) => {
                said.message(&String::from_utf8_lossy(
                    &body[..body.len().min(2 * MESSAGE_LEN_MAX)],
                ));
            }
            _ => {}
        }
        said.conclude();
        said
    }

    /// Reads the body of a success, which is an error all the same if it holds one.
    pub(super) fn of_success(body: &[u8]) -> Self {
        let mut said = Self::default();
        let body = start_of(body);
        // Results are large and mostly numbers: nothing is walked that does not name an error.
        let names_error = |word: &&[u8]| memchr::memmem::find(body, word).is_some();
        if [&b"\"error"[..], b"Exception\"", b"event: error", b"event:error"]
            .iter()
            .any(names_error)
        {
            match body.first() {
                Some(b'{' | b'[') => walk::json(&mut said, body),
                Some(_) => drop(said.events(body)),
                None => {}
            }
        }
        if said.is_error {
            said.conclude();
        } else {
            said = Self::default();
        }
        said
    }

    /// Reads the lines of a stream of events that hold an error; `false` if it is no such stream.
    fn events(&mut self, body: &[u8]) -> bool {
        let mut is_stream = false;
        let mut is_error_event = false;
        for line in body.split(|byte| *byte == b'\n').take(LINES_MAX) {
            let is_field = [&b"event:"[..], b"data:", b"id:", b":"];
            is_stream |= is_field.iter().any(|field| line.starts_with(field));
            if let Some(event) = line.strip_prefix(b"event:") {
                is_error_event = event.trim_ascii() == b"error";
            }
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            self.is_error |= is_error_event;
            // A quote that a model wrote is escaped, so these bytes are a key or a type.
            if is_error_event || memchr::memmem::find(data, b"\"error").is_some() {
                walk::json(self, data.trim_ascii());
            }
        }
        is_stream
    }

    /// Keeps a message, or the facts of the JSON that it is.
    fn message(&mut self, text: &str) {
        let fits = self.messages.len() < FACTS_MAX && !text.trim().is_empty();
        if fits {
            self.messages.push(start_of_text(text, MESSAGE_LEN_MAX).to_lowercase());
        }
    }

    /// What follows from numbers, as words that a rule can name.
    fn conclude(&mut self) {
        if let (Some(limit), Some(current)) = (self.quota_limit, self.quota_current)
            && limit > 0.0
            && current >= limit
        {
            self.reasons.push("quota_current=quota_limit".to_owned());
        }
        if self.messages.iter().any(|message| says_limit_of_zero(message)) {
            self.reasons.push(QUOTA_OF_ZERO.to_owned());
        }
    }
}

/// "limit: 0", and neither "limit: 05" nor "limit: 0.5"; `message` is in lower case.
fn says_limit_of_zero(message: &str) -> bool {
    message.split("limit: 0").skip(1).any(|after| {
        let after = after.strip_prefix('.').unwrap_or(after);
        !after.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// The part of a body that is looked at, without blank lines before it and a byte order mark.
fn start_of(body: &[u8]) -> &[u8] {
    let body = &body[..body.len().min(BODY_LEN_MAX)];
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start()
}

fn start_of_text(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

fn keep(words: &mut Vec<String>, text: &str) {
    let text = start_of_text(text.trim(), WORD_LEN_MAX);
    if words.len() < FACTS_MAX && !text.is_empty() {
        words.push(text.to_owned());
    }
}

#[cfg(test)]
mod tests;
