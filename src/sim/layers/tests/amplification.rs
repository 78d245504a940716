//! The table of measured attempts, row by row. What was measured stands in `assets/clients`.

use super::*;

/// One logical call against a provider that always fails.
fn attempts(stack: &Stack, answer: AnswerSeen) -> usize {
    run(stack, 1, Input::Answer(answer)).attempts()
}

fn over(outer: &str, inner: &str) -> Stack {
    parse(&format!("[[layers]]\nuse = '{outer}'\n[[layers]]\nuse = '{inner}'"))
        .unwrap_or_else(|wrong| panic!("{outer} over {inner}: {wrong}"))
}

#[test]
fn attempts_of_one_call_are_those_that_were_measured() {
    let two = "tries = 2\nwith = { openai-python = { tries = 3 } }";
    for (what, stack, plain, stopped) in [
        ("openai", client("openai-python", ""), 3, 1),
        ("openai 2", client("openai-python-2", ""), 3, 1),
        ("openai node", client("openai-node", ""), 3, 1),
        ("openai node 6", client("openai-node-6", ""), 3, 1),
        ("openai node 4", client("openai-node-4", ""), 3, 1),
        ("azure openai", client("azure-openai", ""), 3, 1),
        ("anthropic", client("anthropic-python", ""), 3, 1),
        ("anthropic 0.75", client("anthropic-python-0.75", ""), 3, 1),
        ("anthropic node", client("anthropic-node", ""), 3, 1),
        ("anthropic node 0.70", client("anthropic-node-0.70", ""), 3, 1),
        ("groq", client("groq", ""), 3, 1),
        ("together", client("together", ""), 3, 1),
        ("google-genai", client("google-genai", ""), 1, 1),
        ("google-genai retrying", client("google-genai-retrying", ""), 5, 5),
        ("cohere", client("cohere", ""), 3, 3),
        ("mistral", client("mistral", ""), 1, 1),
        ("voyage", client("voyage", ""), 1, 1),
        ("voyage max_retries=3", client("voyage-retrying", ""), 3, 3),
        ("langchain embeddings max_retries=5", client("langchain-openai", "tries = 6"), 6, 1),
        ("langchain with_retry", client("langchain-with-retry", ""), 9, 3),
        ("tenacity(3) over it", over("tenacity", "langchain-openai"), 9, 3),
        ("tenacity(3) over litellm", over("tenacity", "litellm"), 9, 3),
        ("tenacity(6) random", over("tenacity-random", "langchain-openai"), 18, 6),
        ("litellm", client("litellm", ""), 3, 1),
        ("litellm num_retries=2", client("litellm-num-retries", ""), 5, 3),
        ("litellm router", client("litellm-router", ""), 9, 3),
        ("litellm router num_retries=3", client("litellm-router", "tries = 4"), 12, 4),
        ("llama-index max_retries=2", client("llama-index", two), 6, 2),
        ("AI SDK", client("vercel-ai-sdk", ""), 3, 3),
        ("boto3", client("boto3", ""), 3, 3),
        ("boto3 legacy", client("boto3-legacy", ""), 5, 5),
        ("azure-core", client("azure-core", ""), 1, 1),
        ("urllib3", client("urllib3", ""), 1, 1),
        ("requests", client("requests", ""), 1, 1),
        ("httpx", client("httpx", ""), 1, 1),
        ("spring-ai", client("spring-ai", ""), 1, 1),
        ("async-openai", client("async-openai", ""), 4, 4),
        ("haystack", client("haystack", ""), 6, 1),
        ("semantic-kernel", client("semantic-kernel", ""), 3, 1),
        ("pgai", client("pgai", ""), 4, 1),
        ("pinecone", client("pinecone", ""), 4, 4),
        ("langchain-js", client("langchain-js", ""), 1, 1),
    ] {
        assert_eq!(attempts(&stack, refusal(429)), plain, "{what}");
        assert_eq!(attempts(&stack, stop()), stopped, "{what} told to stop");
        // Money that is gone is repeated like a rate, except where a 429 alone is not.
        let broke = AnswerSeen { code: Some(Code::InsufficientQuota), ..refusal(429) };
        assert_eq!(attempts(&stack, broke), plain, "{what} without quota");
    }
}

#[test]
fn llama_index_multiplies_as_far_as_its_minute_goes() {
    let stack = client("llama-index", "");
    for seed in 0..200 {
        let plain = run(&stack, seed, Input::Answer(refusal(429)));
        assert_eq!(plain.attempts(), 22);
        assert!((92.0..105.0).contains(&plain.total_s), "98 s measured: {}", plain.total_s);
    }
    let hinted_by = |hint| run(&stack, 1, Input::Answer(hinted(429, hint)));
    let second = hinted_by(Written::Whole(1));
    assert_eq!(second.attempts(), 66);
    assert!((second.total_s - 65.0).abs() < 0.5, "{}", second.total_s);
    assert_eq!(hinted_by(Written::Decimal(10)).attempts(), 110);
    // Told to stop, only tenacity goes on; how far its minute reaches is a matter of chance.
    let told: Vec<_> =
        (0..200).map(|seed| run(&stack, seed, Input::Answer(stop())).attempts()).collect();
    assert!(told.iter().all(|attempts| (8..=10).contains(attempts)), "{told:?}");
    assert!(told.contains(&9), "as measured once");
}

