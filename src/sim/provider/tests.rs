//! Who is refused when, with which words, and what is charged.

use super::*;

fn provider(text: &str) -> Provider {
    let config: ProviderConfig = toml::from_str(text).expect("the text fits the types");
    config.check().expect("the values are in bounds");
    Provider::new(&config, 1, Mono::START)
}

fn launch() -> Provider {
    provider(
        "requests = { per_minute = 6000, start = 3000 }\n\
         tokens = { per_minute = 1_200_000, start = 36_000 }",
    )
}

fn call(identity: u128, tokens: u64) -> Call {
    Call::new(identity, Tokens(tokens), CallKind::Embeddings)
}

#[test]
fn the_token_meter_binds_and_says_when_the_call_fits() {
    let mut provider = launch();
    for identity in 0..120 {
        let reply = provider.handle_request(&call(identity, 300), Mono::START);
        assert_eq!(reply.outcome.status(), 200, "36,000 tokens hold 120 calls");
    }
    let reply = provider.handle_request(&call(120, 300), Mono::START);
    assert_eq!(
        reply.outcome,
        Outcome::RateLimited {
            meter: Meter::Tokens,
            wait: Duration::from_millis(15),
            limit: 1_200_000,
            used: 1_200_000,
            requested: 300
        }
    );
    assert_eq!((reply.retry_after_ms(), reply.retry_after_s()), (Some(15), Some(1)));
    let just_before = Mono::from_start(Duration::from_nanos(14_999_999));
    assert_eq!(provider.handle_request(&call(120, 300), just_before).outcome.status(), 429);
    let exactly = Mono::from_start(Duration::from_millis(15));
    assert_eq!(provider.handle_request(&call(120, 300), exactly).outcome.status(), 200);
}

#[test]
fn the_ledger_is_exact_and_refusals_charge_nothing() {
    let mut provider = launch();
    for identity in 0..200 {
        provider.handle_request(&call(identity % 150, 300), Mono::START);
    }
    let ledger = provider.ledger();
    assert_eq!((ledger.originals(), ledger.attempts()), (150, 200));
    assert_eq!((ledger.tokens(), ledger.answered(429)), (Tokens(36_000), 80));
    let [requests, tokens] = provider.meters(Mono::START);
    assert_eq!((requests.remaining, tokens.remaining), (Some(2_880.0), Some(0.0)));
}

#[test]
fn the_script_comes_first_and_ends() {
    let mut provider = launch();
    provider.set_script("rate_limit:2,timeout,server_error,bad_request,ok").expect("understood");
    let statuses = [429, 429, 504, 500, 400, 200, 200];
    for (identity, expected) in statuses.into_iter().enumerate() {
        let reply = provider.handle_request(&call(identity as u128, 1), Mono::START);
        assert_eq!(reply.outcome.status(), expected, "call {identity}");
    }
    assert!(provider.set_script("nonsense").is_err());
}

#[test]
fn steps_change_behaviour_at_their_instant() {
    let mut provider = provider(
        "requests = { per_minute = 60_000 }\ntokens = { per_minute = 6_000_000 }\n\
         steps = [{ at_s = 1, error_ratio = 1.0 }, { at_s = 2, error_ratio = 0.0, hard_quota = true },\
                  { at_s = 3, hard_quota = false, tokens_per_minute = 600 }]",
    );
    let mut at =
        |seconds: f64| provider.handle_request(&call(1, 601), Mono::from_secs_f64(seconds)).outcome;
    assert_eq!(at(0.999).status(), 200);
    assert_eq!(at(1.0), Outcome::Overloaded { wait: None });
    assert_eq!(at(2.0), Outcome::InsufficientQuota);
    assert_eq!(at(3.0), Outcome::TooLarge { limit: 600, requested: 601 });
}

