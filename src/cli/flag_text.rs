//! How `weir flag` prints tables, plans and events for people.

use chrono::Utc;

use crate::admission::Direction;
use crate::flag::{EventKind, FlagEvent, FlagState, FlagTable, OnExpire, Plan, Store};

/// How interlocks are passed.
pub(super) const WAY_PAST: &str = "--break-glass REASON, with the gateway's second token";

/// The table, one flag a line, and what its store cannot do.
pub(super) fn table(table: &FlagTable, store: &dyn Store) -> String {
    let able = store.capabilities();
    let mut lines = vec![
        format!("revision {} in {}", table.revision, store.name()),
        format!(
            "{:<32} {:>9} {:>9} {:>9} {:>9}  last change",
            "flag", "stored", "base", "effective", "safe"
        ),
    ];
    for flag in &table.flags {
        lines.push(format!(
            "{:<32} {:>9} {:>9} {:>9} {:>9}  {}",
            flag.key,
            flag.stored().to_string(),
            flag.base.to_string(),
            effective(flag, able.effective),
            flag.safe.to_string(),
            last(flag),
        ));
    }
    lines.extend(able.lacks().into_iter().map(|what| format!("lacks: {what}")));
    lines.join("\n")
}

/// One flag in full. `tells` is whether the store tells what instances use.
pub(super) fn flag(flag: &FlagState, tells: bool) -> String {
    let overridden =
        flag.overridden.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let mut lines = vec![
        flag.key.clone(),
        format!("stored    {}", flag.stored()),
        format!("base      {}", flag.base),
        format!("override  {overridden}"),
        format!("safe      {}", flag.safe),
        format!("changed   {}", last(flag)),
    ];
    if !tells {
        lines.push("effective not told by this store".to_owned());
    }
    lines.extend(
        flag.effective.iter().map(|(instance, value)| format!("effective {value} on {instance}")),
    );
    lines.join("\n")
}

/// The plan as it is shown before it is confirmed. `has_glass` is whether its store takes break-glass.
pub(super) fn plan(plan: &Plan, store: &dyn Store, has_glass: bool) -> String {
    let able = store.capabilities();
    let at = format!("plan {} at revision {} in {}", plan.name, plan.revision, store.name());
    let mut lines = vec![at];
    for change in &plan.changes {
        let direction = match change.direction {
            Direction::Safer => "safer",
            Direction::Riskier => "RISKIER",
            Direction::Same => "same",
        };
        let dropped = if change.drops_override { ", drops the override" } else { "" };
        let last = change.last.as_ref().map_or_else(String::new, |(by, at)| {
            format!(", last by {by} {}", at.format("%Y-%m-%d %H:%M:%SZ"))
        });
        lines.push(format!(
            "  {} {} -> {}  ({direction}{dropped}{last})",
            change.key, change.from, change.to
        ));
    }
    for guard in &plan.guards {
        let mark = match guard.holds {
            Some(true) => "T",
            Some(false) => "F",
            None => "?",
        };
        lines.push(format!("  {mark} {}", guard.text));
    }
    let timer = match (plan.ttl_s, plan.on_expire) {
        (None, _) => "none".to_owned(),
        (Some(ttl_s), OnExpire::Revert) => {
            let sets: Vec<String> =
                plan.restores().map(|(key, before)| format!("{key} to {before}")).collect();
            if sets.is_empty() {
                format!("reverts to the base value after {ttl_s} s")
            } else {
                format!("reverts after {ttl_s} s: {}", sets.join(", "))
            }
        }
        (Some(ttl_s), OnExpire::Remind) => format!("reminds after {ttl_s} s, changes nothing"),
    };
    // This command ends at once; every dashboard of the same journal takes such timers up.
    let carried = if able.timer || plan.ttl_s.is_none() {
        ""
    } else {
        "; only while a `weir watch` runs, started before it or after, by this user"
    };
    let reason = if plan.reason.is_empty() { "MISSING, add --reason" } else { &plan.reason };
    lines.push(format!("  reaches  {}", plan.reach));
    lines.push(format!("  timer    {timer}{carried}"));
    lines.push(format!("  verify   {}", plan.verify));
    lines.push(format!("  reason   {reason}"));
    lines.extend(able.lacks().into_iter().map(|what| format!("  lacks    {what}")));
    if plan.refused().is_some() {
        lines.extend(plan.overridable().map(|guard| format!("REFUSED: {}", guard.text)));
    }
    let mut passed = plan.overridable().map(|guard| &guard.text).peekable();
    match &plan.glass {
        Some(why) if passed.peek().is_none() => lines.push(format!(
            "BREAK-GLASS ({why}): nothing refuses as far as is known here; the gateway asks its own"
        )),
        Some(why) => {
            let overrides = |guard| format!("BREAK-GLASS ({why}) OVERRIDES: {guard}");
            lines.extend(passed.map(overrides));
        }
        None if has_glass && passed.peek().is_some() => {
            lines.push(format!("  past it  {WAY_PAST}; it would override:"));
            lines.extend(passed.map(|guard| format!("           {guard}")));
        }
        None => {}
    }
    lines.join("\n")
}

