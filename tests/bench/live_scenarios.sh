#!/usr/bin/env bash
# Every scenario that ships, once live and once on the virtual clock for the same time, one after the
# other. The gateways' counters must be the provider's ledger to the last attempt, and live attempts,
# admitted and shed requests within a tenth of the virtual ones; else it ends with 1. A minute at most
# per scenario. Scenarios whose gates share a budget need `redis-server`, or WEIR_DRILL_REDIS.
#
#     WEIR=target/release/weir tests/bench/live_scenarios.sh [SCENARIO...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

WEIR=${WEIR:-target/release/weir}
# Where the tests' own script unpacks it.
[ ! -x target/ci-redis/usr/bin/redis-server ] || export PATH="$PWD/target/ci-redis/usr/bin:$PATH"
python3 - "$WEIR" "$@" <<'PYTHON'
import json, pathlib, re, subprocess, sys

WEIR, *chosen = sys.argv[1:]
AFTER_ONSET_S, LONGEST_S = 30, 60
# Live and virtual draw their chance in another order: a tenth, and of a handful a few more or less.
SHARE, HANDFUL = 0.10, 25
# Where somebody hangs up, the provider charges for an answer that nobody reads.
HANG_UP, HANG_UP_SHARE = ("deadline_s", "leaves", "timeout"), 0.01


def drill(*arguments):
    command = [WEIR, "drill", *arguments, "--json"]
    # Commands that wait longer than this do not end by themselves.
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S + 120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no word")
    return json.loads(done.stdout)


def text_of(name):
    shipped = pathlib.Path("assets/scenarios", f"{name}.toml")
    return (shipped if shipped.exists() else pathlib.Path(name)).read_text()


def total(report, key):
    return sum(phase[key] for phase in report["phases"])


def unlike_the_ledger(live, text):
    """What the gateways and the provider counted differently, in words."""
    ledger, wrong = live["ledger"], []
    for key in ("attempts", "provider_429", "tokens_sent"):
        ours, theirs = total(live, key), ledger[key]
        # Where usage is not read on purpose, tokens are what was guessed.
        if key == "tokens_sent" and "estimate_factor" in text:
            continue
        slack = theirs * HANG_UP_SHARE if key == "tokens_sent" and any(w in text for w in HANG_UP) else 0
        # The end of a leaked answer is lost, and what it used with it: of no more than leak.
        leak = re.search(r"^leak = \{ ratio = ([0-9.]+)", text, re.MULTILINE)
        if key == "tokens_sent" and leak:
            slack = theirs * float(leak[1])
        if not theirs - slack <= ours <= theirs:
            wrong.append(f"{key}: {ours}, the provider counted {theirs}")
    # An original that is attempted in two phases, or through two gates, counts in both.
    attempted = [phase["originals_attempted"] for phase in live["phases"]]
    if not max(attempted, default=0) <= ledger["originals"] <= sum(attempted):
        wrong.append(f"originals: {attempted}, the provider counted {ledger['originals']}")
    return wrong


def compared(live, paper, key):
    """How far live is from virtual, and whether that is too far."""
    real, simulated = total(live, key), total(paper, key)
    off = real - simulated
    shown = f"{off / simulated:+.1%}" if simulated else f"{off:+}"
    return shown, abs(off) > max(SHARE * simulated, HANDFUL)


def main():
    names = chosen or sorted(one["name"] for one in drill("--list"))
    width = max(len(name) for name in names)
    print(f"     {'scenario':<{width}}  {'s':>3}  ledger    attempts  admitted      shed")
    failed = 0
    for name in names:
        try:
            onset = drill(name, "--virtual", "--for", "1s")["onset_s"]
            seconds = int(min(onset + AFTER_ONSET_S, LONGEST_S))
            paper = drill(name, "--virtual", "--for", f"{seconds}s")
            live = drill(name, "--headless", "--for", f"{seconds}s")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAIL {name:<{width}}  {error}", flush=True)
            continue
        wrong = unlike_the_ledger(live, text_of(name))
        columns = [compared(live, paper, key) for key in ("attempts", "admitted", "shed")]
        bad = bool(wrong) or any(far for _, far in columns)
        failed += bad
        shown = "".join(f"{text:>10}" for text, _ in columns)
        mark, ledger = "FAIL" if bad else "ok", "differs" if wrong else "equal"
        print(f"{mark:<5}{name:<{width}}  {seconds:>3}  {ledger:<8}{shown}", flush=True)
        for words in wrong:
            print(f"     {words}", flush=True)
    print(f"{len(names) - failed} of {len(names)} right")
    sys.exit(1 if failed else 0)


main()
PYTHON
