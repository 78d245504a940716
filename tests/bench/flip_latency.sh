#!/usr/bin/env bash
# From the beginning of `weir flag set` to the moment at which a dashboard that runs beside it shows the
# new value in use: 50 flips in a running drill, with weir's own store. Needs tmux.
#
#     WEIR=target/release/weir tests/bench/flip_latency.sh [FLIPS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

WEIR=$(realpath "${WEIR:-target/release/weir}") exec python3 - "${1:-50}" <<'PYTHON'
import os, re, statistics, subprocess, sys, tempfile, time

WEIR, flips = os.environ["WEIR"], int(sys.argv[1])
home = tempfile.mkdtemp(prefix="weir-flips-")
session = f"weir-flips-{os.getpid()}"
KEY = "admission.max_request_tokens"
VALUES = ("100000", "110000")


def tmux(*words):
    return subprocess.run(["tmux", *words], capture_output=True, text=True, check=True).stdout


def in_use():
    """The column `in use` of the flag on the screen."""
    for line in tmux("capture-pane", "-p", "-t", session).splitlines():
        if KEY in line:
            return line.split(KEY)[1].split()[2]
    return None


tmux("new-session", "-d", "-s", session, "-x", "240", "-y", "50",
     f"HOME={home} {WEIR} drill --for 900s")
try:
    time.sleep(8)
    # The timeline says where the drill's admin plane is.
    tmux("send-keys", "-t", session, "t")
    time.sleep(1.5)
    found = re.search(r"admin (http://\S+), token in (\S+)", tmux("capture-pane", "-p", "-t", session))
    if not found:
        raise SystemExit("no address:\n" + tmux("capture-pane", "-p", "-t", session))
    url, token = found.groups()
    tmux("send-keys", "-t", session, "f")
    time.sleep(1.5)
    if in_use() is None:
        raise SystemExit("the flags screen does not show:\n" + tmux("capture-pane", "-p", "-t", session))
    stored, seen = [], []
    for flip in range(flips):
        value = VALUES[flip % 2]
        began = time.monotonic()
        done = subprocess.run(
            [WEIR, "flag", "--url", url, "--token-file", token, "set", f"{KEY}={value}",
             "--reason", "latency", "--yes"],
            capture_output=True, text=True, env={**os.environ, "HOME": home},
        )
        if done.returncode != 0:
            raise SystemExit(done.stderr or done.stdout)
        stored.append(time.monotonic() - began)
        while in_use() != value:
            if time.monotonic() - began > 30:
                raise SystemExit("not seen in 30 s:\n" + tmux("capture-pane", "-p", "-t", session))
            time.sleep(0.02)
        seen.append(time.monotonic() - began)
        time.sleep(0.37)
finally:
    subprocess.run(["tmux", "kill-session", "-t", session], capture_output=True)

seen.sort()
print(f"{flips} flips: stored after {statistics.median(stored):.2f} s at the median,")
print(f"on the screen after {statistics.median(seen):.2f} s at the median, "
      f"{seen[int(flips * 0.9)]:.2f} s at the 90th percentile, {seen[-1]:.2f} s at most")
PYTHON
