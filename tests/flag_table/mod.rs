//! The flags of one instance as a store shows them, for fakes of a store.

use std::collections::BTreeMap;

use weir::admission::{FLAGS, Settings};
use weir::flag::{FlagState, FlagTable, Revision};

/// The revision that every such table begins with.
pub const REVISION: Revision = Revision(41);

/// All flags without overrides, based on these settings.
pub fn table(settings: &Settings) -> FlagTable {
    let flags = FLAGS.iter().map(|def| {
        let base = settings.get(def.key).expect("flag of the table");
        FlagState {
            key: def.key.to_owned(),
            safe: def.safe_value(&base),
            effective: BTreeMap::from([("gw-1".to_owned(), base.clone())]),
            base,
            overridden: None,
            revision: Revision(0),
            by: None,
            at: None,
            expires: None,
            on_expire: None,
        }
    });
    FlagTable { revision: REVISION, flags: flags.collect() }
}
