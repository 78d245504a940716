//! What tenants and lanes get beside each other, and what a newcomer is told to wait for.

use proptest::prelude::*;

use super::*;

#[test]
fn what_is_ahead_of_a_newcomer_is_its_own_and_as_much_of_the_others() {
    let mut queue = Queue::default();
    for number in 1..=10 {
        queue.push_back(of_tenant(number, 1, 100.0));
    }
    for number in 11..=12 {
        queue.push_back(of_tenant(number, 2, 100.0));
    }
    let ahead = |newcomer| {
        let Ahead { requests, tokens } = queue.ahead(&newcomer);
        (requests, tokens)
    };
    assert_eq!(ahead(of_tenant(99, 3, 100.0)), (2.0, 200.0), "a head of each");
    assert_eq!(ahead(of_tenant(99, 2, 100.0)), (5.0, 500.0), "two of its own, three beside them");
    assert_eq!(ahead(of_tenant(99, 1, 100.0)), (12.0, 1_200.0), "all");
    assert_eq!(ahead(ticket(99, Lane::Batch)), (12.0, 1_200.0), "all of the lane above");
}

#[test]
fn a_crowd_of_tenants_is_estimated_together() {
    let mut queue = Queue::default();
    for number in 0..3_000 {
        queue.push_back(of_tenant(number, u32::try_from(number % 1_000).expect("small"), 100.0));
    }
    let one = queue.ahead(&of_tenant(9_999, 5_000, 100.0));
    assert!((one.requests - 1_000.0).abs() < 1.0, "{one:?}");
    let own = queue.ahead(&of_tenant(9_999, 5, 100.0));
    assert!((own.requests - 3_000.0).abs() < 1.0, "{own:?}");
}

/// A queue with a quarter for batch, many interactive requests and a few of batch, 100 tokens each.
fn with_a_quarter() -> Queue {
    let mut queue = Queue::default();
    queue.set_policy(Policy { batch_share: 0.25, ..Policy::default() });
    for number in 1..=20 {
        queue.push_back(of_tenant(number, 1, 100.0));
    }
    for number in 101..=105 {
        queue.push_back(Ticket { tokens: 100.0, ..ticket(number, Lane::Batch) });
    }
    queue
}

fn is_batch(served: &[u64]) -> Vec<bool> {
    served.iter().map(|number| *number > 100).collect()
}

#[test]
fn nothing_is_saved_up_while_nobody_waits() {
    let mut queue = with_a_quarter();
    for _ in 0..2 {
        queue.head().and_then(|head| queue.take(head.request));
    }
    for number in 101..=105 {
        queue.remove(id(number));
    }
    queue.push_back(Ticket { tokens: 100.0, ..ticket(106, Lane::Batch) });
    assert_eq!(is_batch(&drain(&mut queue)[..4]), [false, false, false, true]);
}

#[test]
fn what_was_due_and_could_not_start_is_not_owed_twice() {
    let mut queue = with_a_quarter();
    for _ in 0..10 {
        queue.head_of(INTERACTIVE).and_then(|head| queue.take(head.request));
    }
    let next = is_batch(&drain(&mut queue)[..8]);
    assert_eq!(next, [true, false, false, true, false, false, false, true]);
}

