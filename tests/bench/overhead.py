#!/usr/bin/env python3
"""What a request costs at a gateway: processor time, throughput, memory, and what it adds to the time of an
answer. weir with all of admission on, beside Envoy with its rate limit, admission control and retry budget
on one thread, and beside the upstream itself, in one run.

    cargo build --release --bin weir
    UPSTREAM=http://127.0.0.1:9101 WEIR=target/release/weir tests/bench/overhead.py [SECONDS]

UPSTREAM answers embeddings and chat in about a millisecond; without it `weir provider` stands in, which takes
more of the processor than the gateways and so hides part of what they differ by in throughput. Needs wrk, and
takes Envoy (ENVOY, or on PATH) and oha (for the open loop) where they are.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

from limit import WEIR, Running, found, port

SECONDS = sys.argv[1] if len(sys.argv) > 1 else "5"
TICKS = os.sysconf("SC_CLK_TCK")
WORDS = "the quarterly forecast depends on regional demand while engineers tune retry policies "
BODIES = {
    "embeddings": json.dumps({"model": "m", "input": WORDS * 20}),
    "chat/completions": json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
}
# Two requests are one original while their bodies are the same.
LUA = """
local headers = { ["content-type"] = "application/json", ["authorization"] = "Bearer sk-test" }
local body, n = [==[%s]==], 0
request = function()
  n = n + 1
  return wrk.format("POST", nil, headers, body:sub(1, -2) .. string.format(', "user": "u%%d"}', n))
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format("COUNTED %%d %%d %%.0f %%.2f %%.2f\\n", summary.requests, errors.connect + errors.read + errors.write
    + errors.status + errors.timeout, summary.requests / (summary.duration / 1e6), latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def weir(folder, listen, upstream):
    file = os.path.join(folder, "weir.toml")
    with open(file, "w") as out:
        out.write(f"""
[[scope]]
name = "openai/acct/m"
rpm = 60_000_000
tpm = 60_000_000_000
[gateway]
instance = "bench"
listen = "127.0.0.1:{listen}"
admin_listen = "127.0.0.1:{port()}"
upstream = "{upstream}"
state_file = "{folder}/state.json"
[gateway.flags]
"admission.max_in_flight" = 1000
{store()}
""")
    return Running([WEIR, "gateway", "-c", file, "--token-file", f"{folder}/token"], listen)


def store():
    """The shared budget, with REDIS set."""
    redis = os.environ.get("REDIS")
    return f'[gateway.store]\nurl = "{redis}"\n' if redis else ""


def envoy(folder, listen, upstream):
    at = urllib.parse.urlparse(upstream)
    v3 = "type.googleapis.com/envoy.extensions.filters"
    percent = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    retry = {
        "retry_on": "5xx,retriable-status-codes", "retriable_status_codes": [429], "num_retries": 2,
        "rate_limited_retry_back_off": {"reset_headers": [{"name": "Retry-After", "format": "SECONDS"}], "max_interval": "60s"},
    }
    bucket = {"max_tokens": 100000000, "tokens_per_fill": 100000000, "fill_interval": "60s"}
    filters = [
        {"name": "limit", "typed_config": {"@type": f"{v3}.http.local_ratelimit.v3.LocalRateLimit", "stat_prefix": "limit", "token_bucket": bucket, "filter_enabled": percent, "filter_enforced": percent}},
        {"name": "admission", "typed_config": {"@type": f"{v3}.http.admission_control.v3.AdmissionControl", "enabled": {"default_value": True, "runtime_key": "on"}, "success_criteria": {"http_criteria": {"http_success_status": [{"start": 200, "end": 400}]}}}},
        {"name": "router", "typed_config": {"@type": f"{v3}.http.router.v3.Router"}},
    ]
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "up", "timeout": "30s", "retry_policy": retry}}]
    manager = {
        "@type": f"{v3}.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}, "http_filters": filters,
    }
    address = lambda host, number: {"socket_address": {"address": host, "port_value": number}}
    most = {"max_connections": 10000, "max_pending_requests": 10000, "max_requests": 10000, "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3}}
    config = {"static_resources": {
        "listeners": [{"address": address("127.0.0.1", listen), "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
        "clusters": [{
            "name": "up", "type": "STATIC", "connect_timeout": "1s", "circuit_breakers": {"thresholds": [most]},
            "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(at.hostname, at.port)}}]}]},
        }],
    }}
    file = os.path.join(folder, "envoy.json")
    with open(file, "w") as out:
        json.dump(config, out)
    return Running([found("ENVOY", "envoy"), "-c", file, "--concurrency", "1", "--use-dynamic-base-id"], listen)


def spent(process):
    """Seconds of the processor, and resident megabytes."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    with open(f"/proc/{process}/status") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / TICKS, resident / 1024


def closed(name, process, base, path, connections, folder):
    script = os.path.join(folder, "wrk.lua")
    with open(script, "w") as out:
        out.write(LUA % BODIES[path])
    before = spent(process) if process else (0, 0)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--timeout", "10s", "-s", script, f"{base}/v1/{path}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = spent(process) if process else (0, 0)
    count, errors, rate, p50, p99 = re.search(r"COUNTED (\S+) (\S+) (\S+) (\S+) (\S+)", said).groups()
    cost = f"{1e6 * (after[0] - before[0]) / int(count):.0f} us of the processor a request, {after[1]:.0f} MB" if process else ""
    print(f"{name:8} {path:17} {connections:>3} connections: {rate:>6}/s, p50 {p50} p99 {p99} ms, {errors} errors; {cost}", flush=True)


def open_loop(name, base, folder):
    """A thousand originals a second, each at its moment."""
    file = os.path.join(folder, "bodies")
    with open(file, "w") as out:
        for number in range(20_000):
            out.write(json.dumps({"model": "m", "input": WORDS * 20, "user": f"u{number}"}) + "\n")
    command = ["oha", "--no-tui", "--output-format", "json", "-q", "1000", "--latency-correction", "-z", f"{SECONDS}s", "-c", "128", "-m", "POST", "-Z", file]
    command += ["-T", "application/json", "-H", "authorization: Bearer sk-test", f"{base}/v1/embeddings"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    at = {name: 1000 * (said["latencyPercentiles"].get(name) or 0) for name in ("p50", "p99")}
    print(f"{name:8} 1,000 a second: p50 {at['p50']:.2f} p99 {at['p99']:.2f} ms, {said['statusCodeDistribution']}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        upstream, servers = os.environ.get("UPSTREAM"), []
        if not upstream:
            at = port()
            file = os.path.join(folder, "provider.toml")
            with open(file, "w") as out:
                out.write("requests = { per_minute = 1_000_000_000 }\ntokens = { per_minute = 1_000_000_000_000 }\n")
                out.write("latency = { base_ms = 1, spread_ms = 0, per_open_call_ms = 0 }\n")
            servers.append(Running([WEIR, "provider", "-c", file, "--listen", f"127.0.0.1:{at}"], at))
            upstream = f"http://127.0.0.1:{at}"
        try:
            stages = [("direct", None, upstream)]
            for name, start, program in (("weir", weir, WEIR), ("envoy", envoy, found("ENVOY", "envoy"))):
                if program:
                    listen = port()
                    servers.append(start(folder, listen, upstream))
                    stages.append((name, servers[-1].process.pid, f"http://127.0.0.1:{listen}"))
            for path in BODIES:
                for connections in (64, 128):
                    for stage in stages:
                        closed(*stage, path, connections, folder)
            if shutil.which("oha"):
                for name, _, base in stages:
                    open_loop(name, base, folder)
        finally:
            for server in reversed(servers):
                server.stop()


main()
