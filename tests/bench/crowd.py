#!/usr/bin/env python3
"""Crowds at a gateway: idle keep-alive clients and streams at once, and what stays of them.

    cargo build --release --bin weir
    tests/bench/crowd.py [IDLE] [STREAMS] [ROUNDS]      # 10000 1000 3

The provider is in this process: it begins an answer, sends a part every second, and ends when it is
left. Reads /proc, so it needs Linux. Ends with 1 if permits, descriptors or memory do not come back.
"""
import asyncio
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request

# What the allocator may keep of a crowd, and of the second one no more: MB.
MEMORY_MB = 32.0
PATIENCE_S = 60
BEGIN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"


async def provide(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.split(b":")[1]))
            writer.write(BEGIN)
            while True:
                await asyncio.sleep(1)
                writer.write(b"5\r\nagain\r\n")
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


class Gateway:
    def __init__(self, folder, provider, permits):
        config = pathlib.Path(folder, "weir.toml")
        config.write_text(
            "[[scope]]\nname = 'sim/main/all'\nrpm = 600000000\ntpm = 600000000000\npermits = 'fixed'\n"
            "[gateway]\nlisten = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n"
            f"upstream = 'http://127.0.0.1:{provider}'\n"
            "[gateway.transport]\nhead_timeout_s = 600.0\n"
            f"[gateway.flags]\n'admission.max_in_flight' = {permits}\n'tenant.cap_ratio' = 1.0\n"
        )
        self.process = subprocess.Popen(
            [os.environ.get("WEIR", "target/release/weir"), "gateway", "--exit-on-stdin-eof", "-c", config],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "XDG_STATE_HOME": folder},
        )
        ready = json.loads(self.process.stdout.readline())
        self.data = ready["data"].rsplit(":", 1)
        self.admin = ready["admin"]

    def connect(self):
        return asyncio.open_connection(self.data[0], int(self.data[1]))

    def metric(self, name):
        page = urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10).read().decode()
        lines = (line for line in page.splitlines() if line.split("{")[0].split(" ")[0] == name)
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def held(self):
        process = f"/proc/{self.process.pid}"
        status = pathlib.Path(process, "status").read_text()
        memory = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return len(os.listdir(f"{process}/fd")), int(memory.split()[1]) / 1024

    async def settles(self, name, wanted):
        end = time.monotonic() + PATIENCE_S
        while (found := await asyncio.to_thread(self.metric, name)) != wanted:
            if time.monotonic() > end:
                sys.exit(f"{name} is {found:g}, not {wanted}, after {PATIENCE_S} s")
            await asyncio.sleep(0.1)


async def ask(gateway, text):
    reader, writer = await gateway.connect()
    body = json.dumps({"model": "m", "input": text}).encode()
    writer.write(b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    await reader.readuntil(b"hello\r\n")
    return writer


async def main(idle_count, stream_count, rounds):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = idle_count + 2 * stream_count + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(f"this needs {wanted} descriptors; the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    provider = await asyncio.start_server(provide, "127.0.0.1", 0, backlog=4096)
    port = provider.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(folder, port, stream_count)
        try:
            (await ask(gateway, "warm")).close()
            await gateway.settles("weir_client_connections", 0)
            await gateway.settles("weir_upstream_connections", 0)
            before = gateway.held()
            print(f"at rest: {before[0]} descriptors, {before[1]:.1f} MB")
            first = None
            for number in range(rounds):
                began = time.monotonic()
                idle = []
                for start in range(0, idle_count, 500):
                    some = range(start, min(start + 500, idle_count))
                    idle += await asyncio.gather(*(gateway.connect() for _ in some))
                streams = []
                for start in range(0, stream_count, 100):
                    some = range(start, min(start + 100, stream_count))
                    streams += await asyncio.gather(*(ask(gateway, f"{number} {one}") for one in some))
                await gateway.settles("weir_client_connections", idle_count + stream_count)
                await gateway.settles("weir_permits_in_use", stream_count)
                held = gateway.held()
                print(
                    f"round {number + 1}: {idle_count} idle and {stream_count} streams after "
                    f"{time.monotonic() - began:.1f} s: {held[0]} descriptors, {held[1]:.1f} MB, "
                    f"{(held[1] - before[1]) * 1024 / (idle_count + stream_count):.1f} kB each"
                )
                for writer in [pair[1] for pair in idle] + streams:
                    writer.transport.abort()
                for name in ["client_connections", "permits_in_use", "upstream_open", "upstream_connections"]:
                    await gateway.settles(f"weir_{name}", 0)
                after = gateway.held()
                first = first or after
                print(f"         gone: {after[0]} descriptors, {after[1]:.1f} MB")
                if after[0] > before[0] + 2:
                    sys.exit("descriptors are left")
                if after[1] > first[1] + MEMORY_MB:
                    sys.exit("memory grows from crowd to crowd")
        finally:
            gateway.process.kill()
            gateway.process.wait()


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in (sys.argv[1:] + ["10000", "1000", "3"][len(sys.argv) - 1:]))))
