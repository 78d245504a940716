//! What the simulated provider reads and writes on the wire: OpenAI's JSON, as far as its SDKs need it.
//! Errors and headers may be in another dialect; their words are not here.
//!
//! The simulated tokenizer counts one token per word between white space, and one per number of a
//! token array, so that a client can make a request of exactly the size it wants.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::signal::Tokens;

/// Floats of a simulated embedding: few, since nobody searches with them.
const DIMENSIONS: usize = 8;
/// Longest answer, in words.
const ANSWER_WORDS_MAX: usize = 4_096;
/// What the simulated model says, word by word, and again where more is asked for.
const ANSWER: [&str; 8] = ["This", "was", "said", "by", "a", "simulated", "provider", "."];
/// Most inputs of one embeddings request, as at OpenAI.
const INPUTS_MAX: usize = 2_048;

/// A request that was understood.
#[derive(Debug)]
pub(super) enum WireRequest {
    /// `/v1/embeddings`
    Embeddings {
        /// Echoed.
        model: String,
        /// Tokens and a digest of each input, in order.
        inputs: Vec<(u64, blake3::Hash)>,
        /// Vectors as base64 of little-endian floats, the SDK's default.
        base64: bool,
    },
    /// `/v1/chat/completions`
    Chat {
        /// Echoed.
        model: String,
        /// Tokens of all messages.
        prompt_tokens: u64,
        /// Words of the answer.
        completion_tokens: usize,
        /// Server-sent events.
        stream: bool,
        /// A last chunk with the usage.
        stream_usage: bool,
    },
    /// `/v1/models`
    Models,
}

#[derive(Deserialize)]
struct EmbeddingsBody {
    model: String,
    input: Input,
    encoding_format: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u64>),
    TokenLists(Vec<Vec<u64>>),
}

#[derive(Deserialize)]
struct ChatBody {
    model: String,
    messages: Vec<Value>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    max_completion_tokens: Option<usize>,
    max_tokens: Option<usize>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl WireRequest {
    /// Reads an embeddings request.
    ///
    /// # Errors
    /// What is wrong with it, for the error's message.
    pub(super) fn embeddings(body: &[u8]) -> Result<Self, String> {
        let body: EmbeddingsBody =
            serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let of_text = |text: &String| (count_words(text), blake3::hash(text.as_bytes()));
        let of_tokens = |tokens: &Vec<u64>| {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            (tokens.len() as u64, blake3::hash(&bytes))
        };
        let inputs: Vec<_> = match &body.input {
            Input::Text(text) => vec![of_text(text)],
            Input::Texts(texts) => texts.iter().map(of_text).collect(),
            Input::Tokens(tokens) => vec![of_tokens(tokens)],
            Input::TokenLists(lists) => lists.iter().map(of_tokens).collect(),
        };
        if inputs.is_empty() || inputs.len() > INPUTS_MAX {
            return Err(format!("`input` must have 1 to {INPUTS_MAX} items, not {}", inputs.len()));
        }
        let base64 = body.encoding_format.as_deref() == Some("base64");
        Ok(Self::Embeddings { model: body.model, inputs, base64 })
    }

    /// Reads a chat request.
    ///
    /// # Errors
    /// What is wrong with it, for the error's message.
    pub(super) fn chat(body: &[u8]) -> Result<Self, String> {
        let body: ChatBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let asked = body.max_completion_tokens.or(body.max_tokens).unwrap_or(ANSWER.len());
        Ok(Self::Chat {
            model: body.model,
            prompt_tokens: body
                .messages
                .iter()
                .map(|message| content_words(&message["content"]))
                .sum(),
            completion_tokens: asked.min(ANSWER_WORDS_MAX),
            stream: body.stream,
            stream_usage: body.stream_options.is_some_and(|options| options.include_usage),
        })
    }

    /// What the request will be charged.
    pub(super) fn tokens(&self) -> Tokens {
        match self {
            Self::Embeddings { inputs, .. } => {
                Tokens(inputs.iter().map(|(tokens, _)| tokens).sum())
            }
            Self::Chat { prompt_tokens, completion_tokens, .. } => {
                Tokens(prompt_tokens + *completion_tokens as u64)
            }
            Self::Models => Tokens(0),
        }
    }

    /// How many inputs it has.
    pub(super) fn items(&self) -> u32 {
        match self {
            Self::Embeddings { inputs, .. } => u32::try_from(inputs.len()).unwrap_or(u32::MAX),
            Self::Chat { .. } | Self::Models => 1,
        }
    }

    /// The model that was asked for.
    pub(super) fn model(&self) -> &str {
        match self {
            Self::Embeddings { model, .. } | Self::Chat { model, .. } => model,
            Self::Models => "none",
        }
    }

    /// The whole answer as one JSON document.
    pub(super) fn answer(&self, id: &str) -> Value {
        match self {
            Self::Embeddings { model, inputs, base64 } => {
                let item = |(index, (_, digest)): (usize, &(u64, blake3::Hash))| json!({ "object": "embedding", "index": index, "embedding": vector(digest, *base64) });
                let tokens = self.tokens().0;
                json!({
                    "object": "list",
                    "data": inputs.iter().enumerate().map(item).collect::<Vec<_>>(),
                    "model": model,
                    "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
                })
            }
            Self::Chat { model, completion_tokens, .. } => {
                let content = words(*completion_tokens).collect::<Vec<_>>().join(" ");
                json!({
                    "id": id, "object": "chat.completion", "created": 0, "model": model,
                    "choices": [{
                        "index": 0, "finish_reason": "stop",
                        "message": { "role": "assistant", "content": content },
                    }],
                    "usage": self.chat_usage(),
                })
            }
            Self::Models => {
                let model = |id: &str| json!({ "id": id, "object": "model", "created": 0, "owned_by": "weir" });
                json!({ "object": "list", "data": [model("sim-embedding"), model("sim-chat")] })
            }
        }
    }

    /// The answer as server-sent events, if that is what was asked for.
    pub(super) fn events(&self, id: &str) -> Option<Vec<String>> {
        let Self::Chat { model, completion_tokens, stream: true, stream_usage, .. } = self else {
            return None;
        };
        let event = |choices: Value, usage: Value| {
            let mut chunk = json!({
                "id": id, "object": "chat.completion.chunk", "created": 0, "model": model,
                "choices": choices,
            });
            if *stream_usage {
                chunk["usage"] = usage;
            }
            format!("data: {chunk}\n\n")
        };
        let delta = |delta: Value, finish: Value| {
            event(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), Value::Null)
        };
        let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
        for (index, word) in words(*completion_tokens).enumerate() {
            let space = if index == 0 { "" } else { " " };
            events.push(delta(json!({ "content": format!("{space}{word}") }), Value::Null));
        }
        events.push(delta(json!({}), json!("stop")));
        if *stream_usage {
            events.push(event(json!([]), self.chat_usage()));
        }
        events.push("data: [DONE]\n\n".to_owned());
        Some(events)
    }

