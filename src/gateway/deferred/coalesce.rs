//! Makes one embeddings request of several small ones, and several answers of its answer. Pure; which
//! requests may go together is said by their prints alone.
//!
//! Only texts are joined: lists of tokens are left alone, and so is what has a field beside `input` that
//! differs.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::item::{Answer, Print, Work};

/// The only path whose requests are joined.
pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
/// Larger bodies go alone: joining saves them little.
const SMALL_LEN_MAX: usize = 16 * 1024;

/// The texts of a request's `input`, and the fields beside it.
struct Request {
    inputs: Vec<Value>,
    fields: Map<String, Value>,
}

impl Request {
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let inputs = match fields.remove("input")? {
            text @ Value::String(_) => vec![text],
            Value::Array(texts) if !texts.is_empty() && texts.iter().all(Value::is_string) => texts,
            _ => return None,
        };
        Some(Self { inputs, fields })
    }
}

/// What requests must have in common to be sent as one; `None` for one that goes alone.
#[must_use]
pub(in crate::gateway) fn print(owner: &Print, work: &Work) -> Option<Print> {
    if work.method != "POST" || work.path != EMBEDDINGS || work.body.len() > SMALL_LEN_MAX {
        return None;
    }
    let mut fields = Request::read(&work.body)?.fields;
    fields.sort_keys();
    let mut hasher = blake3::Hasher::new();
    hasher.update(owner).update(work.scope.as_bytes()).update(&[u8::from(work.backfill)]);
    hasher.update(json!(work.headers).to_string().as_bytes());
    hasher.update(json!(fields).to_string().as_bytes());
    Some(*hasher.finalize().as_bytes())
}

/// Bounds of what is joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) inputs: usize,
    pub(super) tokens: u64,
}

/// How many from the front of `works` make one request within the limits; at least one.
pub(super) fn first_load<'a>(
    works: impl IntoIterator<Item = &'a Work>,
    limits: Limits,
    tokens_of: impl Fn(&Work) -> u64,
) -> usize {
    let (mut inputs, mut tokens, mut count) = (0, 0, 0);
    for work in works {
        inputs += Request::read(&work.body).map_or(1, |request| request.inputs.len());
        tokens += tokens_of(work);
        if count > 0 && (inputs > limits.inputs || tokens > limits.tokens) {
            break;
        }
        count += 1;
    }
    count.max(1)
}

/// Several requests as one.
pub(super) struct Joined {
    /// What is sent.
    pub(super) work: Work,
    /// Inputs of each, and the bytes of its texts.
    shares: Vec<(usize, u64)>,
}

