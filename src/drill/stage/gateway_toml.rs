//! The `weir.toml` of each gateway of a drill: what it believes, whom it forwards to, what is wrong with
//! it. Starts nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::{GLASS_VARIABLE, GatewayAddress, TOKEN_VARIABLE, store};
use crate::admission::FlagValue;
use crate::drill::clients_http::model_of;
use crate::drill::scenario::Scenario;
use crate::drill::virtual_run::scopes_of;
use crate::sim::gate::GateFaults;

/// Seconds that one attempt may take.
const ATTEMPT_TIMEOUT_S: u32 = 60;

/// One of the gateways.
pub(super) struct Place<'a> {
    /// Its number, from 0.
    pub(super) number: u32,
    /// Where it listens.
    pub(super) listen: GatewayAddress,
    /// Where its file of overrides lies.
    pub(super) folder: &'a Path,
}

/// The text of its configuration. `provider` is the simulated one; without it, the scenario's upstream
/// is meant.
pub(super) fn write(
    scenario: &Scenario,
    seed: u64,
    provider: Option<SocketAddr>,
    place: &Place<'_>,
) -> String {
    let mut text = String::new();
    scopes(&mut text, scenario, provider.is_some());
    let upstream = scenario.upstream.as_ref();
    let url = provider.map(|address| format!("http://{address}"));
    let url = url.or_else(|| upstream.map(|upstream| upstream.url.clone())).unwrap_or_default();
    let Place { number, listen, folder } = place;
    let overrides = folder.join(format!("overrides-{number}.json")).display().to_string();
    let _ = write!(
        text,
        "[gateway]\ninstance = {}\nlisten = \"{}\"\nadmin_listen = \"{}\"\nupstream = {}\n\
         admin_token_env = \"{TOKEN_VARIABLE}\"\nbreak_glass_token_env = \"{GLASS_VARIABLE}\"\n\
         attempt_timeout_s = {ATTEMPT_TIMEOUT_S}\n\
         state_file = {}\nseed = {}\n",
        quoted(instance_name(scenario, *number)),
        listen.data,
        listen.admin,
        quoted(url),
        quoted(overrides),
        // TOML integers are signed.
        (seed ^ u64::from(*number)) & (u64::MAX >> 1),
    );
    if !scenario.gate.faults.is_none() {
        text.push_str("drill = true\n");
    }
    if let Some(variable) = upstream.and_then(|upstream| upstream.key_env.clone()) {
        let _ = writeln!(text, "upstream_key_env = {}", quoted(variable));
    }
    text.push_str("\n[gateway.flags]\n");
    for (key, value) in &scenario.flags {
        let value = match value {
            FlagValue::Word(word) => format!("{word:?}"),
            other => other.to_string(),
        };
        let _ = writeln!(text, "{key:?} = {value}");
    }
    if scenario.gate.shared {
        let _ = writeln!(
            text,
            "\n[gateway.store]\nurl_env = \"{}\"\ninstances = {}",
            store::URL_VARIABLE,
            scenario.gate.instances
        );
    }
    text + &faults_table(&scenario.gate.faults)
}

fn quoted(text: String) -> String {
    toml::Value::String(text).to_string()
}

fn instance_name(scenario: &Scenario, number: u32) -> String {
    if scenario.gate.instances > 1 {
        return format!("drill-gw-{number}");
    }
    "drill-gw".to_owned()
}

/// A `[[scope]]` for each quota scope.
fn scopes(text: &mut String, scenario: &Scenario, is_simulated: bool) {
    for (place, scope) in scopes_of(scenario).iter().enumerate() {
        let name = scenario.upstream.as_ref().map_or_else(
            || scope.name.to_string(),
            |upstream| format!("{}/drill/{}", upstream.host(), upstream.model),
        );
        let _ = writeln!(text, "[[scope]]\nname = {}", quoted(name));
        // The first takes every model that no other names.
        if let Some(further) = place.checked_sub(1).and_then(|i| scenario.providers.get(i)) {
            let _ = writeln!(text, "models = [{}]", quoted(model_of(place, &further.name)));
        }
        if is_simulated {
            // The simulated provider's way of counting is known; a stranger's is not.
            text.push_str("semantics = \"token-bucket\"\n");
        }
        let limits =
            [("rpm", scope.rpm), ("tpm", scope.tpm), ("rpd", scope.rpd), ("tpd", scope.tpd)];
        for (key, limit) in limits {
            if let Some(limit) = limit {
                let _ = writeln!(text, "{key} = {limit:?}");
            }
        }
        if let Some(most) = scope.concurrency {
            let _ = writeln!(text, "concurrency = {most}");
        }
        let most = scenario.max_attempts_configured;
        let _ = writeln!(text, "max_attempts_configured = {most}\n");
    }
}

/// `[gateway.faults]`; nothing where nothing is wrong.
fn faults_table(faults: &GateFaults) -> String {
    if faults.is_none() {
        return String::new();
    }
    let table = BTreeMap::from([("gateway", BTreeMap::from([("faults", faults)]))]);
    let table = toml::to_string(&table).expect("numbers, words and tables are TOML");
    format!("\n{table}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::gateway::{GatewayConfig, ScopeEntry};

    #[derive(Deserialize)]
    struct Written {
        gateway: GatewayConfig,
        scope: Vec<ScopeEntry>,
    }

    fn written(gate: &str, number: u32) -> Written {
        let source = Scenario::source("launch-0900").expect("it ships");
        let scenario = Scenario::parse("mine.toml", &format!("{source}\n{gate}")).expect("right");
        let any = ([127, 0, 0, 1], 0).into();
        let listen = GatewayAddress { data: any, admin: any };
        let place = Place { number, listen, folder: Path::new("/nowhere") };
        let text = write(&scenario, 1, Some(any), &place);
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn the_gateway_is_told_what_it_believes_and_what_is_wrong_with_it() {
        let sound = written("", 0);
        assert!(!sound.gateway.drill && sound.gateway.faults.is_none());
        assert_eq!(sound.gateway.instance, "drill-gw");
        assert_eq!((sound.scope[0].rpm, sound.scope[0].concurrency), (Some(6_000.0), None));
        let ill = written(
            "[gate]\ntpm = 60_000\nconcurrency = 8\n[gate.faults]\nheaders = false\n\
             leak = { ratio = 0.25, from_s = 10 }\nbreaker = { held = 'half-open', to_s = 60 }\n\
             store = { latency_ms = 80 }\nstall = { ms = 5 }",
            0,
        );
        assert_eq!((ill.scope[0].tpm, ill.scope[0].concurrency), (Some(60_000.0), Some(8)));
        assert!(ill.gateway.drill);
        let words = ["headers", "leak", "breaker", "store", "stall"];
        assert_eq!(ill.gateway.faults.words(), words);
        assert_eq!(ill.gateway.faults.leak.map(|leak| leak.from_s), Some(10.0));
    }

    #[test]
    fn instances_have_names_files_and_seeds_of_their_own_and_one_store() {
        let [first, second] = [0, 1].map(|n| written("[gate]\ninstances = 2\nshared = true", n));
        assert_eq!(first.gateway.instance, "drill-gw-0");
        assert_eq!(second.gateway.instance, "drill-gw-1");
        assert_ne!(first.gateway.state_file, second.gateway.state_file);
        assert_ne!(first.gateway.seed, second.gateway.seed);
        let store = second.gateway.store.expect("it is shared");
        assert_eq!((store.url_env.as_deref(), store.instances), (Some(store::URL_VARIABLE), 2));
        assert!(written("[gate]\ninstances = 2", 0).gateway.store.is_none(), "each its own");
    }
}
