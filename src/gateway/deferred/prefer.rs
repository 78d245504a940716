//! Reads `Prefer` (RFC 7240): whether a caller takes "later" for an answer, and after how long a wait.

use std::time::Duration;

use http::HeaderMap;

/// What a caller that takes "later" for an answer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How long it waits for an answer first; `None` where it does not say.
    pub wait: Option<Duration>,
}

impl Wish {
    /// The wish of a request's headers; `None` without `respond-async`. What is malformed is not there,
    /// and of several waits the first counts, as the RFC has it.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let mut asks = false;
        let mut wait = None;
        for preference in values.flat_map(|value| value.split(',')) {
            let preference = preference.split(';').next().unwrap_or_default().trim();
            if preference.eq_ignore_ascii_case("respond-async") {
                asks = true;
            } else if let Some((name, seconds)) = preference.split_once('=')
                && name.trim().eq_ignore_ascii_case("wait")
                && wait.is_none()
            {
                let seconds = seconds.trim().trim_matches('"').parse::<u32>().ok();
                wait = seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
            }
        }
        asks.then_some(Self { wait })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_wish_is_read_as_the_rfc_writes_it() {
        let none = Some(None);
        let seconds = |seconds| Some(Some(Duration::from_secs(seconds)));
        for (lines, expected) in [
            (&["respond-async"][..], none),
            (&["Respond-Async, wait=10"], seconds(10)),
            (&["wait=10", "respond-async"], seconds(10)),
            (&["respond-async; foo=bar, wait = \"3\""], seconds(3)),
            (&["respond-async, wait=1, wait=9"], seconds(1)),
            (&["respond-async, wait=soon"], none),
            (&["respond-async, wait=-1"], none),
            (&["respond-async, wait=0"], seconds(0)),
            (&["wait=10"], None),
            (&["return=minimal"], None),
            (&["respond-asynchronously"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("prefer", HeaderValue::from_static(line));
            }
            let wish = Wish::of(&headers).map(|wish| wish.wait);
            assert_eq!(wish, expected, "{lines:?}");
        }
    }
}
