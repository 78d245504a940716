//! Headers that name neither unit nor window: `X-RateLimit-*`, and the drafts of the IETF.
//!
//! `draft-ietf-httpapi-ratelimit-headers`: 00 to 03 have three headers with the policies in the limit, 04 to
//! 06 a `RateLimit-Policy` beside them, 07 one dictionary, 08 to 10 lists of named items. Malformed
//! items are left out, as they require; but a bare string among an item's parameters, which Hugging
//! Face writes, is taken as another name of it.

use std::time::Duration;

use http::HeaderMap;

use super::{Shown, read_count, text_of};
use crate::dialect::meter::Meter;
use crate::dialect::moment::Clock;
use crate::dialect::span::parse_decimal;
use crate::dialect::table::Plain;

/// Limit, remaining, reset and policy.
const FAMILIES: [[&str; 4]; 3] = [
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-policy"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-policy"],
    ["x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset", "x-rate-limit-policy"],
];
/// How many items of a list are looked at.
const ITEMS_MAX: usize = 16;

impl Shown {
    /// Reads all of them; what a table says about the provider's plain headers is in `plain`.
    pub(super) fn read_lists(&mut self, headers: &HeaderMap, plain: &Plain, clock: Clock) {
        let text = |name: &str| headers.get(name).and_then(text_of);
        let policies: Vec<Item<'_>> = text("ratelimit-policy").map(items).unwrap_or_default();
        if let Some(field) = text("ratelimit") {
            self.read_field(field, &policies, clock);
        }
        let window = plain.window_s.or_else(|| {
            let resource = text(plain.resource.as_ref()?.as_str())?;
            plain.resources.iter().find(|one| one.name == resource)?.window_s
        });
        for names in FAMILIES {
            let parts = names.map(text);
            if parts[..3].iter().any(Option::is_some) {
                self.read_family(parts, window, clock);
            }
        }
    }

    /// `RateLimit`, as the dictionary of draft 07 or the list of 08 to 10.
    fn read_field(&mut self, field: &str, policies: &[Item<'_>], clock: Clock) {
        let members = items(field);
        let entry = |key: &str| {
            members.iter().find_map(|item| item.name().strip_prefix(key)?.strip_prefix('='))
        };
        if let Some(limit) = entry("limit") {
            let parts = [Some(limit), entry("remaining"), entry("reset")];
            self.read_single(parts, policies, None, clock);
            return;
        }
        let mut found = Vec::new();
        for item in &members {
            let (remaining, reset) = (item.parameter("r"), item.parameter("t"));
            let policy = policies.iter().find(|policy| policy.shares_a_name(item));
            let unit =
                policy.and_then(|policy| policy.parameter("qu")).map(|qu| qu.trim_matches('"'));
            let meter = match unit {
                None | Some("requests") => Meter::Requests,
                Some("concurrent-requests") => Meter::Concurrency,
                Some("tokens") => Meter::Tokens,
                // Bytes and whatever else is no meter of ours.
                Some(_) => continue,
            };
            let limit = policy.and_then(|policy| policy.parameter("q"));
            let reset = reset.and_then(|text| clock.read_reset(text));
            if let Some(mut reading) = self.counts(meter, limit, remaining, reset) {
                reading.window = policy.and_then(Item::window);
                found.push(reading);
            }
        }
        self.keep_tightest(found);
    }

    /// Three parallel headers, each one number or a list of the same length.
    fn read_family(&mut self, parts: [Option<&str>; 4], window: Option<Duration>, clock: Clock) {
        let [limits, remaining, resets, policy] =
            parts.map(|text| text.map(items).unwrap_or_default());
        // A date has a comma of its own, so that resets alone make no list.
        let lists =
            if remaining.is_empty() { limits.len().min(resets.len()) } else { remaining.len() };
        let policies = if policy.is_empty() { &limits } else { &policy };
        if lists <= 1 {
            let single = [limits.first().map(Item::name), parts[1], parts[2]];
            self.read_single(single, policies, window, clock);
            return;
        }
        let mut found = Vec::new();
        for place in 0..lists {
            let name = |list: &[Item<'_>]| list.get(place).map(|item| item.name().to_owned());
            let (limit, left) = (name(&limits), name(&remaining));
            let reset = name(&resets).and_then(|text| clock.read_reset(&text));
            let reading = self.counts(Meter::Requests, limit.as_deref(), left.as_deref(), reset);
            if let Some(mut reading) = reading {
                reading.window = policies.get(place).and_then(Item::window).or(window);
                found.push(reading);
            }
        }
        self.keep_tightest(found);
    }

    fn read_single(
        &mut self,
        [limit, remaining, reset]: [Option<&str>; 3],
        policies: &[Item<'_>],
        window: Option<Duration>,
        clock: Clock,
    ) {
        let reset = reset.and_then(|text| clock.read_reset(text));
        let Some(mut reading) = self.counts(Meter::Requests, limit, remaining, reset) else {
            return;
        };
        // The policy that the limit is of has the same number, and its window can hold the reset.
        let is_of = |policy: &&Item<'_>| {
            let fits = |window: Duration| reading.reset.is_none_or(|reset| reset <= window);
            read_count(policy.name()) == reading.limit && policy.window().is_some_and(fits)
        };
        let policy = policies.iter().find(is_of).filter(|_| reading.limit.is_some());
        reading.window = policy.and_then(Item::window).or(window);
        self.keep_tightest(vec![reading]);
    }

    /// Keeps readings with the name that their window gives them: an empty one before others, then
    /// the shortest window.
    fn keep_tightest(&mut self, mut found: Vec<crate::dialect::meter::MeterReading>) {
        found.sort_by_key(|one| (!one.is_empty(), one.window.unwrap_or(Duration::MAX)));
        for mut reading in found {
            if let Some(window) = reading.window {
                reading.meter = reading.meter.over(window);
            }
            let minute = Some(Duration::from_mins(1));
            let is_named = reading.meter != Meter::Requests || reading.window == minute;
            self.keep(reading, is_named);
        }
    }
}

/// A member of a list: names and parameters.
struct Item<'a> {
    names: Vec<&'a str>,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Item<'a> {
    fn read(text: &'a str) -> Self {
        let mut item = Self { names: Vec::new(), parameters: Vec::new() };
        for part in split(text, ';').take(ITEMS_MAX) {
            match part.split_once('=') {
                Some((key, value)) if !item.names.is_empty() && !part.starts_with('"') => {
                    item.parameters.push((key.trim(), value.trim()));
                }
                _ => item.names.push(part),
            }
        }
        item
    }

    fn name(&self) -> &'a str {
        self.names.first().copied().unwrap_or_default()
    }

    fn parameter(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn window(&self) -> Option<Duration> {
        let window = parse_decimal(self.parameter("w")?, Duration::from_secs(1))?;
        (!window.is_zero()).then_some(window)
    }

    fn shares_a_name(&self, other: &Self) -> bool {
        let is_own = |name: &str| self.names.iter().any(|own| own.trim_matches('"') == name);
        other.names.iter().any(|name| is_own(name.trim_matches('"')))
    }
}

fn items(text: &str) -> Vec<Item<'_>> {
    split(text, ',').take(ITEMS_MAX).map(Item::read).collect()
}

/// The parts between `separator`, which inside quotes is text.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = text.split(move |c: char| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}
