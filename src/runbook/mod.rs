//! Runbook files: reads them into diagnosis' tree, judges them, and walks one incident along them.
//! Flips no flag itself; the walk does no I/O and reads no clock.

mod blocks;
mod check;
mod coverage;
mod exits;
mod format;
mod judge;
mod lint;
mod load;
mod mutants;
mod mutate;
mod pin;
mod problem;
mod read;
mod series;
mod sheet;
mod suite;
mod trace;
mod values;
mod walk;

pub use check::{Failure, Open, Run};
pub use coverage::{Coverage, Exit};
pub use exits::is_open_answer;
pub use lint::{lint, unfit};
pub use load::{
    LoadError, ROLLBACK, SHIPPED, SUFFIX, assemble, embedded, files_of, load_dir, read_all,
    read_file,
};
pub use mutate::{Mutation, Survivor, lint_thresholds, mutate, unusable_tests};
pub use problem::{Problem, Severity};
pub use read::{MAX_FILE_BYTES, read};
pub use sheet::Sheet;
pub use suite::TestFile;
pub use trace::Way;
pub use walk::{
    Fork, Frozen, HandOver, How, MAX_WALK_BYTES, Offer, Stuck, View, Walk, WalkFileError, Why,
};
