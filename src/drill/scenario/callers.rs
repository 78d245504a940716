//! Checks who calls what in a scenario: the names of callers and quota scopes, and that each finds the
//! other, through fallbacks too.

use std::collections::BTreeMap;

use super::{FIRST_SCOPE, Raw, Wrong, as_it_is, read_client, under, wrong};
use crate::sim::callers::CALLERS_MAX;
use crate::sim::config::ProviderConfig;
use crate::sim::layers::Stack;
use crate::sim::world::ScopeProvider;

/// The quota scopes beside the first, in the order of their names.
pub(super) fn further_scopes(providers: BTreeMap<String, ProviderConfig>) -> Vec<ScopeProvider> {
    providers.into_iter().map(|(name, provider)| ScopeProvider { name, provider }).collect()
}

/// Looks the layers of the scenario and of its callers up; their fallbacks go to scopes that there are.
pub(super) fn stack_layers(raw: &mut Raw) -> Result<Stack, Wrong> {
    let layers = raw.layers.stack("layers", &read_client).map_err(as_it_is)?;
    raw.traffic.stack_layers("traffic", &read_client).map_err(as_it_is)?;
    for (index, caller) in raw.callers.iter_mut().enumerate() {
        caller.stack_layers(&format!("callers[{index}]"), &read_client).map_err(as_it_is)?;
    }
    let callers = raw.callers.iter().enumerate();
    let callers = callers.map(|(index, caller)| (format!("callers[{index}].layers"), caller));
    let own = callers.chain([("traffic.layers".to_owned(), &raw.traffic)]);
    let own = own.filter_map(|(at, caller)| Some((at, caller.stack.as_ref()?)));
    for (at, stack) in own.chain([("layers".to_owned(), &layers)]) {
        let known = |to: &&String| *to == FIRST_SCOPE || raw.providers.contains_key(*to);
        if let Some(to) = stack.scopes().iter().find(|to| !known(to)) {
            let scopes: Vec<_> = raw.providers.keys().map(String::as_str).collect();
            let remedy = format!("{FIRST_SCOPE}, {}", scopes.join(", "));
            return Err(wrong(at, format!("a fallback to `{to}`, which is no scope"), &remedy));
        }
    }
    Ok(layers)
}

/// Callers have names of their own and call scopes that there are.
pub(super) fn check_callers(raw: &Raw) -> Result<(), Wrong> {
    if raw.upstream.is_some() && !raw.providers.is_empty() {
        let problem = "there is an upstream, which is one quota scope";
        return Err(wrong("providers", problem, "leave out one of `providers` and `upstream`"));
    }
    for (name, provider) in &raw.providers {
        let at = format!("providers.{name}");
        provider.check().map_err(under(&at))?;
        if name == FIRST_SCOPE || !is_plain(name) {
            let remedy = "write lower-case letters, digits and dashes; `embed` is the first scope";
            return Err(wrong(at, format!("`{name}` cannot be a scope's name"), remedy));
        }
    }
    if raw.callers.len() >= CALLERS_MAX {
        let remedy = "31 callers beside the main one";
        return Err(wrong("callers", format!("{} of them", raw.callers.len()), remedy));
    }
    let scopes = || [FIRST_SCOPE].into_iter().chain(raw.providers.keys().map(String::as_str));
    let mut names = vec![raw.traffic.name.as_str()];
    let numbered = raw.callers.iter().enumerate();
    let callers = numbered.map(|(index, caller)| (format!("callers[{index}]"), caller));
    for (at, caller) in callers.chain([("traffic".to_owned(), &raw.traffic)]) {
        caller.check().map_err(under(&at))?;
        if let Some(to) = caller.to.as_deref().filter(|to| !scopes().any(|scope| scope == *to)) {
            let known = scopes().collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("{at}.to"), format!("there is no scope `{to}`"), &known));
        }
        let is_main = at == "traffic";
        if !is_main && names.contains(&caller.name.as_str()) {
            let problem = format!("`{}` is the name of another caller", caller.name);
            return Err(wrong(
                format!("{at}.name"),
                problem,
                "give every caller a name of its own",
            ));
        }
        names.push(&caller.name);
    }
    Ok(())
}

/// Fit for a metric's label, a model's name and the name of a quota scope.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 40 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use crate::drill::scenario::Scenario;

    const LAUNCH: &str = include_str!("../../../assets/scenarios/launch-0900.toml");

    #[test]
    fn callers_scopes_and_the_application_are_checked_with_their_places() {
        let check = |more: &str, expected: &str| {
            let text = format!("{LAUNCH}\n{more}");
            let read = Scenario::parse("mine.toml", &text).map_err(|error| error.to_string());
            match read {
                Ok(scenario) => assert_eq!(expected, "", "{:?}", scenario.callers),
                Err(error) => assert!(
                    !expected.is_empty()
                        && error.starts_with("mine.toml:")
                        && error.contains(expected),
                    "{error}"
                ),
            }
        };
        let caller = "[[callers]]\nname = 'a'\ntokens = { min = 1, max = 1 }\nsteps = [{ at_s = 0, rate = 1 }]\n";
        let chat = "[providers.chat]\nrequests = { per_minute = 1 }\ntokens = { per_minute = 1 }\n";
        check(caller, "");
        check(&format!("{chat}{caller}to = 'chat'"), "");
        check(&format!("{caller}to = 'chat'"), "`callers[0].to`: there is no scope `chat`; embed");
        check(&format!("{caller}{caller}"), "`callers[1].name`: `a` is the name of another caller");
        check(&format!("{caller}deadline_s = -1"), "`callers[0].deadline_s`: -1 is out of bounds");
        check(
            &format!("{caller}kind = 'robot'"),
            "unknown variant `robot`, expected one of `user`",
        );
        check(&format!("{caller}job = {{ item = 1 }}"), "unknown field `item`, expected one of");
        check(
            &format!("{caller}job = {{ items = 1 }}"),
            "`callers[0].steps`: there is another way",
        );
        check(&chat.replace("chat", "Chat"), "`providers.Chat`: `Chat` cannot be a scope's name");
        check(&chat.replace("chat", "embed"), "`embed` is the first scope");
        check(&format!("{chat}script = 'x'"), "`providers.chat.script`");
        check("[app.cache]\nrepeat_ratio = 2", "`app.cache.repeat_ratio`: 2 is out of bounds");
        check("[[app.stages]]\nname = 'x'\nlatency = { base_ms = 1 }", "`app.stages[0].name`");
        check("[app.quality]\ngrounded = 1", "missing field `citation_valid`");
        let upstream = "[upstream]\nurl = 'http://127.0.0.1:9'\nmodel = 'm'\n";
        check(&format!("{chat}{upstream}"), "`providers`: there is an upstream");
    }
}
