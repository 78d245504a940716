//! Properties of the admission gate in random worlds: any traffic, any failures, people who leave and
//! deadlines that come, on the virtual clock.
//!
//! A spy stands between the world and the gate and writes down what passes; the provider's own meters
//! and ledger are the second witness.

mod random_world;

use std::time::Duration;

use proptest::prelude::*;

use random_world::{Charge, Plan, Run, WINDOW, crowded, plans};
use weir::admission::{RetryOwner, ScopeConfig, Semantics};
use weir::dialect::Meter;
use weir::signal::Tokens;
use weir::sim::arrivals::Lane;

/// Cases of each property: together they run in seconds, unoptimized.
const CASES: u32 = 32;
/// A share of what is due that counts as served: arrivals are random, and the first second is lost.
const FAIR_ENOUGH: f64 = 0.8;
/// Rounding that is no excess.
const SLACK: f64 = 1e-6;

fn some() -> ProptestConfig {
    ProptestConfig { cases: CASES, ..ProptestConfig::default() }
}

/// What of a charge one meter counts.
fn amount(charge: &Charge, meter: Meter) -> f64 {
    match meter {
        Meter::Tokens => charge.tokens.as_f64(),
        _ => 1.0,
    }
}

/// The most of one meter in any window of this length, and how many charges that were. What is larger
/// than a window alone may pass alone, so single charges are left out.
fn most_in_any(charges: &[Charge], meter: Meter, window: Duration) -> f64 {
    let mut oldest = 0;
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for (newest, charge) in charges.iter().enumerate() {
        sum += amount(charge, meter);
        while charges[oldest].at + window <= charge.at {
            sum -= amount(&charges[oldest], meter);
            oldest += 1;
        }
        if newest > oldest {
            most = most.max(sum);
        }
    }
    most
}

fn hold_no_meter_above_its_quota(plan: &Plan, run: &Run) -> Result<(), TestCaseError> {
    let charges = run.charges();
    if plan.semantics == Semantics::TokenBucket {
        // The provider's own bucket is the judge; it started full and never had to refuse.
        prop_assert_eq!(run.spy().throttled, 0);
    } else {
        let scope = ScopeConfig::named("for its slices");
        for window in scope.slices.iter().copied().chain([WINDOW]) {
            let share = window.as_secs_f64() / WINDOW.as_secs_f64();
            for (meter, quota) in [(Meter::Requests, plan.rpm()), (Meter::Tokens, plan.tpm())] {
                let most = most_in_any(&charges, meter, window);
                let limit = quota * share;
                prop_assert!(most <= limit + SLACK, "{most} {meter:?} of {limit} in {window:?}");
            }
        }
    }
    if let Some(rpd) = plan.rpd {
        let used = Tokens(charges.len() as u64).as_f64();
        prop_assert!(used <= rpd, "{used} of {rpd} in the day");
    }
    Ok(())
}

fn hold_everything_returns(run: &mut Run) -> Result<(), TestCaseError> {
    prop_assert!(run.is_drained, "something never ended");
    prop_assert_eq!(run.spy().open(), 0, "every request ends");
    prop_assert_eq!(run.world.provider().in_flight(), 0);
    let counts = run.world.counts();
    prop_assert_eq!(counts.originals, counts.served + counts.failed);
    let gate = run.spy().gate.gate();
    let scope = &gate.scopes()[0];
    prop_assert_eq!(gate.open_requests(), 0);
    prop_assert_eq!(scope.in_flight(), 0, "every permit is back");
    prop_assert_eq!(scope.queue().len(), 0, "every place is free");
    let counters = scope.counters();
    let offered = counters.offered.total();
    let ended = counters.shed.total()
        + counters.expired.total()
        + counters.cancelled.total()
        + counters.completed.total();
    prop_assert_eq!(offered, ended, "every request is counted once at its end");
    // A window later nothing is reserved or used any more.
    let later = run.world.now() + 2 * WINDOW;
    for meter in scope.budget().meters().iter().filter(|meter| meter.limit().window <= WINDOW) {
        let (left, limit) = (meter.left(later), meter.limit().amount);
        prop_assert!(left >= limit - SLACK * limit.max(1.0), "{left} of {:?}", meter.limit());
    }
    Ok(())
}

