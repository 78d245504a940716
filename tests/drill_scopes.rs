//! A drill of two quota scopes with callers of every sort, with real processes and real sockets, held
//! against the virtual clock and the providers' ledger.

mod drill_support;

use std::path::Path;

use drill_support::{assert_between, assert_ledger_agrees, drill, number, phases};

/// Counts that the live and the virtual run must agree on.
const COUNTS: [&str; 4] = ["originals", "attempts", "admitted", "provider_429"];

#[test]
fn several_scopes_and_callers_do_the_same_live_and_on_paper() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/two-scopes.toml");
    let scenario = scenario.to_str().expect("a UTF-8 path");
    let live = drill(&["--headless", scenario]);
    let on_paper = drill(&["--virtual", scenario]);
    assert_ledger_agrees(&live);
    assert_ledger_agrees(&on_paper);
    for (real, simulated) in phases(&live).iter().zip(phases(&on_paper)) {
        for key in COUNTS {
            let (real, simulated) = (number(real, key), number(simulated, key));
            // Of a handful, one more or less is no disagreement.
            let slack = (simulated * 0.1).max(25.0);
            assert_between(key, real, simulated - slack, simulated + slack);
        }
    }
}