#[test]
fn open_calls_count_against_the_cap_until_they_finish() {
    let mut provider = provider(
        "concurrency_cap = 1\nrequests = { per_minute = 600 }\ntokens = { per_minute = 600 }",
    );
    let first = provider.handle_request(&call(1, 1), Mono::START);
    let second = provider.handle_request(&call(2, 1), Mono::START);
    assert_eq!(second.outcome, Outcome::ConcurrencyCap { cap: 1 });
    provider.finish(second.call);
    assert_eq!(provider.in_flight(), 1, "a refusal occupies nothing");
    provider.finish(first.call);
    provider.finish(first.call);
    assert_eq!(provider.handle_request(&call(2, 1), Mono::START).outcome.status(), 200);
}

#[test]
fn slices_refuse_below_the_minute_limit() {
    let mut provider =
        provider("requests = { per_minute = 600, slices_s = [1] }\ntokens = { per_minute = 6000 }");
    let refused = (0..11)
        .map(|identity| provider.handle_request(&call(identity, 1), Mono::START).outcome)
        .filter(|outcome| outcome.status() == 429)
        .count();
    assert_eq!(refused, 1, "ten of 600 fall on one second");
}

#[test]
fn latency_grows_with_open_calls() {
    let mut provider = provider(
        "requests = { per_minute = 600 }\ntokens = { per_minute = 600 }\n\
         latency = { base_ms = 100, spread_ms = 0, per_open_call_ms = 10 }",
    );
    let latencies: Vec<u128> = (0..3)
        .map(|identity| provider.handle_request(&call(identity, 1), Mono::START))
        .map(|reply| reply.latency.as_millis())
        .collect();
    assert_eq!(latencies, [100, 110, 120]);
}

#[test]
fn the_same_seed_gives_the_same_replies() {
    let run = || {
        let mut provider = launch();
        let reply = |n: u64| {
            let at = Mono::from_start(Duration::from_millis(n * 3));
            let reply = provider.handle_request(&call(u128::from(n), 300), at);
            (reply.latency, reply.outcome)
        };
        (0..500).map(reply).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

/// A provider with room for everything, and what else the text says.
fn roomy(more: &str) -> Provider {
    provider(&format!(
        "requests = {{ per_minute = 60_000 }}\ntokens = {{ per_minute = 6_000_000 }}\n{more}"
    ))
}

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn statuses(provider: &mut Provider, calls: impl Iterator<Item = Call>, now: Mono) -> Vec<u16> {
    calls.map(|call| provider.handle_request(&call, now).outcome.status()).collect()
}

#[test]
fn the_day_is_over_when_it_is_used_up_and_comes_back_at_its_reset() {
    let mut provider =
        roomy("day = { requests = 10, tokens = 1000, used_ratio = 0.5, resets_in_s = 7200 }");
    let refused = |meter, limit, used, requested| Outcome::RateLimited {
        meter,
        wait: Duration::from_hours(2),
        limit,
        used,
        requested,
    };
    let too_many = provider.handle_request(&call(1, 501), Mono::START).outcome;
    assert_eq!(too_many, refused(Meter::TokensPerDay, 1_000, 500, 501));
    let served = statuses(&mut provider, (0..5).map(|n| call(n, 1)), Mono::START);
    assert_eq!(served, [200; 5]);
    let over = provider.handle_request(&call(9, 1), Mono::START);
    assert_eq!(over.outcome, refused(Meter::RequestsPerDay, 10, 10, 1));
    assert_eq!(
        (over.outcome.response_key().code, over.retry_after_s()),
        ("rate_limit_exceeded", Some(7_200))
    );
    let days = provider.day_meters(at(7_199.0));
    assert_eq!(days.iter().map(|day| day.remaining).collect::<Vec<_>>(), [Some(0.0), Some(495.0)]);
    assert_eq!(provider.handle_request(&call(9, 1), at(7_200.0)).outcome.status(), 200);
    let days = provider.day_meters(at(7_200.0));
    assert_eq!(days[0].reset, Some(Duration::from_hours(24)), "the next is a day away");
}

#[test]
fn growth_beyond_the_rule_is_slowed_down_inside_every_limit() {
    let mut provider = roomy("ramp = { tokens_per_minute = 60_000, growth = 1.5, per_s = 60 }");
    let outcomes: Vec<_> = (0..20)
        .map(|n| provider.handle_request(&call(n, 100), Mono::START))
        .map(|reply| (reply.outcome, reply.retry_after_s()))
        .collect();
    let slowed = (Outcome::SlowDown { wait: Duration::from_secs(1) }, Some(1));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.0.status() == 200).count(), 15);
    assert_eq!(outcomes[15..], [slowed; 5], "1,000 tokens a second are free, and half again");
    let [_, tokens] = provider.meters(Mono::START);
    assert_eq!(tokens.remaining, Some(6_000_000.0 - 1_500.0), "nothing is charged for refusals");
    let mut some = roomy("steps = [{ at_s = 0, slow_down_ratio = 0.5 }]");
    let slowed = statuses(&mut some, (0..200).map(|n| call(n, 1)), Mono::START);
    assert!((70..130).contains(&slowed.iter().filter(|status| **status == 429).count()));
}

