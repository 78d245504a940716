#!/usr/bin/env bash
# How fast a generated metrics page of 18 MB and 100,000 samples is read: cold (labels decoded),
# repeated (the numbers moved, the series did not), and by the prometheus-parse crate. Takes about
# two minutes after the build; prints medians, and the ratios that they make.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo bench --locked --bench ingest >&2
python3 - "${CARGO_TARGET_DIR:-target}/criterion/exposition" <<'PYTHON'
import json, pathlib, sys

SAMPLES = 100_000
folder = pathlib.Path(sys.argv[1])
seconds = {}
print(f"{'reader':<18}{'ms':>9}{'MB/s':>9}{'samples/s':>14}")
for name in ("prometheus-parse", "cold", "repeated"):
    new = folder / name / "new"
    size = json.loads((new / "benchmark.json").read_text())["throughput"]["Bytes"]
    seconds[name] = json.loads((new / "estimates.json").read_text())["median"]["point_estimate"] / 1e9
    s = seconds[name]
    print(f"{name:<18}{s * 1e3:>9.2f}{size / s / 1e6:>9.0f}{SAMPLES / s:>14,.0f}")
print(f"page: {size / 1e6:.1f} MB, {SAMPLES:,} samples")
for name, target in (("cold", 8), ("repeated", 100)):
    ratio = seconds["prometheus-parse"] / seconds[name]
    print(f"{name}: {ratio:.1f}x prometheus-parse (target {target}x)")
PYTHON
