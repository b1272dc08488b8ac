#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The scripts of tools/tracking send what is in the files of a run. Stand-ins for the clients of MLflow and of
# Weights & Biases write down how they are called. Exit code 77: there is no Python.
set -euo pipefail

command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >mlflow.py <<'END'
import contextlib
import sys
@contextlib.contextmanager
def start_run(run_name):
    print("run", run_name)
    yield
    print("end")
def __getattr__(name):
    return lambda *arguments, **options: print(name, *arguments, options)
END
cat >wandb.py <<'END'
class Run:
    summary = {}
    def log(self, values, step): print("log", values, step)
    def finish(self, exit_code): print("finish", self.summary, exit_code)
def init(**options):
    for name, value in options.items(): print("init", name, value)
    return Run()
END

mkdir run
echo '{"state": "done", "step": 20, "exit_code": 0}' >run/STATUS.json
echo '{"run.name": {"value": "first", "origin": "default"}, "optim.lr": {"value": 0.001, "origin": "default"}}' \
  >run/config.resolved.json
touch run/report.html
cat >run/metrics.jsonl <<'END'
{"schema":"lockstep-metrics","version":1}
{"step":10,"epoch":0,"loss":2.5,"grad_norm":"NaN"}
{"step":20,"epoch":1,"val/loss":0.5,"val/count":50}
END
printf '{"step":30,"epo' >>run/metrics.jsonl # torn off, or not written yet

export PYTHONPATH=$folder PYTHONDONTWRITEBYTECODE=1
tools=$LOCKSTEP_SOURCE_DIR/tools/tracking

"$tools/to_mlflow" run trials >mlflow.txt
diff mlflow.txt - <<'END'
set_experiment trials {}
run run
log_params {'run.name': 'first', 'optim.lr': '0.001'} {}
log_metrics {'epoch': 0.0, 'loss': 2.5} {'step': 10}
log_metrics {'epoch': 1.0, 'val/loss': 0.5, 'val/count': 50.0} {'step': 20}
set_tags {'state': 'done', 'step': 20} {}
log_artifact run/report.html {}
end
END

"$tools/to_wandb" run trials >wandb.txt
diff wandb.txt - <<'END'
init project trials
init id first
init name first
init resume allow
init config {'run.name': 'first', 'optim.lr': 0.001}
log {'epoch': 0.0, 'loss': 2.5, 'grad_norm': nan} 10
log {'epoch': 1.0, 'val/loss': 0.5, 'val/count': 50.0} 20
finish {'state': 'done'} 0
END

# A run that still trains is followed until it ends.
echo '{"state": "running", "step": 20}' >run/STATUS.json
"$tools/to_mlflow" run >followed.txt &
sleep 1
printf 'ch":1,"loss":2.0}\n' >>run/metrics.jsonl
echo '{"state": "failed", "step": 30, "exit_code": 6}' >run/STATUS.new
mv run/STATUS.new run/STATUS.json # trainer replaces the whole file, too
code=0
wait $! || code=$?
((code == 1))
grep -q "log_metrics {'epoch': 1.0, 'loss': 2.0} {'step': 30}" followed.txt
(($(grep -c "'step': 10" followed.txt) == 1))

"$tools/to_mlflow" >/dev/null 2>&1 && exit 1
"$tools/to_wandb" --help 2>&1 | grep -q '^usage: '
