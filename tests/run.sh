#!/usr/bin/env bash
# Installs what tests need beside a Rust toolchain, by name, and runs them. From anywhere.
#
# Tests run in the debug profile: dependencies are at opt-level 3 and weir itself at 1 there, which
# is fast enough for the live drills, and a release build would compile every dependency a second
# time with nothing new to find. Whatever measures speed builds its own release binary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)

# Prometheus' own checker, for the test that compares rates with it, and Prometheus itself, for the
# tests of the road through it. Unpacked, not installed: installing would also start a server.
if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
    prometheus=target/ci-prometheus
    if [ ! -x "$prometheus/usr/bin/promtool" ]; then
        "${sudo[@]}" apt-get update -q
        mkdir -p "$prometheus"
        (cd "$prometheus" && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb .)
    fi
    export PATH="$PWD/$prometheus/usr/bin:$PATH"
fi

# The real OpenAI SDK, for the test that drives the gateway with it.
venv=target/ci-venv
if [ ! -x "$venv/bin/python" ]; then
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        "${sudo[@]}" apt-get update -q
        "${sudo[@]}" apt-get install -yq python3-venv
    fi
    python3 -m venv "$venv"
fi
"$venv/bin/python" -c 'import openai' 2>/dev/null || "$venv/bin/pip" install -q openai
export WEIR_TEST_PYTHON="$PWD/$venv/bin/python"

cargo test --locked "$@"
