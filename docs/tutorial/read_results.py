# SPDX-License-Identifier: BSD-3-Clause
# read_results.py RUN PREDICTIONS: prints how the validation went, and how far the predictions can be trusted.
import json
import sys

run, predictions = sys.argv[1:]

with open(run + "/metrics.jsonl") as lines:
    for line in lines:
        record = json.loads(line)
        if "val/within" in record:
            print(f"step {record['step']:5}  loss {record['val/loss']:.3f}  within {record['val/within']:.3f}")

with open(predictions) as lines:
    samples = [json.loads(line) for line in lines]
inside = [abs(s["frequency"] - s["target"]) <= 2 * s["deviation"] for s in samples]
print(f"{sum(inside)} of {len(samples)} targets are within 2 standard deviations of their prediction")
