#!/usr/bin/env bash
# What the dashboard costs: first frame, processor, memory, bytes written, key to paint; beside btop, htop,
# and bottom and grafatui where they are on PATH. In pseudo terminals of 200 x 50, all in one run.
#
#     cargo build --release --bin weir --example fetching
#     WEIR=target/release/weir tests/bench/screen.sh [SECONDS]
#
# weir watches 20 sources of 1,000 series each, whose numbers change every second. What it costs to fetch
# those pages and throw them away, and what Prometheus (PROMETHEUS, or on PATH) takes for them, is
# measured beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

WEIR=$(realpath "${WEIR:-target/release/weir}") exec python3 tests/bench/screen.py "${1:-30}"
