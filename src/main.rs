//! The binary: hands the command line to `weir::cli` and turns its answer into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main()
}