#[test]
fn others_empty_the_pool_that_own_calls_hardly_use() {
    let mut provider = provider(
        "requests = { per_minute = 60_000 }\ntokens = { per_minute = 60_000, start = 0 }\n\
         steps = [{ at_s = 0, others_tokens_per_minute = 48_000 }]",
    );
    let served: Vec<_> = (0..100_u32)
        .map(|n| (call(n.into(), 100), at(60.0 + 0.1 * f64::from(n))))
        .map(|(call, now)| provider.handle_request(&call, now).outcome)
        .filter(|outcome| outcome.status() == 200)
        .collect();
    assert_eq!(served.len(), 100, "in a minute a fifth of the pool has come together");
    let [_, tokens] = provider.meters(at(70.0));
    assert_eq!(tokens.remaining, Some(14_000.0 - 10_000.0));
    assert_eq!(provider.tokens_of_others(), 56_000);
}

#[test]
fn failures_are_of_the_kind_that_the_step_says() {
    let kind = |step: &str| {
        let mut provider = roomy(&format!("steps = [{{ at_s = 0, error_ratio = 1.0, {step} }}]"));
        provider.handle_request(&call(1, 1), Mono::START).outcome
    };
    assert_eq!(kind("error_kind = 'overloaded'"), Outcome::Overloaded { wait: None });
    let wait = Some(Duration::from_secs(7));
    assert_eq!(kind("error_hint_s = 7"), Outcome::Overloaded { wait });
    assert_eq!(kind("error_kind = 'failed'"), Outcome::ServerError { status: 500 });
    assert_eq!(kind("error_kind = 'timeout'"), Outcome::Timeout);
}

#[test]
fn money_runs_out_and_can_be_topped_up() {
    let mut provider = roomy(
        "spend = { usd = 1, usd_per_million_tokens = 1000 }\nsteps = [{ at_s = 5, spend_usd = 1 }]",
    );
    let outcomes: Vec<_> = [0.0, 1.0, 2.0, 5.0]
        .map(|seconds| provider.handle_request(&call(1, 600), at(seconds)).outcome.status())
        .to_vec();
    assert_eq!(outcomes, [200, 200, 429, 200], "0.6 of a dollar each, the last is overdrawn");
    let key = Outcome::InsufficientQuota.response_key();
    assert_eq!((key.code, provider.ledger().responses()[&key]), ("insufficient_quota", 1));
    assert!(provider.spend_left_usd().is_some_and(|usd| (usd - 0.4).abs() < 1e-9));
    assert_eq!(roomy("").spend_left_usd(), None, "without a price it is unknown");
}

