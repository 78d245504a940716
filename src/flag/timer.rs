//! Timers that weir carries itself while it runs, for stores that have none.
//!
//! Pure: flips and tables in, what is due out; `now` is an argument and comes last. A timer leads back only
//! what its flip has set, only while nobody has changed the flag since, and only toward the safe end: to
//! the base value, or to the override before where the base is no safer. Every other timer reminds.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use crate::admission::{Direction, FlagValue, flag};

use super::plan::{Evidence, Terms, plan};
use super::store::{Author, FlagEvent};
use super::types::{Change, FlagState, FlagTable, OnExpire, Plan, Revision};
use super::way_back::WayBack;

/// In whose name a timer changes flags.
pub const TIMER: &str = "timer";

/// From a try that failed to the next.
const RETRY: TimeDelta = TimeDelta::seconds(30);
/// From a look at one that another process has in hand to the next.
const AGAIN: TimeDelta = TimeDelta::seconds(5);
/// How much later than the flip was written down the store may say that it was made: clocks differ.
const SLACK: TimeDelta = TimeDelta::seconds(60);

/// The timer of one flip.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The id of the flip's request.
    pub id: String,
    /// The flip's plan, by name.
    pub plan: String,
    /// Who made the flip.
    pub actor: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// When it runs out.
    pub due: DateTime<Utc>,
    /// What it does then.
    pub on_expire: OnExpire,
    set_at: DateTime<Utc>,
    sets: Vec<Held>,
}

/// One override that the flip has set.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    key: String,
    to: FlagValue,
    /// The override before, or what the timer of that would have led back to.
    before: Option<FlagValue>,
    /// How the flag stood once it was seen to hold that; `None` until then.
    mark: Option<Mark>,
}

impl Held {
    /// The change that leads back, by the base value as it is now.
    fn back(&self, table: &FlagTable) -> Change {
        let way = table
            .get(&self.key)
            .zip(flag(&self.key).ok())
            .map(|(state, def)| WayBack::of(def, &state.base, self.before.as_ref(), &self.to));
        let to = match way {
            Some(WayBack::ToBefore(before)) => Some(before),
            Some(WayBack::ToBase | WayBack::Nowhere) | None => None,
        };
        Change { key: self.key.clone(), to }
    }
}

/// What is another after any change that the store tells.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    revision: Revision,
    by: Option<String>,
    at: Option<DateTime<Utc>>,
}

impl Mark {
    fn of(flag: &FlagState) -> Self {
        Self { revision: flag.revision, by: flag.by.clone(), at: flag.at }
    }
}

/// What has to be done for a timer that has run out.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Carry this plan out, then say so.
    Revert(Plan),
    /// Say this, and change nothing.
    Say(String),
    /// Nothing: the flip's overrides are gone.
    Nothing,
}

impl Timed {
    /// The timer of a flip as a history tells it; `None` when it has none.
    #[must_use]
    pub fn of_event(
        event: &FlagEvent,
        plan: &str,
        ttl_s: Option<u64>,
        on_expire: OnExpire,
    ) -> Option<Self> {
        let due = event.at.checked_add_signed(span(ttl_s?)?)?;
        let set = |change: &super::EventChange| {
            let (key, before) = (change.key.clone(), change.from.clone());
            Some(Held { key, to: change.to.clone()?, before, mark: None })
        };
        let sets: Vec<Held> = event.changes.iter().filter_map(set).collect();
        (!sets.is_empty()).then(|| Self {
            id: event.request_id.clone().unwrap_or_default(),
            plan: plan.to_owned(),
            actor: event.actor.clone(),
            incident: event.incident.clone(),
            due,
            on_expire,
            set_at: event.at,
            sets,
        })
    }

