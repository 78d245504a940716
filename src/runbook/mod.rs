//! Runbook files: reads them into diagnosis' tree, judges them, and walks one incident along them.
//! Flips no flag itself; the walk does no I/O and reads no clock.

mod blocks;
mod check;
mod format;
mod lint;
mod load;
mod problem;
mod read;
mod series;
mod walk;

pub use check::{Failure, TestFile};
pub use lint::lint;
pub use load::{
    LoadError, SHIPPED, SUFFIX, assemble, embedded, files_of, load_dir, read_all, read_file,
};
pub use problem::{Problem, Severity};
pub use read::{MAX_FILE_BYTES, Sheet, read};
pub use walk::{
    Fork, Frozen, HandOver, How, MAX_WALK_BYTES, Offer, Stuck, View, Walk, WalkFileError, Why,
};
