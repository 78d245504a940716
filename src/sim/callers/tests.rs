//! What a caller's table may say.

use super::*;

const SIZE: &str = "tokens = { min = 1, max = 1 }\n";
const STEPS: &str = "steps = [{ name = 'a', at_s = 0, rate = 1 }]\n";

fn check(text: &str, expected_key: Option<&str>) {
    let mut config: CallerConfig = toml::from_str(text).expect("the text fits the types");
    let layers = |config: &mut CallerConfig| config.stack_layers("it", &|_| unreachable!());
    let key = config.check().and_then(|()| layers(&mut config)).err().map(|error| error.key);
    assert_eq!(key.as_deref(), expected_key, "{text}");
}

#[test]
fn bounds_are_named() {
    let plain = |more: &str, expected| check(&format!("{more}\n{SIZE}{STEPS}"), expected);
    plain("", None);
    plain("fan_out = 0", Some("fan_out"));
    plain("calls_per_task = 10001", Some("calls_per_task"));
    plain("poisoned_ratio = 1.1", Some("poisoned_ratio"));
    plain("deadline_s = 0", Some("deadline_s"));
    plain("leaves = { ratio = 2, within_s = 1 }", Some("leaves.ratio"));
    plain("leaves = { ratio = 1, within_s = -1 }", Some("leaves.within_s"));
    plain("layers = { sdk = { tries = 0 } }", Some("it.layers.sdk.tries"));
    plain("output_tokens = { median = 100, p95 = 50 }", Some("output_tokens.p95"));
    plain("tenants = [{ name = 'a', weight = 0 }]", Some("tenants[0].weight"));
    check(&format!("{STEPS}tokens = {{ min = 2, max = 1 }}"), Some("tokens.max"));
}

#[test]
fn tasks_begin_in_exactly_one_way() {
    check(&format!("{SIZE}steps = []"), Some("steps"));
    check(&format!("{SIZE}cron = {{ every_s = 60 }}"), None);
    check(&format!("{SIZE}cron = {{ every_s = 0 }}"), Some("cron.every_s"));
    check(&format!("{SIZE}job = {{ items = 5 }}"), None);
    check(&format!("{SIZE}job = {{ items = 0 }}"), Some("job.items"));
    check(&format!("{SIZE}job = {{ items = 5 }}\n{STEPS}"), Some("steps"));
}

#[test]
fn steps_are_checked_with_what_they_change() {
    let stepped = |step: &str, expected| {
        let text = format!(
            "{SIZE}tenants = [{{ name = 'a', weight = 1 }}]\nsteps = [{{ name = 'x', at_s = 0, {step} }}]"
        );
        check(&text, expected);
    };
    stepped("rate = 100001", Some("steps[0].rate"));
    stepped("rate = 1, ramp_s = -1", Some("steps[0].ramp_s"));
    stepped("rate = 1, tokens = { min = 0, max = 1 }", Some("steps[0].tokens.min"));
    stepped("rate = 1, tenants = { a = 9 }", None);
    stepped("rate = 1, tenants = { b = 9 }", Some("steps[0].tenants.b"));
    stepped("rate = 1, batch_ratio = 2", Some("steps[0].batch_ratio"));
}