    /// The timer of a plan that was just sent; `None` when it has none.
    #[must_use]
    pub fn of_plan(plan: &Plan, author: &Author, now: DateTime<Utc>) -> Option<Self> {
        let due = now.checked_add_signed(span(plan.ttl_s?)?)?;
        let set = plan.changes.iter().filter(|change| !change.drops_override).map(|change| Held {
            key: change.key.clone(),
            to: change.to.clone(),
            before: match &change.way_back {
                WayBack::ToBefore(before) => Some(before.clone()),
                WayBack::ToBase | WayBack::Nowhere => None,
            },
            mark: None,
        });
        let sets: Vec<Held> = set.collect();
        (!sets.is_empty()).then(|| Self {
            id: plan.request_id.clone(),
            plan: plan.name.clone(),
            actor: author.actor.clone(),
            incident: author.incident.clone(),
            due,
            on_expire: plan.on_expire,
            set_at: now,
            sets,
        })
    }

    /// A later flip has changed these flags: it takes them out of earlier timers, and its own takes their
    /// place.
    pub fn supersede<'a>(
        open: &mut Vec<Self>,
        keys: impl Iterator<Item = &'a str>,
        next: Option<Self>,
    ) {
        let next = next.map(|timed| timed.inheriting(open));
        for key in keys {
            for timed in open.iter_mut() {
                timed.sets.retain(|held| held.key != key);
            }
        }
        open.retain(|timed| !timed.sets.is_empty());
        open.extend(next);
    }

    /// Where a timer that leads back is cut short, its successor leads as far back.
    fn inheriting(mut self, open: &[Self]) -> Self {
        for held in &mut self.sets {
            let reverting = open.iter().filter(|timed| timed.on_expire == OnExpire::Revert);
            let mut others = reverting.flat_map(|timed| &timed.sets);
            if let Some(other) = others.find(|other| other.key == held.key) {
                held.before.clone_from(&other.before);
            }
        }
        self
    }

    /// The same timer, with how its overrides stood when it was known before.
    fn with_marks_of(mut self, known: &[Self]) -> Self {
        let Some(before) = known.iter().find(|timed| timed.id == self.id) else { return self };
        for held in &mut self.sets {
            let seen = before.sets.iter().find(|earlier| earlier.key == held.key);
            held.mark = seen.and_then(|earlier| earlier.mark.clone());
        }
        self
    }

    /// Whether the override is still the flip's own, as far as the store tells.
    fn is_held(&self, held: &Held, flag: &FlagState) -> bool {
        flag.overridden.as_ref() == Some(&held.to)
            && match &held.mark {
                Some(mark) => *mark == Mark::of(flag),
                None => flag.at.is_none_or(|at| at <= self.set_at + SLACK),
            }
    }

    fn held<'a>(&'a self, table: &'a FlagTable) -> impl Iterator<Item = &'a Held> {
        self.sets
            .iter()
            .filter(move |held| table.get(&held.key).is_some_and(|flag| self.is_held(held, flag)))
    }

    /// What to do now that it has run out, by a table that was just read. The plan's request gets
    /// `request_id`.
    #[must_use]
    pub fn act(&self, table: &FlagTable, evidence: &Evidence<'_>, request_id: String) -> Due {
        let keys: Vec<&Held> = self.held(table).collect();
        let named = |keys: &[&Held]| {
            let one = |held: &&Held| format!("{} = {}", held.key, held.to);
            keys.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let of = format!("timer of {} by {}", self.plan, self.actor);
        if keys.is_empty() {
            let overridden =
                |held: &&Held| table.get(&held.key).is_some_and(|flag| flag.overridden.is_some());
            let others: Vec<&Held> = self.sets.iter().filter(overridden).collect();
            return if others.is_empty() || self.on_expire == OnExpire::Remind {
                Due::Nothing
            } else {
                let keys = others.iter().map(|held| held.key.as_str()).collect::<Vec<_>>();
                Due::Say(format!("{of}: {} was changed since, left as it is", keys.join(", ")))
            };
        }
        if self.on_expire == OnExpire::Remind {
            return Due::Say(format!("{of}: still {}", named(&keys)));
        }
        let changes: Vec<Change> = keys.iter().map(|held| held.back(table)).collect();
        let reason = format!("{of} ran out");
        let terms = Terms { reason: Some(reason), ttl_s: None, request_id };
        match plan(&format!("timer {}", self.plan), table, &changes, evidence, terms) {
            Ok(plan)
                if plan.changes.iter().all(|change| change.direction != Direction::Riskier) =>
            {
                // What it sets again was there before, and had no timer of its own.
                Due::Revert(Plan { ttl_s: None, ..plan })
            }
            // The base was moved meanwhile, and dropping the override would lead away from safe.
            Ok(_) => Due::Say(format!("{of}: the base is no safer now, still {}", named(&keys))),
            Err(error) => Due::Say(format!("{of}: {error}")),
        }
    }
}