proptest! {
    /// Tenants 0 and 1 wait all through; 2 to 4 come and go; requests are cancelled and come again.
    #[test]
    fn two_tenants_that_wait_differ_by_no_more_than_a_request_each_in_any_interval(
        weights in prop::array::uniform2(1u32..6),
        steps in steps(),
    ) {
        let mut queue = Queue::default();
        let weights = weights.map(f64::from);
        let mut largest = [0.0f64; 2];
        let (mut served, mut least, mut most) = ([0.0f64; 2], 0.0f64, 0.0f64);
        let mut repeats = Vec::new();
        for (number, step) in (1..).zip(&steps) {
            // The two never run dry.
            for tenant in 0..2u32 {
                let which = tenant as usize;
                let tokens = f64::from(u32::try_from(number * 7_919 % 997).expect("small") + 1);
                largest[which] = largest[which].max(tokens);
                let number = 1_000 + 2 * number + u64::from(tenant);
                queue.push_back(Ticket { weight: weights[which], ..of_tenant(number, tenant, tokens) });
            }
            match (made(number, 0, step), step) {
                (Some((ticket, again)), _) => {
                    let known = weights.get(ticket.tenant.0 as usize).copied();
                    let ticket = Ticket { lane: INTERACTIVE, weight: known.unwrap_or(ticket.weight), ..ticket };
                    let which = ticket.tenant.0 as usize;
                    if again {
                        repeats.push(ticket.request);
                        queue.push_front(ticket);
                    } else {
                        if which < 2 { largest[which] = largest[which].max(ticket.tokens); }
                        queue.push_back(ticket);
                    }
                }
                (None, Step::Remove(nth)) => {
                    let gone = queue.all().get(*nth).copied();
                    // Never the last of the two.
                    let may = gone.filter(|_| queue.len() > 20);
                    may.and_then(|request| queue.remove(request));
                }
                (None, _) => {}
            }
            let Some(head) = queue.head() else { continue };
            queue.take(head.request);
            if head.tenant.0 < 2 && !repeats.contains(&head.request) {
                let which = head.tenant.0 as usize;
                served[which] += head.tokens / weights[which];
                let apart = served[0] - served[1];
                (least, most) = (least.min(apart), most.max(apart));
            }
        }
        let bound = largest[0] / weights[0] + largest[1] / weights[1];
        prop_assert!(most - least <= bound + 1e-6, "{} apart, {bound} allowed", most - least);
    }

    #[test]
    fn before_a_newcomer_no_tenant_gets_more_than_its_bound(
        crowd in prop::collection::vec((1u32..1_000, 1u32..6), 1..20),
        warm_up in 0usize..60,
        tokens in 1u32..1_000,
        weight in 1u32..6,
    ) {
        let mut queue = Queue::default();
        let mut numbers = 1..;
        let mut refill = |queue: &mut Queue, tenant: usize| {
            let (tokens, weight) = crowd[tenant];
            let number = numbers.next().expect("without end");
            let tenant = u32::try_from(tenant).expect("small");
            queue.push_back(Ticket { weight: weight.into(), ..of_tenant(number, tenant, tokens.into()) });
        };
        for tenant in (0..crowd.len()).chain(0..crowd.len()) {
            refill(&mut queue, tenant);
        }
        for _ in 0..warm_up {
            let head = queue.head().expect("they always wait");
            queue.take(head.request);
            refill(&mut queue, head.tenant.0 as usize);
        }
        let (tokens, weight) = (f64::from(tokens), f64::from(weight));
        queue.push_back(Ticket { weight, ..of_tenant(1_000_000, 1_000, tokens) });
        let mut served = vec![0.0; crowd.len()];
        while let Some(head) = queue.head().filter(|head| head.tenant != TenantId(1_000)) {
            queue.take(head.request);
            let tenant = head.tenant.0 as usize;
            served[tenant] += head.tokens;
            refill(&mut queue, tenant);
            let (size, its_weight) = crowd[tenant];
            let bound = f64::from(its_weight) * tokens / weight + f64::from(size);
            prop_assert!(served[tenant] <= bound + 1e-6, "{} of {bound}", served[tenant]);
        }
    }

    /// Interactive and batch work both wait all through.
    #[test]
    fn a_trickle_gets_its_share_in_any_interval_and_nothing_in_advance(
        share in 0.01..0.5f64,
        sizes in prop::collection::vec((1u32..1_000, 1u32..1_000), 1..200),
        backfill in any::<bool>(),
    ) {
        let mut queue = Queue::default();
        let policy = if backfill {
            Policy { backfill_share: share, ..Policy::default() }
        } else {
            Policy { batch_share: share, ..Policy::default() }
        };
        queue.set_policy(policy);
        let (mut due, mut least, mut most) = (0.0f64, 0.0f64, 0.0f64);
        for (number, (upper, lower)) in (1..).zip(&sizes) {
            let upper = Ticket { tokens: f64::from(*upper), ..ticket(2 * number, INTERACTIVE) };
            let lower = Ticket { tokens: f64::from(*lower), ..ticket(2 * number + 1, Lane::Batch) };
            queue.push_back(if backfill { Ticket { lane: Lane::Batch, ..upper } } else { upper });
            queue.push_back(Ticket { backfill, ..lower });
            let head = queue.head().expect("two were pushed");
            queue.take(head.request);
            let is_lower = head.request.number() % 2 == 1;
            due += share * head.tokens - if is_lower { head.tokens } else { 0.0 };
            prop_assert!(due >= -1e-6, "in advance: {due}");
            (least, most) = (least.min(due), most.max(due));
        }
        prop_assert!(most - least <= 1_000.0 + 1e-6, "{}", most - least);
    }

    /// The estimate is of a fluid; requests are whole.
    #[test]
    fn what_is_ahead_is_right_to_a_request_per_tenant(
        steps in prop::collection::vec(push(), 0..150),
        taken in 0usize..40,
        newcomer in push(),
        shares in prop::sample::select(vec![(0.0, 0.0), (0.25, 0.0), (0.1, 0.4)]),
    ) {
        let mut queue = Queue::default();
        let policy = Policy { batch_share: shares.0, backfill_share: shares.1, ..Policy::default() };
        queue.set_policy(policy);
        for (number, step) in (1..).zip(&steps) {
            let (ticket, _) = made(number, 0, step).expect("a push");
            queue.push_back(Ticket { weight: f64::from(ticket.tenant.0) + 1.0, ..ticket });
        }
        for _ in 0..taken {
            queue.head().and_then(|head| queue.take(head.request));
        }
        let (newcomer, _) = made(10_000, 0, &newcomer).expect("a push");
        let newcomer = Ticket { weight: f64::from(newcomer.tenant.0) + 1.0, ..newcomer };
        let estimate = queue.ahead(&newcomer);
        queue.push_back(newcomer);
        let mut before = 0.0;
        while let Some(head) = queue.head().filter(|head| head.request != newcomer.request) {
            before += head.tokens;
            queue.take(head.request);
        }
        // Five tenants in a line, of up to 1,000 tokens; a share in lanes multiplies what is off.
        let off = 5_000.0 * if shares.0 > 0.0 { 1.0 / shares.0 } else { 1.0 };
        prop_assert!((estimate.tokens - before).abs() <= off, "{estimate:?} for {before}");
    }
}