/// One request for all; `None` where they do not go together after all.
pub(super) fn join(works: &[&Work]) -> Option<Joined> {
    let first = works.first()?;
    let mut fields = Request::read(&first.body)?.fields;
    let mut all = Vec::new();
    let mut shares = Vec::new();
    let mut keys = blake3::Hasher::new();
    for work in works {
        let inputs = Request::read(&work.body)?.inputs;
        let len: usize = inputs.iter().filter_map(Value::as_str).map(str::len).sum();
        shares.push((inputs.len(), len as u64));
        all.extend(inputs);
        keys.update(work.idempotency_key.as_bytes()).update(b"\n");
    }
    fields.insert("input".to_owned(), Value::Array(all));
    let body = Bytes::from(Value::Object(fields).to_string());
    let idempotency_key = format!("weir-{}", &keys.finalize().to_hex()[..32]);
    Some(Joined { work: Work { body, idempotency_key, ..(*first).clone() }, shares })
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    data: Vec<Embedding<'a>>,
    model: Option<Value>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Embedding<'a> {
    index: usize,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl Joined {
    /// The answer of each; `None` where the answer has not exactly one embedding for each input, for
    /// then nobody can say whose is whose.
    pub(super) fn split(&self, answer: &Answer) -> Option<Vec<Answer>> {
        let mut whole: Whole<'_> = serde_json::from_slice(&answer.body).ok()?;
        whole.data.sort_by_key(|embedding| embedding.index);
        let inputs: usize = self.shares.iter().map(|(inputs, _)| inputs).sum();
        let in_order = whole.data.iter().enumerate().all(|(place, one)| one.index == place);
        if whole.data.len() != inputs || !in_order {
            return None;
        }
        let lens: Vec<u64> = self.shares.iter().map(|(_, len)| *len).collect();
        let usage = whole.usage.as_ref();
        let prompt = usage.map(|usage| divide(usage.prompt_tokens, &lens));
        let total = usage.map(|usage| divide(usage.total_tokens, &lens));
        let mut rest = whole.data.iter();
        let mut answers = Vec::with_capacity(lens.len());
        for (place, (inputs, _)) in self.shares.iter().enumerate() {
            let data: Vec<Value> = rest
                .by_ref()
                .take(*inputs)
                .enumerate()
                .map(|(index, one)| {
                    json!({"object": "embedding", "index": index, "embedding": one.embedding})
                })
                .collect();
            let mut body = json!({"object": "list", "data": data, "model": whole.model});
            if let (Some(prompt), Some(total)) = (&prompt, &total) {
                let (prompt, total) = (prompt[place], total[place]);
                body["usage"] = json!({"prompt_tokens": prompt, "total_tokens": total});
            }
            answers.push(Answer { body: Bytes::from(body.to_string()), ..answer.clone() });
        }
        Some(answers)
    }
}

/// `total` in proportion to `shares`: whole numbers whose sum is `total`.
fn divide(total: u64, shares: &[u64]) -> Vec<u64> {
    let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let count = shares.len() as u128;
    let mut given = 0;
    let mut before: u128 = 0;
    // Each gets the difference of two rounded-down prefix sums, so that nothing is lost or doubled.
    let prefix = |upto: u128, place: u128| match sum {
        0 => u128::from(total) * place / count.max(1),
        sum => u128::from(total) * upto / sum,
    };
    let parts = (1_u128..).zip(shares).map(|(place, share)| {
        before += u128::from(*share);
        let until = prefix(before, place);
        let part = until - given;
        given = until;
        u64::try_from(part).unwrap_or(u64::MAX)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(body: &Value, key: &str) -> Work {
        Work {
            scope: "s".to_owned(),
            tenant: "t".to_owned(),
            backfill: false,
            method: "POST".to_owned(),
            path: EMBEDDINGS.to_owned(),
            headers: Vec::new(),
            body: Bytes::from(body.to_string()),
            idempotency_key: key.to_owned(),
            together: None,
        }
    }

    #[test]
    fn only_what_differs_in_its_texts_alone_goes_together() {
        let owner = [1; 32];
        let of = |body: Value| print(&owner, &work(&body, "k"));
        let base = of(json!({"model": "m", "input": "a", "dimensions": 3}));
        assert!(base.is_some());
        assert_eq!(base, of(json!({"dimensions": 3, "input": ["b", "c"], "model": "m"})));
        for other in [
            json!({"model": "n", "input": "a", "dimensions": 3}),
            json!({"model": "m", "input": "a"}),
            json!({"model": "m", "input": [1, 2], "dimensions": 3}),
            json!({"model": "m", "input": [], "dimensions": 3}),
            json!({"model": "m", "dimensions": 3}),
            json!({"model": "m", "input": "a".repeat(SMALL_LEN_MAX), "dimensions": 3}),
        ] {
            assert_ne!(base, of(other.clone()), "{other}");
        }
        assert_ne!(
            base,
            print(&[2; 32], &work(&json!({"model": "m", "input": "a", "dimensions": 3}), "k"))
        );
    }

    #[test]
    fn an_answer_is_split_by_index_and_its_usage_to_the_last_token() {
        let works = [
            work(&json!({"model": "m", "input": "aa"}), "1"),
            work(&json!({"model": "m", "input": ["b", "cccc"]}), "2"),
        ];
        let joined = join(&[&works[0], &works[1]]).expect("they go together");
        let sent: Value = serde_json::from_slice(&joined.work.body).expect("JSON");
        assert_eq!(sent, json!({"model": "m", "input": ["aa", "b", "cccc"]}));
        let answer = |data: Value| {
            Answer {
            status: 200,
            headers: Vec::new(),
            body: Bytes::from(
                json!({"data": data, "model": "m", "usage": {"prompt_tokens": 10, "total_tokens": 10}})
                    .to_string(),
            ),
            code: None,
        }
        };
        let one = |index: usize, number: f64| json!({"index": index, "embedding": [number]});
        let whole = answer(json!([one(2, 0.1), one(0, 0.3), one(1, 0.7)]));
        let parts = joined.split(&whole).expect("one for each");
        let read = |answer: &Answer| serde_json::from_slice::<Value>(&answer.body).expect("JSON");
        assert_eq!(
            read(&parts[0])["data"],
            json!([{"object": "embedding", "index": 0, "embedding": [0.3]}])
        );
        assert_eq!(read(&parts[1])["data"][1]["embedding"], json!([0.1]));
        let used = |answer: &Answer| read(answer)["usage"]["total_tokens"].as_u64().unwrap_or(0);
        assert_eq!((used(&parts[0]), used(&parts[1])), (2, 8));
        for wrong in [json!([one(0, 0.1)]), json!([one(0, 0.1), one(0, 0.1), one(2, 0.1)])] {
            assert!(joined.split(&answer(wrong)).is_none());
        }
    }

    #[test]
    fn shares_are_whole_and_sum_up() {
        assert_eq!(divide(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(divide(7, &[0, 0]), [3, 4]);
        assert_eq!(divide(0, &[5, 6]), [0, 0]);
        assert_eq!(divide(u64::MAX, &[1, 0]), [u64::MAX, 0]);
    }

    #[test]
    fn a_load_ends_at_either_limit_and_has_one_at_least() {
        let works: Vec<Work> = (0..5)
            .map(|n| work(&json!({"model": "m", "input": ["a", "b"]}), &n.to_string()))
            .collect();
        let load = |inputs, tokens| first_load(&works, Limits { inputs, tokens }, |_| 10);
        assert_eq!(load(1, 100), 1);
        assert_eq!(load(4, 100), 2);
        assert_eq!(load(5, 100), 2);
        assert_eq!(load(100, 30), 3);
        assert_eq!(load(100, 29), 2);
        assert_eq!(load(100, 1000), 5);
    }
}