/// Events, oldest first.
pub(super) fn events(events: &[FlagEvent]) -> String {
    if events.is_empty() {
        return "no events".to_owned();
    }
    let line = |event: &FlagEvent| {
        if event.kind == EventKind::Note {
            let at = event.at.format("%Y-%m-%d %H:%M:%SZ");
            return format!("{:>4} {at} {} notes: {}", event.seq, event.actor, event.reason);
        }
        let changes: Vec<String> = event
            .changes
            .iter()
            .map(|change| match event.kind {
                EventKind::Remind => format!("{} is still {}", change.key, change.value_after()),
                _ => {
                    format!("{} {} -> {}", change.key, change.value_before(), change.value_after())
                }
            })
            .collect();
        let glass =
            event.marks.broken_glass().map_or_else(String::new, |words| format!("; {words}"));
        format!(
            "{:>4} {} {} (revision {}): {}; {}{glass}",
            event.seq,
            event.at.format("%Y-%m-%d %H:%M:%SZ"),
            event.actor,
            event.revision,
            changes.join(", "),
            event.reason
        )
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The effective value where all instances agree, else how many values there are.
fn effective(flag: &FlagState, tells: bool) -> String {
    let mut values: Vec<String> = flag.effective.values().map(ToString::to_string).collect();
    values.sort();
    values.dedup();
    match values.as_slice() {
        [] if !tells => "not told".to_owned(),
        [] => "?".to_owned(),
        [one] => one.clone(),
        many => format!("{} differ", many.len()),
    }
}

fn last(flag: &FlagState) -> String {
    match (&flag.by, &flag.at) {
        (Some(by), Some(at)) => {
            let timer = flag.timer().map_or_else(String::new, |(at, what)| {
                let word = match what {
                    OnExpire::Revert => "reverts",
                    OnExpire::Remind if at <= Utc::now() => "reminder overdue since",
                    OnExpire::Remind => "reminder",
                };
                format!(", {word} {}", at.format("%H:%M:%SZ"))
            });
            let glass = if flag.broke_glass() { ", PAST THE INTERLOCKS" } else { "" };
            format!("{by} {}{timer}{glass}", at.format("%Y-%m-%d %H:%M:%SZ"))
        }
        _ => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::FlagValue;
    use crate::flag::{EventChange, Marks, Revision};

    #[test]
    fn a_reminder_is_told_as_one() {
        let event = |kind, to| FlagEvent {
            seq: 3,
            at: chrono::DateTime::UNIX_EPOCH,
            actor: "timer".to_owned(),
            reason: "due".to_owned(),
            incident: None,
            request_id: None,
            anchor: None,
            marks: Marks::default(),
            revision: Revision(2),
            kind,
            changes: vec![EventChange {
                key: "retry.max_attempts".to_owned(),
                base: FlagValue::Number(2.0),
                from: Some(FlagValue::Number(3.0)),
                to,
            }],
        };
        let still = event(EventKind::Remind, Some(FlagValue::Number(3.0)));
        assert!(events(&[still]).contains(": retry.max_attempts is still 3; due"));
        assert!(events(&[event(EventKind::Expire, None)]).contains("retry.max_attempts 3 -> 2"));
    }
}