fn hold_retries_within_their_budget(plan: &Plan, run: &Run) -> Result<(), TestCaseError> {
    const BUDGET_WINDOW_S: usize = 10;
    let counters = run.spy().gate.gate().scopes()[0].counters();
    if plan.settings.retry_owner == RetryOwner::Gateway {
        let used = run.spy().gate.gate().scopes()[0].retries_used();
        prop_assert!(counters.attempts_retry <= used, "{} of {used}", counters.attempts_retry);
    } else {
        prop_assert_eq!(counters.gate_retries, 0);
    }
    let is_spent_in = |place: usize| {
        let before = place.checked_sub(1).map_or(0, |before| run.seconds[before].retries_used);
        run.seconds[place].retries_used > before
    };
    // The budget looks back from each retry: from the last one of each second that has any.
    for (place, end) in run.seconds.iter().enumerate().filter(|(place, _)| is_spent_in(*place)) {
        let start = place.checked_sub(BUDGET_WINDOW_S).and_then(|before| run.seconds.get(before));
        let since = |read: fn(&random_world::Second) -> u64| {
            Tokens(read(end) - start.map_or(0, read)).as_f64()
        };
        let (admitted, retries) = (since(|at| at.admitted), since(|at| at.retries_used));
        let budget = admitted * plan.settings.retry_budget_ratio + 1.0;
        prop_assert!(retries <= budget + SLACK, "{retries} retries of {budget} up to {place} s");
    }
    Ok(())
}

/// Tokens served to those for whom `of` is true.
fn served(run: &Run, of: impl Fn(&Charge) -> bool) -> f64 {
    run.spy().charges.iter().filter(|charge| of(charge)).map(|charge| charge.tokens.as_f64()).sum()
}

/// Tokens of the originals of one lane that arrived.
fn offered(run: &Run, lane: Lane) -> f64 {
    run.spy().offered.iter().filter(|((_, of), _)| *of == lane).map(|(_, tokens)| tokens).sum()
}

proptest! {
    #![proptest_config(some())]

    #[test]
    fn in_any_world_the_gate_keeps_its_promises(plan in plans()) {
        let mut run = plan.play();
        prop_assert_eq!(&run.spy().breaches, &[""; 0]);
        let most = plan.settings.max_in_flight as usize;
        prop_assert!(run.spy().open_max <= most, "{} of {most} permits", run.spy().open_max);
        hold_no_meter_above_its_quota(&plan, &run)?;
        hold_retries_within_their_budget(&plan, &run)?;
        hold_everything_returns(&mut run)?;
    }

    #[test]
    fn whoever_asks_for_less_than_an_equal_share_is_served_and_the_rest_share_alike(
        plan in crowded(),
    ) {
        let run = Plan { batch_ratio: 0.0, ..plan }.play();
        let tenants = run.spy().offered.len();
        let equal = served(&run, |_| true) / Tokens(tenants as u64).as_f64();
        for ((tenant, _), offered) in &run.spy().offered {
            let got = served(&run, |charge| charge.tenant == *tenant);
            let due = offered.min(equal) * FAIR_ENOUGH;
            prop_assert!(got >= due, "tenant {tenant} got {got} of {due} that are due");
        }
    }

    #[test]
    fn people_are_served_first_and_batch_work_gets_what_is_left(plan in crowded()) {
        // People ask for about half of what there is, batch work for more than the other half.
        let plan = Plan { batch_ratio: 1.0 - 0.5 / plan.load, ..plan };
        let run = plan.play();
        let interactive = served(&run, |charge| charge.lane == Lane::Interactive);
        let asked = offered(&run, Lane::Interactive);
        // Few arrivals are far from their mean now and then: what is due to people is what they ask for,
        // up to that half and a bit.
        let half = 0.6 * served(&run, |_| true);
        let due = asked.min(half) * 0.9;
        prop_assert!(interactive >= due, "people got {interactive} of {asked}, {due} are due");
        let batch = served(&run, |charge| charge.lane == Lane::Batch);
        let is_left = asked <= half;
        prop_assert!(!is_left || batch >= interactive * 0.3, "batch got {batch} of {interactive}");
    }
}