fn span(ttl_s: u64) -> Option<TimeDelta> {
    TimeDelta::try_seconds(i64::try_from(ttl_s).ok()?)
}

/// The timers that weir carries.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    open: Vec<Timed>,
    /// Timers that have done what they had to, as far as this run knows.
    done: BTreeSet<String>,
    /// Nothing is tried again before.
    not_before: Option<DateTime<Utc>>,
    /// What could not be done has been said.
    is_said: bool,
}

impl Timers {
    /// Takes up what earlier runs and other processes have left, as the journal tells all of it. What is
    /// known already of an override that is still open stays known.
    pub fn take_up(&mut self, open: Vec<Timed>) {
        let known = std::mem::take(&mut self.open);
        let open = open.into_iter().filter(|timed| !self.done.contains(&timed.id));
        self.open = open.map(|timed| timed.with_marks_of(&known)).collect();
    }

    /// A plan was sent, and may be stored: its timer takes the place of earlier ones of the same flags.
    pub fn on_sent(&mut self, plan: &Plan, author: &Author, now: DateTime<Utc>) {
        let keys = plan.changes.iter().map(|change| change.key.as_str());
        Timed::supersede(&mut self.open, keys, Timed::of_plan(plan, author, now));
    }

    /// A table was read: overrides that are seen for the first time are known again by how they stand.
    pub fn on_table(&mut self, table: &FlagTable) {
        for timed in &mut self.open {
            for at in 0..timed.sets.len() {
                let held = &timed.sets[at];
                let flag = table.get(&held.key).filter(|flag| timed.is_held(held, flag));
                if let (None, Some(flag)) = (&held.mark, flag) {
                    timed.sets[at].mark = Some(Mark::of(flag));
                }
            }
        }
    }

    /// A timer that has run out, the first one first.
    #[must_use]
    pub fn due(&self, now: DateTime<Utc>) -> Option<&Timed> {
        if self.not_before.is_some_and(|moment| now < moment) {
            return None;
        }
        self.open.iter().filter(|timed| timed.due <= now).min_by_key(|timed| timed.due)
    }

    /// What a timer had to do is done.
    pub fn on_done(&mut self, id: &str) {
        self.not_before = None;
        self.is_said = false;
        self.open.retain(|timed| timed.id != id);
        self.done.insert(id.to_owned());
    }

    /// It could not be done: it is tried again later. Says whether this is the first time.
    pub fn on_failed(&mut self, now: DateTime<Utc>) -> bool {
        self.not_before = Some(now + RETRY);
        !std::mem::replace(&mut self.is_said, true)
    }

    /// Another process has it in hand, or had: it is looked at again later.
    pub fn on_taken(&mut self, now: DateTime<Utc>) {
        self.not_before = Some(now + AGAIN);
    }

