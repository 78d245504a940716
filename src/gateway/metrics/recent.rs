//! Attempts of late and the originals that they were for, over windows of a fixed length and over one that
//! holds an original's attempts together.

use std::time::Duration;

use crate::admission::Scope;
use crate::gateway::page::Page;
use crate::signal::Mono;

/// Windows of the exact recent counts, in seconds.
const RECENT_WINDOWS_S: [u64; 2] = [10, 60];

/// Counts of the windows, and rates of the span.
pub(super) fn write(page: &mut Page, scopes: &[Scope], now: Mono) {
    let families = [
        ("weir_recent_attempts", "Attempts in the window, exactly."),
        ("weir_recent_originals_attempted", "Originals with an attempt in the window, exactly."),
    ];
    for (place, (name, help)) in families.into_iter().enumerate() {
        page.family(name, "gauge", help);
        for scope in scopes {
            for window in RECENT_WINDOWS_S {
                let (attempts, originals) =
                    scope.attempted().since(now - Duration::from_secs(window));
                let labels = [("scope", &**scope.name()), ("window", &*window.to_string())];
                page.count(name, &labels, if place == 0 { attempts } else { originals });
            }
        }
    }
    // Per second, so that scopes whose windows differ can be added up.
    let families = [
        ("weir_spanned_attempts_per_second", "Attempts in the span, per second of it."),
        (
            "weir_spanned_originals_per_second",
            "Originals with an attempt in the span, per second of it.",
        ),
        (
            "weir_attempt_span_seconds",
            "Window that holds the attempts of one original together: 10 s, longer while repeats are slow.",
        ),
    ];
    let spanned = |scope: &Scope| {
        let span = scope.attempted().span(now);
        let (attempts, originals) = scope.attempted().since(now - span);
        let span = span.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts of two minutes")]
        let values = [attempts as f64 / span, originals as f64 / span, span];
        values
    };
    let rows: Vec<_> = scopes.iter().map(|scope| (&**scope.name(), spanned(scope))).collect();
    for (place, (name, help)) in families.into_iter().enumerate() {
        page.family(name, "gauge", help);
        for (scope, values) in &rows {
            page.sample(name, &[("scope", scope)], values[place]);
        }
    }
}
