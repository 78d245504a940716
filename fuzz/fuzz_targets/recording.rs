//! No file makes the reader of recordings panic or read more than a frame may hold; what it says of a
//! file is the same each time. Half of the inputs are lines, put into good frames, so that the fuzzer is
//! not stopped by hashes.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use weir::diagnosis::Library;
use weir::incident::recording::{Replay, framed};
use weir::runbook;

static LIBRARY: LazyLock<Arc<Library>> = LazyLock::new(runbook::embedded);
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("weir-fuzz-{}.weir", std::process::id())));

/// How many looks can be played, or why not.
fn played() -> Result<usize, String> {
    let said = |error: weir::incident::recording::RecordingError| error.to_string();
    let mut replay = Replay::open(&FILE, Arc::clone(&LIBRARY)).map_err(said)?;
    let (first, last) = replay.span().map_err(said)?;
    replay.seek(last).map_err(said)?;
    replay.seek(first).map_err(said)?;
    let mut looks = 1;
    while replay.step().map_err(said)?.is_some() {
        looks += 1;
    }
    Ok(looks)
}

fuzz_target!(|bytes: &[u8]| {
    let file = match bytes.split_first() {
        Some((0, lines)) => framed(lines),
        _ => bytes.to_vec(),
    };
    std::fs::write(&*FILE, file).expect("a temporary file");
    assert_eq!(played(), played());
});
