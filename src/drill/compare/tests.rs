//! The comparison as the design wants it, and its judgement on bins that are made by hand.

use super::*;

fn bin(originals: u64, served_at_first: u64, attempts: u64, attempted: Option<u64>) -> Counted {
    Counted { originals, served_at_first, attempts, attempted, ..Counted::default() }
}

fn surge(to_s: u64, total_s: u64) -> Surge {
    Surge {
        from: Duration::ZERO,
        steady_from: Duration::ZERO,
        to: Duration::from_secs(to_s),
        total: Duration::from_secs(total_s),
    }
}

#[test]
fn recovery_is_the_first_bin_that_no_sick_one_follows() {
    let well = bin(100, 99, 105, Some(100));
    let check = |after: [&Counted; 3], expected_s: Option<u64>| {
        let mut bins = vec![bin(100, 0, 900, Some(100)); 2];
        bins.extend(after.into_iter().cloned());
        let found = recovery(&bins, &surge(10, 25));
        assert_eq!(found, expected_s.map(Duration::from_secs), "{after:?}");
    };
    check([&well, &well, &well], Some(0));
    check([&well, &bin(100, 98, 100, Some(100)), &well], Some(10));
    check([&bin(100, 99, 106, Some(100)), &well, &well], Some(5));
    check([&well, &well, &bin(100, 98, 100, Some(100))], None);
    check([&well, &well, &bin(100, 100, 100, None)], None);
    check([&bin(0, 0, 0, Some(0)), &well, &well], Some(0));
}

#[test]
fn every_control_is_compared_and_full_admission_is_what_was_promised() {
    let scenario = Scenario::load("launch-0900").expect("it ships");
    let comparison = run(&scenario, 1, None).expect("it has a surge");
    let row = |name: &str| {
        comparison.controls.iter().find(|row| row.control == name).expect("one of the five")
    };
    let (none, full) = (row("no-control"), row("full-admission"));
    assert!(none.amplification.is_some_and(|factor| factor > 5.0), "{none:?}");
    assert!(full.goodput_share.is_some_and(|share| share >= 0.97), "{full:?}");
    assert!(full.amplification.is_some_and(|factor| factor <= 1.05), "{full:?}");
    assert!(full.recovery_s.is_some_and(|after_s| after_s <= 120.0), "{full:?}");
    assert!(full.oscillation.is_some_and(|share| share <= 0.05), "{full:?}");
    for (shed, is_shed) in [("no-control", false), ("backoff-only", false), ("budget-only", true)] {
        assert_eq!(row(shed).shed_share.is_some_and(|share| share > 0.0), is_shed, "{shed}");
    }
}
