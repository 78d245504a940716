#!/usr/bin/env python3
"""What gateways do under a provider's limit: attempts per original, refusals that the provider had to send,
what callers get. Each gateway in front of a provider of its own that is the same, one after the other, in one run.

    cargo build --release --bin weir
    WEIR=target/release/weir tests/bench/limit.py [T1] [T2] [--seconds 12]

T2: the provider takes 20 requests a second and 20 at once; 40 a second are offered. T1: it refuses all, 20
a second are offered. Beside weir: none, and of those that are found Envoy with a retry budget (ENVOY, or on
PATH), LiteLLM and vllm-router (LITELLM, VLLM_ROUTER, or on PATH).
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

WEIR = os.path.abspath(os.environ.get("WEIR", "target/release/weir"))
SECONDS = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 12.0
WANTED = [name for name in ("T1", "T2") if name in sys.argv] or ["T1", "T2"]


def body(number):
    """Two requests are one original while their bodies are the same."""
    messages = [{"role": "user", "content": f"question {number}"}]
    return json.dumps({"model": "m", "messages": messages, "max_tokens": 16})


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def found(variable, name):
    return os.environ.get(variable) or shutil.which(name)


class Running:
    """A server, ended with everything that it started."""

    def __init__(self, arguments, ready, **more):
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **more
        )
        end = time.time() + 90
        while time.time() < end:
            try:
                socket.create_connection(("127.0.0.1", ready), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.stop()
        raise SystemExit(f"{arguments[0]} did not start")

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def limited(listen, per_s, burst):
    """A provider: a token bucket, 20 ms for an answer, `retry-after: 1` with every refusal. Counts both."""
    level, at, counts = float(max(burst, 0)), time.monotonic(), {"attempts": 0, "refused": 0}
    good = json.dumps({"object": "chat.completion", "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}})
    bad = json.dumps({"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}})

    async def serve(reader, writer):
        nonlocal level, at
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
                await reader.readexactly(length)
                status, more, text = "200 OK", "", good
                if head.startswith("get /counts"):
                    text = json.dumps(counts)
                else:
                    now = time.monotonic()
                    level, at = min(level + (now - at) * per_s, burst), now
                    counts["attempts"] += 1
                    if level >= 1:
                        level -= 1
                        await asyncio.sleep(0.02)
                    else:
                        counts["refused"] += 1
                        status, more, text = "429 Too Many Requests", "retry-after: 1\r\n", bad
                writer.write(f"HTTP/1.1 {status}\r\n{more}content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
                if "connection: close" in head:
                    return writer.close()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", listen)
        await server.serve_forever()

    asyncio.run(run())


def provider(listen, drill):
    """T1 has nothing to give, T2 has 20 requests a second and 20 at once."""
    return Running([sys.executable, os.path.abspath(__file__), "--provider", str(listen), "20", "-1" if drill == "T1" else "20"], listen)


def weir(folder, listen, upstream, _drill):
    admin = port()
    file = os.path.join(folder, f"weir-{listen}.toml")
    with open(file, "w") as out:
        out.write(f"""
