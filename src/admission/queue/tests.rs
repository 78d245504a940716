//! The queue against its promises: nobody is lost, and precedence holds.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

mod shares;

const INTERACTIVE: Lane = Lane::Interactive;

fn id(number: u64) -> RequestId {
    RequestId::from_number(number)
}

fn at(second: u32) -> Mono {
    Mono::from_secs_f64(second.into())
}

fn ticket(number: u64, lane: Lane) -> Ticket {
    Ticket {
        request: id(number),
        lane,
        backfill: false,
        tenant: TenantId(0),
        weight: 1.0,
        arrived: Mono::START,
        deadline: at(10),
        tokens: 2.0,
    }
}

fn of_tenant(number: u64, tenant: u32, tokens: f64) -> Ticket {
    Ticket { tenant: TenantId(tenant), tokens, ..ticket(number, INTERACTIVE) }
}

fn head(queue: &Queue) -> Option<u64> {
    queue.head().map(|ticket| ticket.request.number())
}

/// Takes everything, in order.
fn drain(queue: &mut Queue) -> Vec<u64> {
    let next = || {
        let head = queue.head()?;
        queue.take(head.request).map(|ticket| ticket.request.number())
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn interactive_goes_before_batch_production_before_backfill_and_repeats_before_newcomers() {
    let mut queue = Queue::default();
    queue.push_back(Ticket { backfill: true, ..ticket(1, Lane::Batch) });
    queue.push_back(ticket(2, Lane::Batch));
    queue.push_back(ticket(3, INTERACTIVE));
    queue.push_back(ticket(4, INTERACTIVE));
    queue.push_front(ticket(5, INTERACTIVE));
    queue.push_front(ticket(6, INTERACTIVE));
    assert_eq!(queue.head_of(Lane::Batch).map(|it| it.request), Some(id(2)));
    assert_eq!(drain(&mut queue), [5, 6, 3, 4, 2, 1]);
}

#[test]
fn a_deadline_is_over_at_its_instant_and_not_before() {
    let mut queue = Queue::default();
    queue.push_back(ticket(1, Lane::Batch));
    assert_eq!(queue.next_deadline(), Some(at(10)));
    assert_eq!(queue.overdue(Mono::from_secs_f64(9.999)), None);
    assert_eq!(queue.overdue(at(10)), Some(id(1)));
    queue.redate(|_, arrived| arrived + Duration::from_secs(20));
    assert_eq!((queue.overdue(at(10)), queue.overdue(at(20))), (None, Some(id(1))));
}

#[test]
fn tenants_share_tokens_by_weight_and_not_requests() {
    let mut queue = Queue::default();
    for number in 1..=4 {
        queue.push_back(of_tenant(number, 1, 100.0));
    }
    for number in 11..=18 {
        queue.push_back(of_tenant(number, 2, 50.0));
    }
    for number in 21..=28 {
        queue.push_back(Ticket { weight: 2.0, ..of_tenant(number, 3, 100.0) });
    }
    let served = drain(&mut queue);
    let tokens = |range: std::ops::RangeInclusive<u64>, each: u32| {
        let requests = served[..10].iter().filter(|number| range.contains(number)).count();
        u32::try_from(requests).expect("ten at most") * each
    };
    assert_eq!([tokens(1..=4, 100), tokens(11..=18, 50), tokens(21..=28, 100)], [200, 200, 400]);
}

#[test]
fn a_tenant_that_comes_back_each_time_gets_no_more_than_its_share() {
    let mut queue = Queue::default();
    for number in 1..=50 {
        queue.push_back(of_tenant(number, 1, 10.0));
    }
    // One request at a time, so that it is forgotten after each.
    let mut its = 0;
    for number in 101..=140 {
        if queue.depth(INTERACTIVE) <= 50 && its < number - 100 {
            queue.push_back(of_tenant(number, 2, 10.0));
        }
        while let Some(head) =
            queue.head().filter(|_| queue.line(&ticket(0, INTERACTIVE)).tenants() == 2)
        {
            queue.take(head.request);
            its += u64::from(head.tenant == TenantId(2));
        }
    }
    let others = 50 - queue.depth(INTERACTIVE) as u64;
    assert!(its <= others + 1, "{its} beside {others}");
}

#[test]
fn the_newest_goes_first_while_the_lane_is_more_than_half_full() {
    let mut queue = Queue::default();
    let order = Order::NewestWhenHalfFull { depth_max: 4 };
    queue.set_policy(Policy { order, ..Policy::default() });
    for (number, expected) in [(1, 1), (2, 1), (3, 3), (4, 4)] {
        queue.push_back(ticket(number, INTERACTIVE));
        assert_eq!(head(&queue), Some(expected), "after {number}");
    }
    queue.push_front(ticket(5, INTERACTIVE));
    assert_eq!(drain(&mut queue), [5, 4, 3, 1, 2], "the repeat first, and half full is not more");
}

#[test]
fn nonsense_is_brought_into_bounds_and_starves_nobody() {
    let mut queue = Queue::default();
    for (number, tokens, weight) in
        [(1, f64::NAN, f64::NAN), (2, f64::INFINITY, 0.0), (3, -1.0, f64::INFINITY), (4, 0.0, -1.0)]
    {
        queue.push_back(Ticket { weight, ..of_tenant(number, 1, tokens) });
        queue.push_back(of_tenant(10 + number, 2, 100.0));
    }
    assert!(queue.tokens(INTERACTIVE).is_finite());
    assert_eq!(drain(&mut queue).len(), 8);
}

#[derive(Clone, Debug)]
enum Step {
    Push { lane: u8, tenant: u32, tokens: u32, weight: u32, again: bool, patience: u32 },
    Take,
    TakeOf(u8),
    Remove(usize),
    Expire(u32),
}

fn push() -> impl Strategy<Value = Step> {
    (0u8..3, 0u32..5, 1u32..1_000, 1u32..4, prop::bool::weighted(0.2), 1u32..60).prop_map(
        |(lane, tenant, tokens, weight, again, patience)| Step::Push {
            lane,
            tenant,
            tokens,
            weight,
            again,
            patience,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => push(),
        2 => Just(Step::Take),
        1 => (0u8..2).prop_map(Step::TakeOf),
        1 => (0usize..50).prop_map(Step::Remove),
        1 => (0u32..5).prop_map(Step::Expire),
    ];
    prop::collection::vec(step, 1..200)
}

fn policy() -> impl Strategy<Value = Policy> {
    let share = || prop_oneof![Just(0.0), 0.0..0.6f64];
    let order = prop_oneof![
        Just(Order::OldestFirst),
        (1usize..30).prop_map(|depth_max| Order::NewestWhenHalfFull { depth_max })
    ];
    (share(), share(), order).prop_map(|(batch_share, backfill_share, order)| Policy {
        batch_share,
        backfill_share,
        order,
    })
}

fn made(number: u64, now: u32, step: &Step) -> Option<(Ticket, bool)> {
    let Step::Push { lane, tenant, tokens, weight, again, patience } = *step else { return None };
    let made = Ticket {
        request: id(number),
        lane: Lane::ALL[usize::from(lane > 0)],
        backfill: lane == 2,
        tenant: TenantId(tenant),
        weight: weight.into(),
        arrived: at(now),
        deadline: at(now + patience),
        tokens: tokens.into(),
    };
    Some((made, again))
}

proptest! {
    #[test]
    fn each_ticket_leaves_exactly_once_and_sums_are_those_of_what_waits(
        policy in policy(),
        steps in steps(),
    ) {
        let mut queue = Queue::default();
        queue.set_policy(policy);
        let mut inside: Vec<Ticket> = Vec::new();
        let mut now = 0;
        for (number, step) in (1..).zip(&steps) {
            let before = queue.head();
            let left: Vec<RequestId> = match step {
                Step::Push { .. } => {
                    let (ticket, again) = made(number, now, step).expect("a push");
                    inside.push(ticket);
                    if again { queue.push_front(ticket) } else { queue.push_back(ticket) }
                    vec![]
                }
                Step::Take => before.into_iter().map(|it| it.request).collect(),
                Step::TakeOf(lane) => {
                    let head = queue.head_of(Lane::ALL[usize::from(*lane)]);
                    head.into_iter().map(|it| it.request).collect()
                }
                Step::Remove(nth) => inside.get(*nth).map(|it| it.request).into_iter().collect(),
                Step::Expire(seconds) => {
                    now += seconds;
                    let mut due = Vec::new();
                    while let Some(request) = queue.overdue(at(now)) {
                        prop_assert!(queue.remove(request).is_some_and(|it| it.deadline <= at(now)));
                        due.push(request);
                    }
                    prop_assert!(queue.next_deadline().is_none_or(|next| next > at(now)));
                    prop_assert_eq!(due.len(), inside.iter().filter(|it| it.deadline <= at(now)).count());
                    inside.retain(|it| !due.contains(&it.request));
                    vec![]
                }
            };
            for request in left {
                let place = inside.iter().position(|it| it.request == request);
                let expected = inside.remove(place.expect("only what waits can leave"));
                let taken = matches!(step, Step::Take | Step::TakeOf(_));
                let gone = if taken { queue.take(request) } else { queue.remove(request) };
                prop_assert_eq!(gone, Some(expected));
                prop_assert_eq!(queue.remove(request), None);
                let is_strict = policy.batch_share <= 0.0 && policy.backfill_share <= 0.0;
                if !taken && is_strict && before.is_some_and(|it| it.request != request) {
                    prop_assert_eq!(queue.head(), before, "a removal elsewhere moves nobody");
                }
            }
            prop_assert_eq!(queue.len(), inside.len());
            for lane in Lane::ALL {
                let here = || inside.iter().filter(|it| it.lane == lane);
                prop_assert_eq!(queue.depth(lane), here().count());
                prop_assert!((queue.tokens(lane) - here().map(|it| it.tokens).sum::<f64>()).abs() < 1e-6);
                let oldest = here().map(|it| it.arrived).min();
                prop_assert_eq!(queue.oldest_age(lane, at(now)), oldest.map(|since| at(now).saturating_since(since)));
            }
            let mut tenants: Vec<_> = inside.iter().filter(|it| it.lane == INTERACTIVE).map(|it| it.tenant).collect();
            tenants.sort_unstable();
            tenants.dedup();
            prop_assert_eq!(queue.interactive.tenants(), tenants.len(), "idle tenants are forgotten");
        }
        let mut rest = drain(&mut queue);
        rest.sort_unstable();
        let mut expected: Vec<_> = inside.iter().map(|it| it.request.number()).collect();
        expected.sort_unstable();
        prop_assert_eq!(rest, expected);
    }

    #[test]
    fn without_shares_nothing_overtakes_a_line_above_its_own(steps in steps()) {
        let mut queue = Queue::default();
        for (number, step) in (1..).zip(&steps) {
            if let Some((ticket, _)) = made(number, 0, step) {
                queue.push_back(ticket);
            } else if let Some(head) = queue.head() {
                prop_assert!(head.lane == INTERACTIVE || queue.depth(INTERACTIVE) == 0);
                prop_assert!(!head.backfill || queue.production.is_empty());
                queue.take(head.request);
            }
        }
    }

    #[test]
    fn one_tenants_order_survives_any_removal(
        pushes in prop::collection::vec(any::<bool>(), 1..80),
        removals in prop::collection::vec(1u64..80, 0..80),
    ) {
        let mut queue = Queue::default();
        let (mut repeats, mut model) = (VecDeque::new(), VecDeque::new());
        for (number, again) in (1..).zip(pushes) {
            let ticket = ticket(number, INTERACTIVE);
            if again { queue.push_front(ticket) } else { queue.push_back(ticket) }
            if again { repeats.push_back(number) } else { model.push_back(number) }
        }
        repeats.append(&mut model);
        for number in removals {
            queue.remove(id(number));
            repeats.retain(|other| *other != number);
        }
        prop_assert_eq!(drain(&mut queue), Vec::from(repeats));
    }
}