    fn chat_usage(&self) -> Value {
        let Self::Chat { prompt_tokens, completion_tokens, .. } = self else { return Value::Null };
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.tokens().0,
        })
    }
}

/// The first words of an answer.
fn words(count: usize) -> impl Iterator<Item = &'static str> {
    ANSWER.iter().copied().cycle().take(count)
}

fn count_words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// Words of a message's content: a text, or a list of parts of which some are text.
fn content_words(content: &Value) -> u64 {
    match content {
        Value::String(text) => count_words(text),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).map(count_words).sum()
        }
        _ => 0,
    }
}

/// A unit vector that depends on the input alone.
fn vector(digest: &blake3::Hash, base64: bool) -> Value {
    let (words, _) = digest.as_bytes().as_chunks::<4>();
    let raw: Vec<f32> = words
        .iter()
        .take(DIMENSIONS)
        .map(|word| f32::from(i16::from_le_bytes([word[0], word[1]])) / f32::from(i16::MAX))
        .collect();
    let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    let unit: Vec<f32> = raw.iter().map(|x| x / length).collect();
    if base64 {
        let bytes: Vec<u8> = unit.iter().flat_map(|x| x.to_le_bytes()).collect();
        Value::String(to_base64(&bytes))
    } else {
        json!(unit)
    }
}

fn to_base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let index = (group >> (18 - 6 * place)) & 63;
            let letter = ALPHABET[index as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_words() {
        let tokens = |input: &str| {
            let body = format!("{{\"model\":\"m\",\"input\":{input}}}");
            WireRequest::embeddings(body.as_bytes()).map(|request| request.tokens().0).ok()
        };
        assert_eq!(tokens("\"one two  three\""), Some(3));
        assert_eq!(tokens("[\"one\", \"two three\"]"), Some(3));
        assert_eq!(tokens("[1,2,3,4]"), Some(4));
        assert_eq!(tokens("[[1,2],[3]]"), Some(3));
        assert_eq!(tokens("{}"), None);
        assert_eq!(tokens("[]"), None);
        assert_eq!(tokens(&format!("[{}\"w\"]", "\"w\",".repeat(INPUTS_MAX - 1))), Some(2_048));
        assert_eq!(tokens(&format!("[{}\"w\"]", "\"w\",".repeat(INPUTS_MAX))), None);
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(to_base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_stream_ends_with_usage_and_done() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":"a b"}],"stream":true,
            "stream_options":{"include_usage":true},"max_tokens":3}"#;
        let events = WireRequest::chat(body).expect("understood").events("id").expect("a stream");
        let all = events.concat();
        assert!(all.ends_with("data: [DONE]\n\n"), "{all}");
        let usage = crate::dialect::usage_from_tail(all.as_bytes()).expect("usage in the tail");
        assert_eq!(usage.total_tokens, Tokens(5));
    }
}