    /// When the timer that holds this flag runs out, and what it does then.
    #[must_use]
    pub fn of(&self, flag: &FlagState) -> Option<(DateTime<Utc>, OnExpire)> {
        let holds = |timed: &&Timed| {
            timed.sets.iter().any(|held| held.key == flag.key && timed.is_held(held, flag))
        };
        self.open.iter().find(holds).map(|timed| (timed.due, timed.on_expire))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{table, value};
    use super::super::plan::wanted;
    use super::*;

    const KEY: &str = "retry.max_attempts";
    const TTL_S: u64 = 900;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    fn author() -> Author {
        Author { actor: "alice".to_owned(), incident: None, anchor: None }
    }

    /// The plan of these words on the default table, and the table after it.
    fn flip(words: &[&str], overrides: &[(&str, &str)]) -> (Plan, FlagTable) {
        let terms = Terms { ttl_s: Some(TTL_S), request_id: words.concat(), ..Terms::default() };
        let wanted = wanted(words).expect("valid");
        let plan = plan("t", &table(&[]), &wanted, &Evidence::default(), terms);
        (plan.expect("a plan"), table(overrides))
    }

    fn carried(words: &[&str], overrides: &[(&str, &str)]) -> (Timers, FlagTable) {
        let (plan, after) = flip(words, overrides);
        let mut timers = Timers::default();
        timers.on_sent(&plan, &author(), at(0));
        timers.on_table(&after);
        (timers, after)
    }

    fn act(timers: &Timers, table: &FlagTable, second: i64) -> Due {
        let timed = timers.due(at(second)).expect("due");
        timed.act(table, &Evidence::default(), "r".to_owned())
    }

    #[test]
    fn a_riskier_flip_goes_back_at_the_second_that_was_said_and_not_before() {
        let (mut timers, after) = carried(&["retry.max_attempts=3"], &[(KEY, "3")]);
        assert!(timers.due(at(899)).is_none());
        let Due::Revert(plan) = act(&timers, &after, 900) else { panic!("it reverts") };
        assert_eq!((plan.changes.len(), plan.changes[0].drops_override), (1, true));
        assert!(!plan.is_risky() && plan.refused().is_none() && plan.ttl_s.is_none());
        assert_eq!(plan.reason, "timer of t by alice ran out");
        assert_eq!((plan.revision, plan.request_id.as_str()), (after.revision, "r"));
        timers.on_done(&timers.due(at(900)).expect("due").id.clone());
        assert!(timers.is_empty() && timers.due(at(9_000)).is_none());
    }

    #[test]
    fn a_safer_flip_is_only_reminded_of() {
        let (timers, after) = carried(&["retry.max_attempts=1"], &[(KEY, "1")]);
        let reminder = Some((at(900), OnExpire::Remind));
        assert_eq!(timers.of(after.get(KEY).expect("a flag")), reminder);
        let said = Due::Say("timer of t by alice: still retry.max_attempts = 1".to_owned());
        assert_eq!(act(&timers, &after, 900), said);
        assert_eq!(act(&timers, &table(&[]), 900), Due::Nothing, "taken back already");
    }

    #[test]
    fn what_somebody_has_changed_since_is_left_alone() {
        let (timers, after) = carried(&["retry.max_attempts=3"], &[(KEY, "3")]);
        let changed = |change: fn(&mut FlagState)| {
            let mut table = after.clone();
            change(table.flags.iter_mut().find(|flag| flag.key == KEY).expect("a flag"));
            act(&timers, &table, 900)
        };
        let left = "timer of t by alice: retry.max_attempts was changed since, left as it is";
        for change in [
            (|flag| flag.overridden = Some(value(KEY, "4"))) as fn(&mut FlagState),
            |flag| flag.revision = Revision(42),
            |flag| flag.by = Some("carol".to_owned()),
            |flag| flag.at = Some(at(10)),
        ] {
            assert_eq!(changed(change), Due::Say(left.to_owned()));
        }
        assert_eq!(changed(|flag| flag.overridden = None), Due::Nothing);
        assert!(matches!(changed(|_| {}), Due::Revert(_)));
    }

    #[test]
    fn it_never_leads_away_from_safe_even_if_the_base_has_moved() {
        let (timers, mut after) = carried(&["retry.max_attempts=3"], &[(KEY, "3")]);
        let flag = after.flags.iter_mut().find(|flag| flag.key == KEY).expect("a flag");
        flag.base = value(KEY, "4");
        assert!(matches!(act(&timers, &after, 900), Due::Say(said) if said.contains("no safer")));
    }

    #[test]
    fn it_sets_the_override_before_again_where_the_base_is_no_safer() {
        const MODE: &str = "admission.mode";
        let off = |mode: &str| {
            let mut table = table(&[(MODE, mode)]);
            let flag = table.flags.iter_mut().find(|flag| flag.key == MODE).expect("a flag");
            flag.base = value(MODE, "off");
            table
        };
        let sent = |timers: &mut Timers, before: &str, to: &str, second: i64| {
            let terms = Terms { ttl_s: Some(TTL_S), request_id: to.to_owned(), ..Terms::default() };
            let wanted = wanted(&[format!("{MODE}={to}")]).expect("valid");
            let plan = plan("t", &off(before), &wanted, &Evidence::default(), terms);
            timers.on_sent(&plan.expect("a plan"), &author(), at(second));
            timers.on_table(&off(to));
        };
        let mut timers = Timers::default();
        sent(&mut timers, "enforce", "shadow", 0);
        sent(&mut timers, "shadow", "off", 10);
        let Due::Revert(back) = act(&timers, &off("off"), 910) else { panic!("it reverts") };
        assert_eq!((back.changes[0].to.to_string(), back.ttl_s), ("enforce".to_owned(), None));
        assert!(!back.changes[0].drops_override && !back.is_risky());
    }

    #[test]
    fn a_later_flip_of_the_same_flag_takes_the_timer_over() {
        let (mut timers, _) = carried(&["retry.max_attempts=3"], &[(KEY, "3")]);
        let (again, _) = flip(&["retry.max_attempts=4"], &[(KEY, "4")]);
        timers.on_sent(&again, &author(), at(600));
        assert!(timers.due(at(900)).is_none(), "the first one's time");
        assert!(timers.due(at(1_500)).is_some());
        let undo = Plan { ttl_s: None, ..again };
        timers.on_sent(&undo, &author(), at(700));
        assert!(timers.is_empty(), "nothing is left to go back");
    }

    #[test]
    fn a_try_that_failed_is_repeated_later_and_said_once() {
        let (mut timers, _) = carried(&["retry.max_attempts=3"], &[(KEY, "3")]);
        assert!(timers.on_failed(at(900)));
        assert!(timers.due(at(929)).is_none());
        assert!(timers.due(at(930)).is_some());
        assert!(!timers.on_failed(at(930)));
    }

    #[test]
    fn an_earlier_run_s_timer_is_told_by_value_and_time() {
        let event = FlagEvent {
            seq: 1,
            at: at(0),
            actor: "alice".to_owned(),
            reason: "trying".to_owned(),
            incident: None,
            request_id: Some("a".to_owned()),
            revision: Revision(40),
            kind: super::super::EventKind::Change,
            changes: vec![super::super::EventChange {
                key: KEY.to_owned(),
                base: value(KEY, "2"),
                from: None,
                to: Some(value(KEY, "3")),
            }],
            anchor: None,
            marks: super::super::Marks::default(),
        };
        let timed = Timed::of_event(&event, "t", Some(TTL_S), OnExpire::Revert).expect("a timer");
        let mut timers = Timers::default();
        timers.take_up(vec![timed]);
        let mut now = table(&[(KEY, "3")]);
        let revert = Some((at(900), OnExpire::Revert));
        assert_eq!(timers.of(now.get(KEY).expect("a flag")), revert);
        assert!(matches!(act(&timers, &now, 5_000), Due::Revert(_)), "overdue is due");
        now.flags.iter_mut().find(|flag| flag.key == KEY).expect("a flag").at = Some(at(3_000));
        assert!(matches!(act(&timers, &now, 5_000), Due::Say(_)), "set again since");
        assert_eq!(Timed::of_event(&event, "t", None, OnExpire::Revert), None);
    }
}