#[test]
fn what_can_never_succeed_never_does() {
    let mut provider = roomy("max_request_tokens = 8000");
    for second in 0..5 {
        let now = at(f64::from(second));
        let long = provider.handle_request(&call(2, 8_001), now).outcome;
        assert_eq!(long, Outcome::TooLong { limit: 8_000, requested: 8_001 });
        let wrong = provider.reject(1, CallKind::Embeddings, 400, now).outcome;
        assert_eq!(wrong, Outcome::Rejected { status: 400 });
        assert_eq!(provider.handle_request(&call(3, 8_000), now).outcome.status(), 200);
    }
    assert_eq!(provider.recent().commonest_share(at(5.0)), Some(1.0), "two of them fail");
    assert_eq!(provider.recent().tokens_max(at(5.0)), Some(8_001));
}

#[test]
fn a_batch_counts_by_its_items_where_the_provider_counts_so() {
    let batch = |n| Call { items: 50, ..call(n, 10) };
    let mut by_item = provider(
        "counts_items = true\nrequests = { per_minute = 100 }\ntokens = { per_minute = 6000 }",
    );
    let mut by_call = provider("requests = { per_minute = 100 }\ntokens = { per_minute = 6000 }");
    assert_eq!(statuses(&mut by_item, (0..3).map(batch), Mono::START), [200, 200, 429]);
    assert_eq!(statuses(&mut by_call, (0..3).map(batch), Mono::START), [200, 200, 200]);
    assert_eq!((by_item.ledger().charged_requests(), by_item.ledger().items()), (100, 100));
    assert_eq!((by_call.ledger().charged_requests(), by_call.ledger().items()), (3, 150));
}

#[test]
fn a_reset_fills_every_meter_at_its_instant() {
    let mut provider = provider(
        "requests = { per_minute = 600, slices_s = [1], start = 0 }\n\
         tokens = { per_minute = 6000, start = 0 }\nday = { tokens = 100, used_ratio = 1 }\n\
         steps = [{ at_s = 2, reset_meters = true }]",
    );
    assert_eq!(provider.handle_request(&call(1, 1), at(1.9)).outcome.status(), 429);
    let [requests, tokens] = provider.meters(at(2.0));
    assert_eq!((requests.remaining, tokens.remaining), (Some(600.0), Some(6_000.0)));
    assert_eq!(provider.day_meters(at(2.0))[0].remaining, Some(100.0));
}

#[test]
fn refusals_hint_and_hide_as_they_are_told() {
    let reply = |step: &str| {
        let mut provider = provider(&format!(
            "requests = {{ per_minute = 600 }}\ntokens = {{ per_minute = 600, start = 0 }}\n\
             steps = [{{ at_s = 0, {step} }}]"
        ));
        provider.handle_request(&call(1, 100), Mono::START)
    };
    for (step, status, hint_ms) in [
        ("hint = 'exact'", 429, Some(10_000)),
        ("hint = 'none'", 429, None),
        ("hint = 'malformed'", 429, None),
        ("hint = 'too-early'", 429, Some(1_000)),
        ("hint = 'absurd'", 429, Some(1_893_456_000_000)),
        ("disguise = '200'", 200, None),
        ("disguise = '403'", 403, None),
        ("disguise = '500'", 500, None),
        ("disguise = 'none'", 429, Some(10_000)),
    ] {
        let reply = reply(step);
        assert_eq!((reply.status(), reply.retry_after_ms()), (status, hint_ms), "{step}");
        assert_eq!(reply.outcome.status(), 429, "{step}: in truth");
    }
    assert!(reply("hint = 'malformed'").has_malformed_hint());
    let mut hidden = roomy("steps = [{ at_s = 0, hard_quota = true, disguise = '200' }]");
    hidden.handle_request(&call(1, 1), Mono::START);
    assert_eq!((hidden.ledger().disguised(), hidden.ledger().answered(200)), (1, 1));
    assert_eq!(hidden.ledger().tokens(), Tokens(0), "a refusal charges nothing, whatever it says");
}

