//! The meters that headers show: names with a unit by the tables, names without one by their lists.
//!
//! What is missing, a placeholder or no number is unknown, never zero. Names are matched whole, so
//! that twins such as `*-tokens_usage_based` do not get in the way.

mod lists;

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::dialect::meter::{Meter, MeterReading, Unit};
use crate::dialect::moment::Clock;
use crate::dialect::provider::Provider;
use crate::dialect::span::parse_go_duration;
use crate::dialect::table::{ResetForm, Row};

/// Largest count that is believed; above it a float no longer holds every whole number.
const COUNT_MAX: f64 = 9_007_199_254_740_992.0;
/// Windows that a reset may prove.
const WINDOWS_S: [u64; 4] = [1, 60, 3_600, 86_400];
/// The finest that a reset is written in.
const RESET_STEP_S: f64 = 0.001;

/// What the headers of an answer show.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Each meter once.
    pub(super) meters: Vec<MeterReading>,
    /// Those of them whose name or window does not say which meter they are.
    pub(super) nameless: Vec<Meter>,
    /// Negative counts as written.
    pub(super) negative: Vec<(Meter, f64)>,
}

impl Shown {
    /// Reads headers as `provider` writes them.
    pub(super) fn read(headers: &HeaderMap, provider: Provider, clock: Clock) -> Self {
        let mut shown = Self::default();
        for row in provider.rows() {
            shown.read_row(headers, row, clock);
        }
        shown.read_lists(headers, &provider.table().plain, clock);
        shown
    }

    /// Takes over what only `other` shows.
    pub(super) fn add(&mut self, other: Self) {
        for reading in other.meters {
            self.keep(reading, !other.nameless.contains(&reading.meter));
        }
        self.negative.extend(other.negative);
    }

    /// The first empty meter that is known by name.
    pub(super) fn empty_meter(&self) -> Option<Meter> {
        self.empty_meters().next()
    }

    /// The first empty meter of this unit that is known by name.
    pub(super) fn empty_meter_of(&self, unit: Unit) -> Option<Meter> {
        self.empty_meters().find(|meter| meter.unit() == unit)
    }

    fn empty_meters(&self) -> impl Iterator<Item = Meter> {
        let named = self.meters.iter().filter(|one| !self.nameless.contains(&one.meter));
        named.filter(|reading| reading.is_empty()).map(|reading| reading.meter)
    }

    /// Says the window of the meters that have none and no name.
    pub(super) fn name_window(&mut self, window: Duration) {
        for reading in &mut self.meters {
            if self.nameless.contains(&reading.meter) && reading.window.is_none() {
                reading.window = Some(window);
                reading.meter = reading.meter.over(window);
            }
        }
        self.nameless.clear();
    }

    fn read_row(&mut self, headers: &HeaderMap, row: &Row, clock: Clock) {
        let text = |name: &Option<HeaderName>| {
            name.as_ref().and_then(|name| headers.get(name)).and_then(|value| text_of(value))
        };
        let (limit, remaining) = (text(&row.limit), text(&row.remaining));
        let reset_text = text(&row.reset);
        if limit.is_none() && remaining.is_none() && reset_text.is_none() {
            return;
        }
        let reset = reset_text.and_then(|text| clock.read_reset(text));
        let Some(mut reading) = self.counts(row.meter, limit, remaining, reset) else { return };
        let is_whole = reading.limit.is_some() && reading.remaining.is_some();
        reading.window = match row.window_s {
            // A limit alone is the size of a plan, no state of a meter.
            Some(window) => is_whole.then_some(window),
            None if row.form == ResetForm::Go => {
                reset_text.and_then(parse_go_duration).and_then(|exact| proven(&reading, exact))
            }
            None => None,
        };
        if let Some(window) = reading.window {
            reading.meter = reading.meter.over(window);
        }
        let is_named = has_name(&reading);
        self.keep(reading, is_named);
    }

