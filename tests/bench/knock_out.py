#!/usr/bin/env python3
"""Full sets of the public incidents with some keys taken out, most of them keys that the report had: no
wrong cause may be confirmed. `WEIR=target/release/weir tests/bench/knock_out.py [KEYS] [SETS] [SEED]`"""
import json
import os
import pathlib
import random
import subprocess
import sys

keys, sets, seed = (int(word) for word in (sys.argv[1:] + ["2", "6000", "1"][len(sys.argv) - 1 :]))
random.seed(seed)
root = pathlib.Path(__file__).resolve().parents[2]
cases = [json.loads(line) for line in (root / "tests/data/incidents.jsonl").read_text().splitlines()]
lines, taken = [], []
for _ in range(sets):
    case = random.choice(cases)
    full = dict(case["full"])
    known = [key for key in full if key != "window_s"]
    told = [key for key in known if key in case["sparse"]]
    out = random.sample(told if random.random() < 0.7 else known, keys)
    for key in out:
        del full[key]
    lines.append(json.dumps(full))
    taken.append((case["id"], case["cause"], out))
command = [os.environ.get("WEIR", str(root / "target/release/weir")), "diagnose", "--snapshot", "-", "--json"]
done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
verdicts = [json.loads(line) for line in done.stdout.splitlines()]
if len(verdicts) != sets:
    sys.exit(done.stderr)
right = confirmed = 0
wrong = []
for (case, cause, out), verdict in zip(taken, verdicts):
    if verdict["cause"] == cause:
        right += 1
        confirmed += verdict["standing"] == "confirmed"
    elif verdict["standing"] == "confirmed":
        wrong.append(f"{case} {cause} -> {verdict['cause']} without {', '.join(out)}")
print(f"{sets} sets without {keys} keys: {right} right, {confirmed} of them confirmed, {len(wrong)} wrong confirmed")
print(*wrong, sep="\n")
sys.exit(bool(wrong))
