//! Which texts are predicates, what they mean, and where the others go wrong.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Predicate {
    Predicate::parse(text).expect(text)
}

#[test]
fn the_whole_line_is_read() {
    let predicate = parse("tpm_headroom[1m] < 5% for 30s clear 0.15");
    assert_eq!(predicate.hold, Duration::from_secs(30));
    assert_eq!(predicate.clear, Some(0.15));
    let Test::Compare { left, op, bound } = predicate.test else { panic!("a comparison") };
    assert_eq!(left.signal, "tpm_headroom");
    assert_eq!(left.window, Window::Span(Duration::from_mins(1)));
    assert_eq!(op, Op::Below);
    assert_eq!(bound, Bound::Fixed(0.05));
}

#[test]
fn the_right_side_may_be_a_reading() {
    let predicate = parse("tokens_per_request[2m] > tokens_per_request@1h * 1.5 for 60s");
    let Test::Compare { bound: Bound::Scaled { operand, times }, .. } = predicate.test else {
        panic!("a scaled bound")
    };
    assert_eq!(operand.ago, Some(Duration::from_hours(1)));
    assert!((times - 1.5).abs() < f64::EPSILON);
    assert_eq!(
        parse("amplification[fast] > max_attempts_configured * 1.1").signals(),
        ["amplification", "max_attempts_configured"]
    );
}

#[test]
fn words_and_codes_are_read() {
    let is = parse("breaker.state is not half_open");
    assert_eq!(is.signals(), ["breaker"]);
    assert!(matches!(is.test, Test::Is { negated: true, .. }));
    let known = parse("limiter_store.p95_s is known for 3s");
    assert_eq!(known.test, Test::Known { path: "limiter_store.p95_s".to_owned() });
    let codes = parse("error_codes matching /insufficient_quota|billing*/ > 50% for 3s");
    assert!(matches!(codes.test, Test::Codes { share, .. } if (share - 0.5).abs() < 1e-9));
}

#[test]
fn trends_and_orders_are_read() {
    let trend = parse("queue_oldest_age_s rising 10m for 1m");
    assert_eq!(trend.signals(), ["queue_oldest_age_s"]);
    assert_eq!(trend.hold, Duration::from_mins(1));
    let Test::Trend { way, span, .. } = trend.test else { panic!("a trend") };
    assert_eq!((way, span), (Heading::Up, Duration::from_mins(10)));
    assert!(matches!(
        parse("tpm_headroom falling 5m").test,
        Test::Trend { way: Heading::Down, .. }
    ));

    let order = parse("originals_rps fell before attempts_rps rose");
    assert_eq!(order.signals(), ["originals_rps", "attempts_rps"]);
    let Test::Order { first, then } = order.test else { panic!("an order") };
    assert_eq!(first.to_string(), "originals_rps fell");
    assert_eq!(then.to_string(), "attempts_rps rose");
    let Test::Order { then, .. } = parse("latency_p95_s rose before breaker.open_s for 3s").test
    else {
        panic!("an order")
    };
    assert_eq!((then.signal.as_str(), then.way), ("breaker.open_s", Heading::Up));
}

#[test]
fn errors_name_the_column_and_the_remedy() {
    let check = |text: &str, column: usize, remedy: &str| {
        let error = Predicate::parse(text).expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.remedy.contains(remedy), "{text}: {error}");
    };
    check("", 1, "catalogue");
    check("amplification", 14, "`<`, `>`");
    check("amplification >", 16, "number");
    check("amplification >= 3", 16, "alone");
    check("amplification[1q] > 3", 15, "30s");
    check("amplification[1m > 3", 18, "close the window");
    check("amplification > 3 for 9d", 23, "within a day");
    check("amplification[500ms] > 3", 15, "from `1s` to `1h`");
    check("amplification@2h > 3", 15, "from `1s` to `1h`");
    check("amplification[5m]@1h > 3", 1, "within the last 61 minutes");
    check("amplification > amplification[5m]@1h", 17, "within the last 61 minutes");
    check("breaker.state[1m] is open", 1, "alone");
    check("error_codes@1h matching /a/ > 1", 1, "alone");
    check("gate_429_rps is not known", 21, "`is known`");
    check("gate_429_rps[1m] is known", 1, "alone");
    check("amplification > 3 clear 1 for 3s", 27, "may follow");
    check("amplification matching /a/ > 1", 15, "error_codes");
    check("error_codes matching /gate:a|b/ > 1", 31, "all begin with");
    check("amplification rising", 21, "30s");
    check("amplification rising 2h", 22, "1h");
    check("amplification[1m] rising 5m", 1, "alone");
    check("amplification rising 5m clear 1", 25, "may follow");
    check("amplification rose attempts_rps", 20, "rose before");
    check("amplification rose before", 26, "catalogue");
    check("amplification rose before attempts_rps@1h", 27, "alone");
    check("amplification rose before amplification", 27, "two signals");
}

#[test]
fn clear_must_lie_beyond_the_threshold() {
    assert!(parse("tpm_headroom < 0.05 clear 0.15").clear_is_sane());
    assert!(!parse("tpm_headroom < 0.05 clear 0.01").clear_is_sane());
    assert!(!parse("amplification > 3 clear 4").clear_is_sane());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _ = Predicate::parse(&text);
    }

    #[test]
    fn near_misses_do_not_panic(
        text in "(amplification|error_codes)(\\[1m)?\\]? ?(<|>|is|matching|rising|falling|rose before|fell)? ?/?[a-z0-9*|:.%@]{0,9}/? (for )?[0-9a-z]{0,3}"
    ) {
        let _ = Predicate::parse(&text);
    }
}