#[test]
fn some_answers_are_slower_than_the_rest() {
    let mut provider = roomy(
        "latency = { base_ms = 100, spread_ms = 0, per_open_call_ms = 0 }\n\
         steps = [{ at_s = 0, slow_ratio = 0.25, slow_factor = 20 }]",
    );
    let took: Vec<u128> = (0..400)
        .map(|n| provider.handle_request(&call(n, 1), Mono::START).latency.as_millis())
        .collect();
    let slow = took.iter().filter(|ms| **ms == 2_000).count();
    assert!((70..130).contains(&slow), "{slow} of 400");
    assert_eq!(slow + took.iter().filter(|ms| **ms == 100).count(), 400);
}

#[test]
fn one_deployment_is_empty_while_the_others_have_room() {
    let three = "deployments = [{ name = 'a', share = 8 }, { name = 'b' }, { name = 'c' }]";
    let mut provider = provider(&format!(
        "requests = {{ per_minute = 6_000 }}\ntokens = {{ per_minute = 60_000 }}\n{three}"
    ));
    let answered = statuses(&mut provider, (0..400).map(|n| call(n, 100)), Mono::START);
    assert!(answered.contains(&429));
    let headroom: Vec<f64> = provider
        .deployments()
        .map(|one| one.meters[1].remaining.expect("known") / one.meters[1].limit.expect("known"))
        .collect();
    assert!(headroom[0] < 0.01 && headroom[1] > 0.3 && headroom[2] > 0.3, "{headroom:?}");
    let [_, all] = provider.meters(Mono::START);
    assert_eq!(all.limit, Some(60_000.0));
    assert!(all.remaining.expect("known") > 0.3 * 60_000.0, "{all:?}");
}

#[test]
fn a_herd_goes_to_one_until_it_refuses() {
    let mut provider = provider(
        "requests = { per_minute = 6_000 }\ntokens = { per_minute = 3_000 }\nrouter = 'herd'\n\
         deployments = [{ name = 'a' }, { name = 'b', tokens_per_minute = 500 }, { name = 'c' }]",
    );
    let answered = statuses(&mut provider, (0..30).map(|n| call(n, 100)), Mono::START);
    let refused: Vec<_> = (0..30).filter(|n| answered[*n] == 429).collect();
    assert_eq!(refused, [10, 16, 27, 28, 29], "10, 5 and 10 calls fit, then none");
    let calls: Vec<_> = provider.deployments().map(|one| one.calls).collect();
    assert_eq!(calls, [12, 7, 11], "after the last it begins anew");
}

#[test]
fn new_limits_leave_each_deployment_its_part() {
    let mut provider = provider(
        "requests = { per_minute = 600 }\ntokens = { per_minute = 3_000 }\n\
         deployments = [{ name = 'a', tokens_per_minute = 1000 }, { name = 'b', tokens_per_minute = 2000 }]\n\
         steps = [{ at_s = 1, tokens_per_minute = 300 }]",
    );
    provider.meters(at(1.0));
    let limits: Vec<_> = provider.deployments().map(|one| one.meters[1].limit).collect();
    assert_eq!(limits, [Some(100.0), Some(200.0)]);
}

#[test]
fn who_hangs_up_is_finished_all_the_same_where_the_provider_does_so() {
    let mut stubborn = roomy("completes_after_hangup = true");
    let open = stubborn.handle_request(&call(1, 1), Mono::START).call;
    assert!(stubborn.hang_up(open), "it goes on");
    assert_eq!((stubborn.in_flight(), stubborn.ledger().completed()), (1, 0));
    stubborn.finish(open);
    assert_eq!((stubborn.in_flight(), stubborn.ledger().completed()), (0, 1));
    let mut polite = roomy("");
    let open = polite.handle_request(&call(1, 1), Mono::START).call;
    assert!(!polite.hang_up(open));
    polite.finish(open);
    assert_eq!((polite.in_flight(), polite.ledger().completed()), (0, 0));
}