[[scope]]
name = "openai/acct/m"
rpm = 1200
semantics = "token-bucket"
burst_s = 1
[gateway]
instance = "bench-{listen}"
listen = "127.0.0.1:{listen}"
admin_listen = "127.0.0.1:{admin}"
upstream = "http://127.0.0.1:{upstream}"
state_file = "{folder}/state-{listen}.json"
[gateway.flags]
"queue.max_age_s" = 15
""")
    return Running([WEIR, "gateway", "-c", file, "--token-file", f"{folder}/token-{listen}"], listen)


def envoy(folder, listen, upstream, _drill):
    retry = {
        "retry_on": "5xx,retriable-status-codes",
        "retriable_status_codes": [429],
        "num_retries": 3,
        "retry_back_off": {"base_interval": "0.5s", "max_interval": "8s"},
        "rate_limited_retry_back_off": {
            "reset_headers": [{"name": "Retry-After", "format": "SECONDS"}],
            "max_interval": "60s",
        },
    }
    v3 = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{v3}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up", "timeout": "60s", "retry_policy": retry}}],
            }]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{v3}.http.router.v3.Router"}}],
    }
    address = lambda at: {"socket_address": {"address": "127.0.0.1", "port_value": at}}
    config = {
        "static_resources": {
            "listeners": [{
                "address": address(listen),
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
            }],
            "clusters": [{
                "name": "up",
                "type": "STATIC",
                "connect_timeout": "1s",
                "circuit_breakers": {"thresholds": [{
                    "max_connections": 10000, "max_pending_requests": 10000, "max_requests": 10000,
                    "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3},
                }]},
                "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]},
            }],
        }
    }
    file = os.path.join(folder, f"envoy-{listen}.json")
    with open(file, "w") as out:
        json.dump(config, out)
    return Running([found("ENVOY", "envoy"), "-c", file, "--concurrency", "1", "--use-dynamic-base-id"], listen)


def litellm(folder, listen, upstream, _drill):
    file = os.path.join(folder, f"litellm-{listen}.yaml")
    with open(file, "w") as out:
        out.write(f"""
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-test}}
""")
    arguments = [found("LITELLM", "litellm"), "--config", file, "--host", "127.0.0.1", "--port", str(listen)]
    return Running(arguments, listen, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"})


def vllm_router(_folder, listen, upstream, _drill):
    arguments = [found("VLLM_ROUTER", "vllm-router"), "--host", "127.0.0.1", "--port", str(listen)]
    arguments += ["--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin"]
    return Running(arguments, listen)


async def call(at, number, deadline_ms):
    """One original: its status, how long it took, its hint."""
    begun, sent = time.monotonic(), body(number)
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: bench", "authorization: Bearer sk-test",
             "content-type: application/json", f"content-length: {len(sent)}", "connection: close"]
    if deadline_ms:
        lines.append(f"x-weir-deadline-ms: {deadline_ms}")
    status, hint = 0, None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", at)
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + sent).encode())
        answer = await asyncio.wait_for(reader.read(), 90)
        writer.close()
        head = answer.split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
        status = int(head[0].split()[1])
        hint = next((line.split(":")[1].strip() for line in head if line.startswith("retry-after:")), None)
    except (OSError, asyncio.TimeoutError, IndexError, ValueError):
        pass
    return status, time.monotonic() - begun, hint


async def offer(at, per_s, deadline_ms):
    """Open loop: each original at its moment, however long the ones before it take."""
    begun, tasks = time.monotonic(), []
    for number in range(round(per_s * SECONDS)):
        await asyncio.sleep(max(0.0, begun + number / per_s - time.monotonic()))
        tasks.append(asyncio.ensure_future(call(at, number, deadline_ms)))
    return await asyncio.gather(*tasks)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def measured(drill, name, start, deadline_ms=None):
    with tempfile.TemporaryDirectory() as folder:
        upstream, listen = port(), port()
        servers = [provider(upstream, drill)]
        try:
            if start:
                servers.append(start(folder, listen, upstream, drill))
            at = listen if start else upstream
            # Who has just started begins with nothing.
            time.sleep(2)
            answers = asyncio.run(offer(at, 20 if drill == "T1" else 40, deadline_ms))
            time.sleep(1)
            url = f"http://127.0.0.1:{upstream}/counts"
            ledger = json.load(urllib.request.urlopen(url))
        finally:
            for server in reversed(servers):
                server.stop()
    good = [took for status, took, _ in answers if status == 200]
    bad = [(took, hint) for status, took, hint in answers if status != 200]
    codes = {code: sum(1 for status, _, _ in answers if status == code) for code in sorted({a[0] for a in answers})}
    hints = sorted({hint for _, hint in bad if hint}, key=float)
    refused = ledger["refused"]
    print(
        f"{drill} {name:28} {len(answers)} originals, {len(good)} answered {codes}; "
        f"{ledger['attempts'] / len(answers):.2f} attempts an original, {refused} refused by the provider; "
        f"answered p50 {percentile(good, 0.5):.2f} p99 {percentile(good, 0.99):.2f} s; "
        f"refused p50 {1000 * percentile([t for t, _ in bad], 0.5):.1f} p99 {1000 * percentile([t for t, _ in bad], 0.99):.1f} ms, "
        f"hints {hints[:1]} to {hints[-1:]}",
        flush=True,
    )


def main():
    peers = [("envoy, retry budget", envoy, ("ENVOY", "envoy")), ("litellm", litellm, ("LITELLM", "litellm")),
             ("vllm-router", vllm_router, ("VLLM_ROUTER", "vllm-router"))]
    for drill in WANTED:
        measured(drill, "direct", None)
        if drill == "T2":
            measured(drill, "weir, callers wait 0.5 s", weir, 500)
            measured(drill, "weir, callers wait 12 s", weir, 12_000)
        else:
            measured(drill, "weir", weir, 12_000)
        for name, start, (variable, program) in peers:
            if found(variable, program):
                try:
                    measured(drill, name, start)
                except SystemExit as error:
                    print(f"{drill} {name}: {error}", flush=True)
            else:
                print(f"{drill} {name}: not found", flush=True)


if __name__ == "__main__":
    if "--provider" in sys.argv:
        limited(*(int(number) for number in sys.argv[2:5]))
    else:
        main()
