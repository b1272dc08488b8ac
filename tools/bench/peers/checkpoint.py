# SPDX-License-Identifier: BSD-3-Clause
"""Save, load and list checkpoints of a model with its AdamW state, in PyTorch's own ways and with safetensors.

Sizes are those of weights plus both AdamW moments. Every method is timed with and without fsync where it has a
choice; "blocked" of the asynchronous save is what a training loop loses in total: its wall time during the save
less the same number of undisturbed steps. "restore" is loading back into a live model and optimizer. Loads are
measured with the file in the page cache ("warm") and after dropping it ("cold").
The methods "raw" and "memcpy" are floors: the same bytes by plain write(), and in memory.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import common


def build(megabytes, device):
    layers = max(1, round(megabytes / 12.6))           # 4.2 MB of weights and twice that of moments each
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(layers)]).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net(torch.randn(8, 1024, device=device)).square().mean().backward()
    opt.step()
    return net, opt


def flat(net, opt):
    """One flat dictionary of tensors, for safetensors."""
    out = {"model." + k: v for k, v in net.state_dict().items()}
    names = [k for k, _ in net.named_parameters()]
    for i, s in opt.state_dict()["state"].items():
        for k, v in s.items():
            out[f"optim.{names[i]}.{k}"] = v if torch.is_tensor(v) else torch.tensor(float(v))
    return out


def fsync(path):
    paths = [path] if os.path.isfile(path) else [str(f) for f in pathlib.Path(path).rglob("*") if f.is_file()]
    for f in paths:
        fd = os.open(f, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def drop(path):
    """Write back and drop a file's or folder's pages from the page cache."""
    fsync(path)
    for f in [path] if os.path.isfile(path) else [str(f) for f in pathlib.Path(path).rglob("*") if f.is_file()]:
        fd = os.open(f, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path):
        os.remove(path)


class Bench:
    def __init__(self, args, ranks, megabytes, folder, first):
        self.args, self.ranks, self.folder, self.first = args, ranks, folder, first
        self.net, self.opt = build(megabytes, ranks.device)
        self.bytes = sum(v.numel() * v.element_size() for v in flat(self.net, self.opt).values())
        self.rows = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def time(self, what, call, before=None, after=None, runs=None, per_byte=True, **extra):
        times = []
        for i in range((runs or self.args.runs) + 1):      # the first one warms up
            if before:
                before()
            self.ranks.barrier()
            t = time.perf_counter()
            result = call()
            times.append((time.perf_counter() - t) * 1e3)
            if after:
                after(result)
            del result
        times = self.ranks.reduce(times[1:])
        ms = statistics.median(times)
        row = {"what": what, "mb": round(self.bytes / 1e6), "median_ms": round(ms, 2), "min_ms": round(min(times), 2),
               "max_ms": round(max(times), 2), **extra}
        if per_byte:
            row["mb_per_s"] = round(self.bytes / 1e6 / ms * 1e3)
        self.rows.append(row)
        return ms

    def state(self):
        return {"model": self.net.state_dict(), "optim": self.opt.state_dict()}

    def put_back(self, s, mapped=False):
        """The optimizer keeps the tensors it is given, so mapped ones are copied, lest the read be put off."""
        self.net.load_state_dict(s["model"])
        if mapped:
            for state in s["optim"]["state"].values():
                state.update({k: v.clone() for k, v in state.items() if torch.is_tensor(v)})
        self.opt.load_state_dict(s["optim"])

    def floors(self):
        data = memoryview(bytearray(self.bytes))
        p = self.path("raw")

        def write(sync):
            fd = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            at = 0
            while at < len(data):
                at += os.write(fd, data[at:at + (64 << 20)])
            if sync:
                os.fsync(fd)
            os.close(fd)

        def read():
            with open(p, "rb", buffering=0) as f:
                at = 0
                while at < len(data):
                    at += f.readinto(data[at:])

        a, b = torch.ones(self.bytes // 4), torch.empty(self.bytes // 4)
        self.time("memcpy", lambda: b.copy_(a))
        for sync in (False, True):
            self.time("raw write" + (" fsync" if sync else ""), lambda: write(sync), lambda: remove(p))
        self.time("raw read warm", read)
        self.time("raw read cold", read, lambda: drop(p))
        remove(p)

    def torch_save(self):
        p = self.path("a.pt")

        def save(sync):
            with open(p, "wb") as f:
                torch.save(self.state(), f)
                if sync:
                    f.flush()
                    os.fsync(f.fileno())

        def load(**kw):
            return torch.load(p, weights_only=True, map_location=self.ranks.device, **kw)

        self.time("torch.save", lambda: save(False), lambda: remove(p))
        self.time("torch.save fsync", lambda: save(True), lambda: remove(p))
        old = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        self.time("torch.save no crc32", lambda: save(False), lambda: remove(p))
        self.time("torch.save no crc32 fsync", lambda: save(True), lambda: remove(p))
        torch.serialization.set_crc32_options(old)
        self.time("torch.load warm", load)
        self.time("torch.load mmap warm (pages not read)", lambda: load(mmap=True))
        self.time("torch.load restore warm", lambda: self.put_back(load()))
        self.time("torch.load mmap restore warm", lambda: self.put_back(load(mmap=True), True))
        self.time("torch.load restore cold", lambda: self.put_back(load()), lambda: drop(p))
        self.time("torch.load mmap restore cold", lambda: self.put_back(load(mmap=True), True), lambda: drop(p))
        self.time("list torch.load meta mmap", lambda: {k: v.shape for k, v in torch.load(
            p, weights_only=True, map_location="meta", mmap=True)["model"].items()}, per_byte=False)
        self.cold_list("torch", "import torch,sys; s=torch.load(sys.argv[1],map_location='meta',mmap=True);"
                       "[print(k,tuple(v.shape)) for k,v in s['model'].items()]", p)
        remove(p)

    def safetensors(self):
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file
        p = self.path("a.safetensors")

        def save(sync):
            save_file(flat(self.net, self.opt), p)
            if sync:
                fsync(p)

        def restore():
            s = load_file(p, device=str(self.ranks.device))
            with torch.no_grad():
                for k, v in flat(self.net, self.opt).items():
                    v.copy_(s[k])

        def listing():
            with safe_open(p, "pt") as f:
                return {k: f.get_slice(k).get_shape() for k in f.keys()}

        self.time("safetensors save", lambda: save(False), lambda: remove(p))
        self.time("safetensors save fsync", lambda: save(True), lambda: remove(p))
        self.time("safetensors load warm (pages not read)", lambda: load_file(p))
        self.time("safetensors restore warm", restore)
        self.time("safetensors restore cold", restore, lambda: drop(p))
        self.time("list safetensors", listing, per_byte=False)
        self.cold_list("safetensors", "import sys; from safetensors import safe_open; f=safe_open(sys.argv[1],'np');"
                       "[print(k,f.get_slice(k).get_shape()) for k in f.keys()]", p)
        remove(p)

    def cold_list(self, name, code, p):
        """Listing from a shell: a new interpreter each time."""
        if self.ranks.rank == 0 and self.first:
            self.time_shell(f"list {name} from a shell", [sys.executable, "-c", code, p])

    def time_shell(self, what, cmd):
        times = []
        for _ in range(3):
            t = time.perf_counter()
            subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL)
            times.append((time.perf_counter() - t) * 1e3)
        self.rows.append({"what": what, "mb": round(self.bytes / 1e6), "median_ms": round(statistics.median(times), 1),
                          "min_ms": round(min(times), 1), "max_ms": round(max(times), 1)})

    def distributed(self):
        p, rank0 = self.path("dcp"), self.ranks.rank == 0

        def clean():
            self.ranks.barrier()
            if rank0:
                remove(p)
            self.ranks.barrier()

        def state():
            m, o = get_state_dict(self.net, self.opt)
            return {"model": m, "optim": o}

        def writer(sync):
            return dcp.FileSystemWriter(p, sync_files=sync, overwrite=True)

        def save(sync):
            dcp.save(state(), storage_writer=writer(sync))

        def restore():
            s = state()
            dcp.load(s, storage_reader=dcp.FileSystemReader(p))
            set_state_dict(self.net, self.opt, model_state_dict=s["model"], optim_state_dict=s["optim"])

        self.time("dcp.save", lambda: save(False), clean)
        self.time("dcp.save fsync", lambda: save(True), clean)
        self.time("dcp.load restore warm", restore)
        self.time("dcp.load restore cold", restore, lambda: rank0 and drop(p))
        if rank0:
            def listing():
                m = dcp.FileSystemReader(p).read_metadata().state_dict_metadata
                return {k: getattr(v, "size", None) for k, v in m.items()}
            reader = dcp.FileSystemReader(p)
            times = []
            for _ in range(self.args.runs):
                t = time.perf_counter()
                listing()
                times.append((time.perf_counter() - t) * 1e3)
            self.rows.append({"what": "list dcp metadata", "mb": round(self.bytes / 1e6),
                              "median_ms": round(statistics.median(times), 2), "min_ms": round(min(times), 2),
                              "max_ms": round(max(times), 2)})
            del reader
            self.cold_list("dcp", "import sys,torch.distributed.checkpoint as d;"
                           "[print(k,getattr(v,'size',None)) for k,v in d.FileSystemReader(sys.argv[1])"
                           ".read_metadata().state_dict_metadata.items()]", p)
        self.asynchronous(p, clean, state, writer)
        clean()

    def asynchronous(self, p, clean, state, writer):
        """Train while a save is under way; count what the loop loses."""
        x = torch.randn(32, 1024, device=self.ranks.device)

        def step():
            self.opt.zero_grad()
            self.net(x).square().mean().backward()
            self.opt.step()

        def quiet(n):
            t = time.perf_counter()
            for _ in range(n):
                step()
            return (time.perf_counter() - t) / n

        quiet(3)
        # cached: pinned staging buffers are kept from save to save (the first, unmeasured, save fills them);
        # PyTorch allocates them through CUDA, so a CPU-only machine has no such choice
        for kind in ("default",) + (("cached staging",) if self.ranks.device.type == "cuda" else ()):
            stager = BlockingAsyncStager(cache_staged_state_dict=True) if kind != "default" else None
            calls, blocked, totals = [], [], []
            for _ in range(self.args.runs + 1):
                clean()
                base = quiet(10)
                t = time.perf_counter()
                future = dcp.async_save(state(), storage_writer=writer(True), **({"async_stager": stager} if stager else {}))
                call = time.perf_counter() - t
                future_done = future.upload_completion if hasattr(future, "upload_completion") else future
                if hasattr(future, "staging_completion"):
                    future.staging_completion.result()      # weights may not change before this
                    call = time.perf_counter() - t
                steps = 0
                while not future_done.done() or steps == 0:
                    step()
                    steps += 1
                future_done.result()
                total = time.perf_counter() - t
                calls.append(call * 1e3)
                totals.append(total * 1e3)
                blocked.append(max(0.0, total - steps * base) * 1e3)
            tag = f"dcp.async_save fsync, {kind}"
            for what, v in (("call blocks", calls), ("loop loses", blocked), ("until on disk", totals)):
                v = self.ranks.reduce(v[1:])
                self.rows.append({"what": f"{tag}: {what}", "mb": round(self.bytes / 1e6),
                                  "median_ms": round(statistics.median(v), 1), "min_ms": round(min(v), 1),
                                  "max_ms": round(max(v), 1)})


def main():
    p = common.parser(__doc__)
    p.add_argument("--mb", type=int, nargs="*", default=[100, 400])
    p.add_argument("--large", action="store_true", help="also 2 GB")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--folder", help="where to write; default: a temporary folder")
    p.add_argument("--only", choices=["floors", "torch_save", "safetensors", "distributed"], nargs="*")
    args = p.parse_args()
    ranks = common.Ranks(args, always_init=True)
    folder = args.folder or os.path.join(tempfile.gettempdir(), "peer_checkpoint")
    os.makedirs(folder, exist_ok=True)
    rows, load = [], common.Contention(ranks)
    for mb in args.mb + ([2000] if args.large else []):
        b = Bench(args, ranks, mb, folder, first=not rows)
        if ranks.world == 1:
            names = args.only or ["floors", "torch_save", "safetensors", "distributed"]
        else:                                 # only DCP has a meaning of its own on several ranks
            names = ["distributed"]
        for name in names:
            try:
                getattr(b, name)()
            except Exception as e:
                if ranks.world > 1:
                    raise
                b.rows.append({"what": f"{name} failed: {type(e).__name__}: {e}"[:300], "mb": mb})
        rows += b.rows
    ranks.barrier()
    if ranks.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    common.report(ranks, args, "checkpoint", None, None, None, load.stop(), rows=rows)


if __name__ == "__main__":
    main()
