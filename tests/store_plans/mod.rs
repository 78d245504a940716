//! Plans and people for the tests of flag stores.

use weir::flag::{self, Author, Evidence, FlagTable, Plan, Terms};

pub fn author(actor: &str) -> Author {
    Author {
        actor: actor.to_owned(),
        incident: Some("INC-42".to_owned()),
        anchor: Some(format!("journal of {actor}:7:hash")),
    }
}

/// A plan of these changes, under a new request id.
pub fn plan(table: &FlagTable, words: &[&str]) -> Plan {
    timed(table, words, None)
}

/// The same with a timer of so many seconds.
pub fn timed(table: &FlagTable, words: &[&str], ttl_s: Option<u64>) -> Plan {
    let request_id = uuid::Uuid::new_v4().to_string();
    let terms = Terms { reason: Some("storm".to_owned()), ttl_s, request_id };
    let changes = flag::wanted(words).expect("a test names real flags");
    flag::plan("t", table, &changes, &Evidence::default(), terms).expect("a plan")
}

/// The stored value of a flag, as shown.
pub fn stored(table: &FlagTable, key: &str) -> String {
    table.get(key).expect("flag of the table").stored().to_string()
}
