# SPDX-License-Identifier: BSD-3-Clause
"""Print the results of one or more runs (JSON lines files) as tables, one column per file."""
import json
import statistics
import sys


def show(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def table(title, head, rows):
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(" --- " for _ in head) + "|")
    for r in rows:
        print("| " + " | ".join(show(v) for v in r) + " |")


def main(files):
    if not files:
        sys.exit("usage: summarize.py RUN.jsonl [RUN2.jsonl...]")
    runs = [[json.loads(line) for line in open(f) if line.startswith("{")] for f in files]
    columns = [f"run {i + 1}" for i in range(len(runs))]

    def key(r):
        return r["name"], r.get("label", ""), r.get("batch"), r.get("world")

    def across(k, field):
        out = []
        for run in runs:
            v = [r[field] for r in run if key(r) == k and r.get(field) is not None]
            out.append(statistics.median(v) if v and not isinstance(v[0], list) else v[0] if v else None)
        return out

    def keys(name):
        seen = []
        for run in runs:
            for r in run:
                if r["name"].startswith(name) and key(r) not in seen:
                    seen.append(key(r))
        return seen

    steps = [("ddp_mlp", "samples_per_second"), ("ddp_gpt", "tokens_per_second"), ("ddp_resnet", "samples_per_second"),
             ("mnist_", "samples_per_second")]
    for name, per_second in steps:
        ks = keys(name)
        if not ks:
            continue
        head = ["case", "batch", "ranks"] + [f"step ms, {c}" for c in columns] + [f"min ms, {c}" for c in columns]
        head += [f"no barrier ms, {c}" for c in columns] + [f"{per_second.split('_')[0]}/s, {c}" for c in columns]
        head += [f"start-up s, {c}" for c in columns] + [f"RSS MB, {c}" for c in columns[:1]]
        head += [f"others' cores, {c}" for c in columns]
        table(name.strip("_"), head, [[k[1], k[2], k[3], *across(k, "median_ms"), *across(k, "min_ms"), *across(k, "free_ms"),
                                       *across(k, per_second), *across(k, "startup_s"), *across(k, "peak_rss_mb")[:1],
                                       *across(k, "other_cores")] for k in ks])
    for name, fields in (("ddp_gpt", ("loss", "val_loss", "train_seconds", "wall_s")),
                         ("mnist_", ("accuracy", "loss", "wall_s", "epoch_s"))):
        ks = keys(name)
        if ks:
            table(f"{name.strip('_')}: outcome", ["case", "ranks"] + [f"{f}, {c}" for f in fields for c in columns],
                  [[k[1], k[3], *[v for f in fields for v in across(k, f)]] for k in ks])

    lists = [("collectives", ("bytes",), ("median_ms", "busbw_gbs")),
             ("dataloader", ("what", "workers"), ("samples_per_second",)),
             ("checkpoint", ("mb", "what"), ("median_ms", "mb_per_s"))]
    for name, ids, fields in lists:
        for k in keys(name):
            found = [next((r["rows"] for r in run if key(r) == k), []) for run in runs]
            order = []
            for rows in found:
                order += [tuple(r.get(i) for i in ids) for r in rows if tuple(r.get(i) for i in ids) not in order]
            pick = [{tuple(r.get(i) for i in ids): r for r in rows} for rows in found]
            table(f"{name} {k[1]}", [*ids] + [f"{f}, {c}" for f in fields for c in columns],
                  [[*o, *[p.get(o, {}).get(f) for f in fields for p in pick]] for o in order])

    cases = list(dict.fromkeys(r["case"] for run in runs for r in run if "case" in r))
    if cases:
        fields = ("startup_s", "exit_s", "launch_to_script_s", "import_s", "init_s", "model_and_step_s")

        def median(run, case, field):
            v = [r[field] for r in run if r.get("case") == case and field in r]
            return statistics.median(v) if v else None
        table("start-up, seconds (median)", ["case"] + [f"{f}, {c}" for f in fields for c in columns],
              [[c, *[median(run, c, f) for f in fields for run in runs]] for c in cases])


if __name__ == "__main__":
    main(sys.argv[1:])
