//! Every shipped scenario shows what its file says, from one seed. `weir drill --check --all --seeds 20`
//! plays more of them, and says what diagnosis makes of each.

use std::collections::BTreeSet;

use weir::drill::checks;
use weir::drill::scenario::{Scenario, names};
use weir::runbook;

fn shipped() -> Vec<Scenario> {
    let load = |name| Scenario::load(name).expect("a shipped scenario is right");
    names().map(load).collect()
}

#[test]
fn every_scenario_shows_what_its_file_says() {
    let checked = checks::run(&shipped(), &[20], &runbook::embedded()).expect("flags take values");
    let broken: Vec<_> = checked.iter().filter(|checked| !checked.passed).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_cause_is_staged() {
    let staged: BTreeSet<_> = shipped().into_iter().map(|scenario| scenario.expect.cause).collect();
    let library = runbook::embedded();
    let causes = library.books().filter(|book| book.cause.is_some()).map(|book| &book.id);
    let missing: Vec<_> = causes.filter(|cause| !staged.contains(*cause)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
