//! Bounds of every key, on both sides.

use super::*;

const BASE: &str = "requests = { per_minute = 60 }\ntokens = { per_minute = 600 }\n";

fn check(more: &str, expected_key: Option<&str>) {
    let config: ProviderConfig =
        toml::from_str(&format!("{more}\n{BASE}")).expect("the text fits the types");
    let key = config.check().err().map(|error| error.key);
    assert_eq!(key.as_deref(), expected_key, "{more}");
}

#[test]
fn bounds_are_checked_on_both_sides() {
    check("", None);
    check("script = 'ok:2'", None);
    check("script = 'sometimes'", Some("script"));
    check("latency = { base_ms = 600000 }", None);
    check("latency = { base_ms = 600001 }", Some("latency.base_ms"));
    check("latency = { spread_ms = nan }", Some("latency.spread_ms"));
    check("steps = [{ at_s = 1, error_ratio = 1.0 }]", None);
    check("steps = [{ at_s = 1, error_ratio = 1.1 }]", Some("steps[0].error_ratio"));
    check("steps = [{ at_s = 2 }, { at_s = 1 }]", Some("steps[1].at_s"));
    check("steps = [{ at_s = 86401 }]", Some("steps[0].at_s"));
    check("day = { tokens = 10, used_ratio = 1.0 }", None);
    check("day = { used_ratio = 0.5 }", Some("day"));
    check("day = { tokens = 10, used_ratio = 1.01 }", Some("day.used_ratio"));
    check("day = { tokens = 10, resets_in_s = 0 }", Some("day.resets_in_s"));
    check("ramp = { tokens_per_minute = 60, growth = 1.5, per_s = 60 }", None);
    check("ramp = { tokens_per_minute = 60, growth = 0.9, per_s = 60 }", Some("ramp.growth"));
    check("ramp = { tokens_per_minute = 60, growth = 1, per_s = 5 }", Some("ramp.per_s"));
    check("spend = { usd = 1, usd_per_million_tokens = 0.1 }", None);
    check("spend = { usd = -1, usd_per_million_tokens = 0.1 }", Some("spend.usd"));
    check("deployments = [{ name = 'a', share = 1 }, { name = 'b', share = 0 }]", None);
    check("deployments = [{ name = 'a', share = 0 }]", Some("deployments"));
    check("deployments = [{ name = 'a' }, { name = 'a' }]", Some("deployments[1].name"));
    check("deployments = [{ name = 'a b' }]", Some("deployments[0].name"));
    check("deployments = [{ name = 'a', share = -1 }]", Some("deployments[0].share"));
    check("router = 'herd'", Some("router"));
    check("steps = [{ at_s = 1, slow_ratio = 2 }]", Some("steps[0].slow_ratio"));
    check("steps = [{ at_s = 1, slow_factor = -1 }]", Some("steps[0].slow_factor"));
    check("steps = [{ at_s = 1, slow_down_ratio = -1 }]", Some("steps[0].slow_down_ratio"));
    check("steps = [{ at_s = 1, error_hint_s = 1e9 }]", Some("steps[0].error_hint_s"));
    check("steps = [{ at_s = 1, spend_usd = 5 }]", Some("steps[0].spend_usd"));
    check("steps = [{ at_s = 1, hint = 'too-early', disguise = '403' }]", None);
}

#[test]
fn a_limit_of_zero_is_no_limit_and_refused() {
    let text = "requests = { per_minute = 0 }\ntokens = { per_minute = 1 }";
    assert!(toml::from_str::<ProviderConfig>(text).is_err());
}