#[test]
fn total_times_are_those_that_were_measured() {
    for (what, stack, from_s, to_s) in [
        ("openai", client("openai-python", ""), 1.1, 1.5),
        ("langchain max_retries=5", client("langchain-openai", "tries = 6"), 11.0, 16.0),
        ("langchain with_retry", client("langchain-with-retry", ""), 4.0, 9.5),
        ("tenacity(6) random", over("tenacity-random", "langchain-openai"), 14.0, 42.0),
        ("litellm router", client("litellm-router", ""), 4.5, 8.0),
        ("litellm num_retries=2", client("litellm-num-retries", ""), 1.1, 2.0),
        (
            "llama-index max_retries=2",
            client("llama-index", "tries = 2\nwith = { openai-python = { tries = 3 } }"),
            3.0,
            4.0,
        ),
    ] {
        for seed in 0..100 {
            let total_s = run(&stack, seed, Input::Answer(refusal(429))).total_s;
            assert!((from_s..=to_s).contains(&total_s), "{what}: {total_s} s");
        }
    }
    for seed in 0..100 {
        let total_s = run(&client("langchain-js", ""), seed, Input::Answer(refusal(503))).total_s;
        assert!((63.0..=126.0).contains(&total_s), "75 s measured: {total_s} s");
    }
}

/// The eight scenarios in which four SDKs were measured: attempts, and the wait that was told.
#[test]
fn four_sdks_in_the_eight_asked_scenarios() {
    use Written::Whole;
    let both = AnswerSeen { retry_after_ms: Some(Whole(511)), ..hinted(429, Whole(30)) };
    let told = AnswerSeen { should_retry: Some(true), ..refusal(400) };
    let stop_30 = AnswerSeen { should_retry: Some(false), ..hinted(429, Whole(30)) };
    let stop_503 = AnswerSeen { should_retry: Some(false), ..refusal(503) };
    let broke = AnswerSeen { code: Some(Code::InsufficientQuota), ..refusal(429) };
    let own = None;
    for name in ["openai-python", "openai-node", "anthropic-python", "anthropic-node"] {
        let long = if name == "openai-node" { own } else { Some(120.0) };
        for (what, answer, attempts, wait_s) in [
            ("429", refusal(429), 3, own),
            ("retry-after", hinted(429, Whole(30)), 3, Some(30.0)),
            ("milliseconds", both, 3, Some(0.511)),
            ("stop", stop(), 1, own),
            ("stop and retry-after", stop_30, 1, own),
            ("stop of a 503", stop_503, 1, own),
            ("503", refusal(503), 3, own),
            ("400", refusal(400), 1, own),
            ("400 with x-should-retry", told, 3, own),
            ("insufficient_quota", broke, 3, own),
            ("two minutes", hinted(429, Whole(120)), 3, long),
        ] {
            let run = run(&client(name, ""), 1, Input::Answer(answer));
            assert_eq!(run.attempts(), attempts, "{name}: {what}");
            let counts = [0, 1, 2];
            assert_eq!(run.counts(), &counts[..attempts], "{name}: {what}");
            for (index, waited_s) in run.waits_s.iter().enumerate() {
                let own_s = [(0.375, 0.5), (0.75, 1.0)][index];
                let (from_s, to_s) = wait_s.map_or(own_s, |wait_s| (wait_s, wait_s));
                assert!((from_s..=to_s).contains(waited_s), "{name}: {what}: {waited_s} s");
            }
        }
    }
    let beyond = run(&client("openai-python", ""), 1, Input::Answer(hinted(429, Whole(121))));
    assert_eq!(beyond.attempts(), 1, "more than two minutes, and openai-python gives up");
}

/// One client, one answer: how often it asks, and its first wait where that is certain.
fn check(name: &str, answer: AnswerSeen, attempts: usize, first_wait_s: Option<f64>) {
    let run = run(&client(name, ""), 1, Input::Answer(answer));
    assert_eq!(run.attempts(), attempts, "{name}: {answer:?}");
    if let Some(expected_s) = first_wait_s {
        assert!((run.waits_s[0] - expected_s).abs() < 1e-9, "{name}: {:?}", run.waits_s);
    }
}

