#!/usr/bin/env bash
# Kills gateways at random moments while they drain the deferred lane: with a file, then two on one Redis.
# Prints what was stored, answered, and sent twice; fails where anything is lost, or more was sent twice
# than was in hand at the kills.
#
#   bash tests/bench/deferred_kill.sh [ITEMS]      10,000 items take some five minutes with each store
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
WEIR_KILL_ITEMS=${1:-10000} bash tests/run.sh --test deferred -- --ignored --nocapture --test-threads 1 a_long_run