    /// A reading of these texts, with placeholders taken out; `None` if nothing is known.
    fn counts(
        &mut self,
        meter: Meter,
        limit: Option<&str>,
        remaining: Option<&str>,
        reset: Option<Duration>,
    ) -> Option<MeterReading> {
        let limit = limit.and_then(read_count);
        let remaining = remaining.and_then(read_count);
        if let Some(negative) = remaining.filter(|left| *left < 0.0) {
            self.negative.push((meter, negative));
        }
        // -1 of -1 is how some servers say that they count nothing here; their reset is one too.
        let is_placeholder = limit.is_some_and(|limit| limit < 0.0);
        // 0 of which something remains is a limit that the server does not know.
        let limit = limit.filter(|limit| *limit > 0.0);
        let remaining = match remaining {
            // Overdrawn: nothing is left. Without a limit a negative number says nothing.
            Some(left) if left < 0.0 => limit.map(|_| 0.0),
            left => left,
        };
        let reset = reset.filter(|_| !is_placeholder);
        let is_known = limit.is_some() || remaining.is_some() || reset.is_some();
        is_known.then_some(MeterReading { meter, limit, remaining, reset, window: None })
    }

    /// Whether a reading without a name repeats the counts of one that has a name, to which its reset
    /// is added: gateways write both `x-ratelimit-limit-hour` and `ratelimit-limit`.
    fn completes(&mut self, nameless: &MeterReading) -> bool {
        let is_same = |known: &&mut MeterReading| {
            known.meter.unit() == nameless.meter.unit()
                && known.meter != nameless.meter
                && known.limit.is_some()
                && (known.limit, known.remaining) == (nameless.limit, nameless.remaining)
                && nameless.window.is_none()
        };
        let Some(known) = self.meters.iter_mut().find(is_same) else { return false };
        known.reset = known.reset.or(nameless.reset);
        true
    }

    fn keep(&mut self, reading: MeterReading, is_named: bool) {
        if !is_named && self.completes(&reading) {
            return;
        }
        if self.meters.iter().any(|known| known.meter == reading.meter) {
            return;
        }
        if !is_named {
            self.nameless.push(reading.meter);
        }
        self.meters.push(reading);
    }
}

/// Whether the meter's name fits its window: tokens of the second are not those of the minute.
fn has_name(reading: &MeterReading) -> bool {
    let is_of_minute = matches!(
        reading.meter,
        Meter::Requests | Meter::Tokens | Meter::InputTokens | Meter::OutputTokens
    );
    !is_of_minute || reading.window.is_none_or(|window| window == Duration::from_mins(1))
}

/// The window that a reset proves. Where it is the time until the bucket is full, it is
/// `used * window / limit`; `remaining` was rounded down, so the window lies between two bounds. One
/// window of [`WINDOWS_S`] between them is the proof, none or two are not.
fn proven(reading: &MeterReading, reset: Duration) -> Option<Duration> {
    let (limit, remaining) = (reading.limit?, reading.remaining?);
    let used = limit - remaining;
    if used < 1.0 || reset.is_zero() {
        return None;
    }
    let reset_s = reset.as_secs_f64();
    let least = (reset_s - RESET_STEP_S) * limit / used;
    let most = (reset_s + RESET_STEP_S) * limit / (used - 1.0).max(1.0);
    #[expect(clippy::cast_precision_loss, reason = "a day has 86400 seconds")]
    let mut between = WINDOWS_S.into_iter().filter(|s| (least..=most).contains(&(*s as f64)));
    let only = between.next()?;
    between.next().is_none().then(|| Duration::from_secs(only))
}

/// A header's text; `µ` is no ASCII.
fn text_of(value: &http::HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::trim)
}

fn read_count(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_plain = all_digits(whole) && all_digits(fraction);
    text.parse().ok().filter(|count: &f64| is_plain && count.abs() < COUNT_MAX)
}

#[cfg(test)]
mod tests;
