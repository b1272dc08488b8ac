# SPDX-License-Identifier: BSD-3-Clause
"""Shared plumbing of the peer benchmarks: ranks, timing, memory, one JSON line.

A program may be started alone, by torchrun, or by Open MPI's mpirun. Set
PEER_LAUNCH_TIME to `date +%s.%N` before the launch to have the start-up time
(launch to first finished step) reported.
"""
import argparse
import datetime
import json
import os
import statistics
import time

import torch
import torch.distributed as dist


def parser(doc, warmup=10, iters=50):
    """The options that every program has."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--backend", choices=["gloo", "nccl"], default="gloo", help="nccl also moves the work to the GPU")
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--threads", type=int, default=0, help="intra-op threads, 0: what OMP_NUM_THREADS says")
    p.add_argument("--warmup", type=int, default=warmup)
    p.add_argument("--iters", type=int, default=iters)
    p.add_argument("--seed", type=int, default=1337)
    p.add_argument("--label", default="", help="free text that is copied into the result")
    return p


class Ranks:
    """Rank, world size and device, from torchrun's or Open MPI's environment."""

    def __init__(self, args, always_init=False):
        env = os.environ
        if "OMPI_COMM_WORLD_RANK" in env and "RANK" not in env:
            env["RANK"] = env["OMPI_COMM_WORLD_RANK"]
            env["WORLD_SIZE"] = env["OMPI_COMM_WORLD_SIZE"]
            env["LOCAL_RANK"] = env["OMPI_COMM_WORLD_LOCAL_RANK"]
        env.setdefault("MASTER_ADDR", "127.0.0.1")
        env.setdefault("MASTER_PORT", "29533")
        self.rank = int(env.setdefault("RANK", "0"))
        self.world = int(env.setdefault("WORLD_SIZE", "1"))
        self.local = int(env.get("LOCAL_RANK", "0"))
        if args.threads:
            torch.set_num_threads(args.threads)
        if args.backend == "nccl":
            torch.cuda.set_device(self.local)
            self.device = torch.device("cuda", self.local)
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        else:
            self.device = torch.device("cpu")
        self.launcher = "mpirun" if "OMPI_COMM_WORLD_RANK" in env else "torchrun" if "TORCHELASTIC_RUN_ID" in env else "plain"
        if self.world > 1 or always_init:
            dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=300))
        torch.manual_seed(args.seed)

    @property
    def device_ids(self):
        return [self.local] if self.device.type == "cuda" else None

    def sync(self):
        """Wait for the GPU; nothing on the CPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def barrier(self):
        if self.world > 1:
            dist.barrier(device_ids=self.device_ids)

    def reduce(self, values, op="max"):
        """Reduce a list of floats over the ranks."""
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.world > 1:
            dist.all_reduce(t, {"max": dist.ReduceOp.MAX, "sum": dist.ReduceOp.SUM}[op])
        return t.tolist()

    def gather(self, value):
        """One float of every rank, as a list."""
        mine = [0.0] * self.world
        mine[self.rank] = float(value)
        return self.reduce(mine, "sum")

    def close(self):
        if dist.is_initialized():
            dist.destroy_process_group()


class StartUp:
    """Seconds from the launch to the first finished step."""

    def __init__(self, ranks):
        self.ranks, self.seconds = ranks, None
        self.launch = float(os.environ.get("PEER_LAUNCH_TIME", "0"))

    def first_step_done(self):
        if self.seconds is None:
            self.ranks.sync()
            self.seconds = time.time() - self.launch if self.launch else -1.0


class Contention:
    """Cores kept busy by other processes between two points, and time stolen by the hypervisor."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.start = self._now()

    @staticmethod
    def _now():
        with open("/proc/stat") as f:
            v = [int(x) for x in f.readline().split()[1:9]]
        hz = os.sysconf("SC_CLK_TCK")
        busy = (v[0] + v[1] + v[2] + v[5] + v[6]) / hz   # user nice system irq softirq
        t = os.times()
        return time.time(), busy, v[7] / hz, t.user + t.system + t.children_user + t.children_system

    def stop(self):
        wall, busy, steal, own = [b - a for a, b in zip(self.start, self._now())]
        own = self.ranks.reduce([own], "sum")[0]
        wall = max(wall, 1e-3)
        return {"other_cores": round(max(0.0, busy - own) / wall, 2), "stolen_cores": round(steal / wall, 2)}


def peak_rss_mb():
    """VmHWM belongs to this program alone (ru_maxrss would count the launcher's pages before exec)."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def autocast(ranks, args):
    return torch.autocast(ranks.device.type, torch.bfloat16, enabled=args.dtype == "bf16")


def timed_steps(ranks, args, step, startup):
    """Time step() args.iters times: barrier before each, maximum over the ranks.

    Returns (milliseconds per step, milliseconds per step of a loop without barriers, contention, last loss).
    """
    loss = None
    for i in range(max(args.warmup, 1)):
        loss = step()
        startup.first_step_done()
    times = []
    load = Contention(ranks)
    for _ in range(args.iters):
        ranks.barrier()
        ranks.sync()
        t = time.perf_counter()
        loss = step()
        ranks.sync()
        times.append((time.perf_counter() - t) * 1e3)
    times = ranks.reduce(times)
    ranks.barrier()
    ranks.sync()
    t = time.perf_counter()
    for _ in range(args.iters):
        loss = step()
    ranks.sync()
    free = ranks.reduce([(time.perf_counter() - t) * 1e3 / args.iters])[0]
    return times, free, load.stop(), float(loss)


def report(ranks, args, name, startup=None, times=None, free_ms=None, contention=None, **extra):
    """Print the JSON line (rank 0 only)."""
    rss = ranks.gather(peak_rss_mb())
    started = ranks.reduce([startup.seconds or -1.0])[0] if startup else None
    if ranks.rank == 0:
        row = {"name": name, "label": args.label, "world": ranks.world, "device": str(ranks.device.type),
               "torch": torch.__version__, "backend": args.backend, "launcher": ranks.launcher,
               "dtype": args.dtype, "compile": args.compile, "threads": torch.get_num_threads()}
        if times:
            row.update(median_ms=round(statistics.median(times), 3), min_ms=round(min(times), 3),
                       max_ms=round(max(times), 3), iters=len(times))
        if free_ms is not None:
            row["free_ms"] = round(free_ms, 3)
        row.update(extra)
        row["peak_rss_mb"] = [round(x) for x in rss]
        if started is not None and started >= 0:
            row["startup_s"] = round(started, 2)
        row.update(contention or {})
        row["load1"] = round(os.getloadavg()[0], 2)
        row["utc"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        print(json.dumps(row), flush=True)
    ranks.close()
