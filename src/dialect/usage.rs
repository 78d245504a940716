//! Reads what a call cost from the end of its answer, without parsing the rest of it.
//!
//! An embeddings answer is megabytes of numbers with its `usage` last; a stream has it in the last
//! chunks. Inside a JSON string a quote is escaped, so the bytes `"usage"` are always a key, never
//! something that a model wrote.

use memchr::memmem;
use serde::Deserialize;

use crate::signal::Tokens;

/// How much of the end is looked at.
const TAIL_LEN_MAX: usize = 64 * 1024;
/// How many `"usage"` keys are tried: in a stream the chunks after the real one may carry `"usage":null`.
const KEYS_MAX: usize = 32;

/// Tokens that an answer says it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: Option<Tokens>,
    /// Tokens of the answer; embeddings have none.
    pub completion_tokens: Option<Tokens>,
    /// What the provider charges: the sum.
    pub total_tokens: Tokens,
}

#[derive(Deserialize)]
struct Object {
    #[serde(rename = "prompt_tokens", alias = "input_tokens")]
    prompt: Option<u64>,
    #[serde(rename = "completion_tokens", alias = "output_tokens")]
    completion: Option<u64>,
    #[serde(rename = "total_tokens")]
    total: Option<u64>,
}

/// Finds the last `"usage"` object in the tail of a body (JSON, or server-sent events).
#[must_use]
pub fn usage_from_tail(body: &[u8]) -> Option<Usage> {
    let tail = &body[body.len().saturating_sub(TAIL_LEN_MAX)..];
    let key = br#""usage""#;
    let finder = memmem::FinderRev::new(key);
    finder.rfind_iter(tail).take(KEYS_MAX).find_map(|at| read(&tail[at + key.len()..]))
}

/// Reads the value after the key; `null` and strangers give nothing.
fn read(after_key: &[u8]) -> Option<Usage> {
    let value = after_key.trim_ascii_start().strip_prefix(b":")?;
    let object = serde_json::Deserializer::from_slice(value).into_iter::<Object>().next()?.ok()?;
    let Object { prompt, completion, total } = object;
    let sum = || match (prompt, completion) {
        (None, None) => None,
        (prompt, completion) => {
            Some(prompt.unwrap_or_default().saturating_add(completion.unwrap_or_default()))
        }
    };
    Some(Usage {
        prompt_tokens: prompt.map(Tokens),
        completion_tokens: completion.map(Tokens),
        total_tokens: Tokens(total.or_else(sum)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, expected_total: Option<u64>) {
        let total = usage_from_tail(body.as_bytes()).map(|usage| usage.total_tokens.0);
        assert_eq!(total, expected_total, "{body}");
    }

    #[test]
    fn json_and_streams() {
        check(r#"{"data":[],"usage":{"prompt_tokens":300,"total_tokens":300}}"#, Some(300));
        check(r#"{"usage" : {"prompt_tokens":1,"completion_tokens":2},"data":[]}"#, Some(3));
        check(
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\
             \"total_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n",
            Some(7),
        );
        check(r#"{"usage":{"total_tokens":9}} {"usage":null}"#, Some(9));
        check(r#"{"response":{"usage":{"input_tokens":5,"output_tokens":6}}}"#, Some(11));
    }

    #[test]
    fn what_a_model_wrote_is_not_usage() {
        check(r#"{"content":"\"usage\":{\"total_tokens\":5}"}"#, None);
        check(r#"{"usage":{}}"#, None);
        check(r#"{"usage":{"total_tokens":-1}}"#, None);
        check(r#"{"usage":{"total_tokens":"#, None);
        check("", None);
    }

    #[test]
    fn only_the_tail_is_looked_at() {
        let usage = r#""usage":{"total_tokens":9}"#;
        let fits = TAIL_LEN_MAX - usage.len();
        check(&format!("{usage}{}", " ".repeat(fits)), Some(9));
        check(&format!("{usage}{}", " ".repeat(fits + 1)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>, after in "\\PC{0,40}") {
            let _ = usage_from_tail(&body);
            let _ = usage_from_tail(format!("\"usage\"{after}").as_bytes());
            let _ = usage_from_tail(format!("\"usage\":{{{after}").as_bytes());
        }
    }
}