#[test]
fn clients_differ_in_what_they_make_of_odd_hints() {
    use Written::{Date, Decimal, Garbage, Leading, Whole};
    // openai-node obeys zero at once; version 6 obeys everything odd at once.
    check("openai-node", hinted(429, Whole(0)), 3, Some(0.0));
    check("openai-node", hinted(429, Leading(3_000)), 3, Some(3.0));
    for odd in [Whole(0), Whole(-1), Garbage, Date(-1), Whole(3_000_000)] {
        check("openai-node-6", hinted(429, odd), 3, Some(0.0));
    }
    check("openai-node-6", hinted(429, Whole(120)), 3, Some(120.0));
    check("anthropic-python", hinted(429, Whole(4_000_000)), 3, Some(4_000_000.0));
    check("anthropic-python", hinted(429, Decimal(1_500)), 3, Some(1.5));
    check("cohere", hinted(429, Whole(300)), 3, Some(60.0));
    check("cohere", AnswerSeen { reset_in_ms: Some(7_000), ..refusal(429) }, 3, Some(7.0));
    check("async-openai", hinted(429, Whole(3_600)), 4, Some(3_600.0));
    check("mistral", hinted(429, Whole(1)), 1, None);
    // The AI SDK hears no stop, doubles from 2 s, and obeys zero.
    let (stop_now, stop_later) =
        (stop(), AnswerSeen { should_retry: Some(false), ..hinted(429, Whole(60)) });
    check("vercel-ai-sdk", stop_now, 3, Some(2.0));
    check("vercel-ai-sdk", stop_later, 3, Some(2.0));
    check("vercel-ai-sdk", hinted(429, Whole(59)), 3, Some(59.0));
    check("vercel-ai-sdk", hinted(429, Whole(0)), 3, Some(0.0));
    let ai_sdk = run(&client("vercel-ai-sdk", ""), 1, Input::Answer(refusal(503)));
    assert_eq!((ai_sdk.waits_s.as_slice(), ai_sdk.counts()), (&[2.0, 4.0][..], vec![0, 0, 0]));
}

#[test]
fn some_clients_ask_again_only_where_there_is_a_hint() {
    use Written::{Garbage, Whole};
    check("azure-core", refusal(429), 1, None);
    check("azure-core", hinted(429, Whole(30)), 4, Some(30.0));
    check("azure-core", hinted(429, Garbage), 1, None);
    let both = AnswerSeen { retry_after_ms: Some(Whole(511)), ..hinted(429, Whole(30)) };
    check("azure-core", both, 4, Some(30.0));
    let azure = run(&client("azure-core", ""), 1, Input::Answer(refusal(503)));
    assert_eq!(azure.waits_s, [0.0, 1.6, 3.2]);
    check("langchain-js", refusal(503), 7, None);
    check("langchain-js", hinted(429, Whole(60)), 7, Some(60.0));
    check("langchain-js", hinted(429, Whole(61)), 1, None);
    let broke = AnswerSeen { code: Some(Code::InsufficientQuota), ..hinted(429, Whole(1)) };
    check("langchain-js", broke, 1, None);
    let js = run(&client("langchain-js", ""), 1, Input::Answer(refusal(503)));
    assert_eq!(js.counts(), [0; 7], "its repeats are not the SDK's");
    check("urllib3-get", refusal(429), 1, None);
    check("urllib3-get", hinted(429, Whole(2)), 4, Some(2.0));
}

#[test]
fn codes_and_bases_of_aws() {
    let code = |code| AnswerSeen { code: Some(code), ..refusal(400) };
    check("boto3", code(Code::Throttling), 3, None);
    check("boto3", code(Code::ServiceQuotaExceeded), 1, None);
    check("boto3", refusal(400), 1, None);
    let stack = client("boto3", "");
    let slowest_s = |answer| {
        (0..500).map(|seed| run(&stack, seed, Input::Answer(answer)).waits_s[0]).fold(0.0, f64::max)
    };
    assert!((0.9..=1.0).contains(&slowest_s(refusal(429))));
    assert!((0.045..=0.05).contains(&slowest_s(refusal(503))));
    let marks: Vec<_> = run(&stack, 1, Input::Answer(refusal(429))).sends;
    let marks: Vec<_> = marks.iter().map(|place| place.mark).collect();
    let mark = |attempt| Mark::Amz { attempt, max: 3 };
    assert_eq!(marks, [mark(1), mark(2), mark(3)]);
}

#[test]
fn counts_restart_and_bad_requests_are_repeated_by_the_blind_only() {
    let counts = |name, answer| run(&client(name, ""), 1, Input::Answer(answer)).counts();
    assert_eq!(counts("langchain-with-retry", refusal(429)), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert_eq!(counts("litellm-num-retries", refusal(429)), [0, 1, 2, 0, 0]);
    check("langchain-with-retry", refusal(400), 3, None);
    check("litellm-num-retries", refusal(400), 3, None);
    for name in ["litellm-router", "openai-python", "vercel-ai-sdk", "llama-index", "cohere"] {
        check(name, refusal(400), 1, None);
        check(name, refusal(402), 1, None);
    }
    check("spring-ai", refusal(503), 10, Some(2.0));
}

#[test]
fn mistral_counts_an_hour_and_no_attempts() {
    let run = run(&client("mistral-retrying", ""), 1, Input::Answer(refusal(429)));
    assert!((3_600.0..3_661.0).contains(&run.total_s), "{}", run.total_s);
    assert!((65..=85).contains(&run.attempts()), "{}", run.attempts());
}
