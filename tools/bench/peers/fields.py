# SPDX-License-Identifier: BSD-3-Clause
"""Fields: a small U-Net on real monthly fields, and how fast PyTorch loads them with h5py.

  train   next month's field from the current ones: persistence, climatology, damped anomaly, a linear model per point,
          then a U-Net (padding: zero along latitude, circular along longitude), with rollout over the test part
  load    samples per second without training: h5py + torch DataLoader; makes the files it needs (--folder), or takes those of --data
  make    only makes these files

  python fields.py train --recipe seasonal
  python fields.py train --recipe sst
  python fields.py load --folder FOLDER --chunks 1 16 --workers 0 2 --order random

Files are netCDF-4 or HDF5: variable [time, latitude, longitude], packed or not; parts are the folders train/ and test/. There is no
third part: the errors printed are those of test/, which is also what recipes were chosen by.

Made files: int16 [time, 181, 360], shuffle + gzip 4, 1 or 16 steps a chunk, four files. Their numbers, uncompressed, are ten times
--cache-mb, so that a cache of decoded chunks of that size cannot answer more than a tenth of random reads. They lie in the page
cache of the operating system, having just been written or read: what is measured is inflating and decoding, not the disk. HDF5's own
chunk cache is --hdf5-cache-mb for each file (HDF5 2.0's default, 8, is 5 percent of the made files).
Order of reading: `random`: a permutation of all windows, another one in every epoch; `chunks`: chunks in random order, the windows
that begin in a chunk are shuffled and read together, each worker with chunks of its own.
"""
import glob
import math
import os
import statistics
import sys
import tempfile
import time

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

import common

RECIPES = {  # files are one series, steps in, static field, every k-th point, sine and cosine of the time of year as inputs
    "seasonal": dict(joined=False, steps_in=1, static="orography", epochs=60, batch=2, lr=2e-3, year=False, subsample=2),
    "sst": dict(joined=True, steps_in=2, static="land", epochs=60, batch=4, lr=2e-3, year=True, subsample=1),
    "yearly": dict(joined=True, steps_in=3, static=None, epochs=40, batch=8, lr=3e-3, year=False, subsample=1),
}


def variable_of(path):
    with h5py.File(path, "r") as f:
        return next(k for k, v in f.items() if isinstance(v, h5py.Dataset) and v.ndim == 3)


class Variable:
    """A variable of an open file. Steps become float32 in place (exact: by way of double, rounded once); gaps are NaN (CF conventions)."""

    def __init__(self, path, name, subsample=1, exact=True, cache_mb=8):
        self.ds = h5py.File(path, "r", rdcc_nbytes=cache_mb << 20)[name]
        a, kind = self.ds.attrs, self.ds.dtype
        self.scale, self.offset = (float(np.ravel(a[k])[0]) if k in a else d for k, d in (("scale_factor", 1.0), ("add_offset", 0.0)))
        self.gaps = {v.item(): v for k in ("_FillValue", "missing_value") if k in a for v in np.ravel(a[k])}.values()
        self.exact = exact or kind.itemsize > (4 if kind.kind == "f" else 2)  # the latter: more digits than float32 holds
        self.float, self.sub = kind.kind == "f", subsample

    def read(self, first, last, out, minus=0.0):
        """Steps first ... last - 1, less a number, into `out`; says whether there are gaps."""
        raw = self.ds[first:last]
        if self.sub > 1:
            raw = raw[:, ::self.sub, ::self.sub]
        add = self.offset - minus
        if self.exact:
            out[...] = raw * np.float64(self.scale) + add
        else:
            if self.scale != 1:
                np.multiply(raw, np.float32(self.scale), out=out)
            else:
                out[...] = raw
            if add:
                out += np.float32(add)
        some = False
        for v in self.gaps:
            hole = raw == v
            if hole.any():
                out[hole], some = np.nan, True
        return some or self.float and bool(np.isnan(out).any())

    def all(self):
        n, h, w = self.ds.shape
        out = np.empty((n, -(-h // self.sub), -(-w // self.sub)), np.float32)
        self.read(0, n, out)
        return out


def empty(*shape):
    """Float32 numbers; in a worker they are where the main process can see them (as torch's own collate does), so that nothing is copied later."""
    if get_worker_info() is None:
        return torch.empty(shape)
    return torch.empty(0).set_(torch.UntypedStorage._new_shared(4 * math.prod(shape)), 0, shape)


def as_it_is(batch):
    return batch


class Fields(Dataset):
    """Windows of time steps of one variable. A process opens each file once; a batch is written where it stays.

    exact: decoded in double, rounded, normalised in double, rounded (training); else all of it in place in float32 (loading).
    """

    def __init__(self, files, variable, steps_in, joined, statistics=None, static=None, year=False, subsample=1, exact=True, cache_mb=8):
        self.sub, self.exact, self.cache_mb = subsample, exact, cache_mb
        self.files, self.variable, self.steps_in, self.static, self.year = files, variable, steps_in, static, year
        self.opened, self.pid, lengths, self.times = {}, None, [], []
        for p in files:
            with h5py.File(p, "r") as f:
                ds = f[variable]
                lengths.append(ds.shape[0])
                self.chunk = ds.chunks[0] if ds.chunks else 1
                self.space = tuple(-(-n // subsample) for n in ds.shape[1:])
                self.times.append(f["time"][()] if "time" in f else np.arange(lengths[-1]))
                self.units = f["time"].attrs.get("units", b"") if "time" in f else b""
        self.steps = sum(lengths)
        steps = [(i, t) for i, n in enumerate(lengths) for t in range(n)]
        runs = [steps] if joined else [[s for s in steps if s[0] == i] for i in range(len(files))]
        self.windows = [r[k:k + steps_in + 1] for r in runs for k in range(len(r) - steps_in)]
        self.mean, self.std, self.dmean, self.dstd = map(float, statistics or (0.0, 1.0, 0.0, 1.0))
        self.channels = steps_in + (static is not None) + 2 * bool(year)

    def __len__(self):
        return len(self.windows)

    def __getstate__(self):
        return {**self.__dict__, "opened": {}, "pid": None}

    def read(self, window, out, minus=0.0):
        """One read for neighbouring steps of a file: a chunk that holds several of them is inflated once."""
        if self.pid != os.getpid():
            self.opened, self.pid = {}, os.getpid()
            self.scratch = np.empty((self.steps_in + 1,) + self.space, np.float32)
        some, a = False, 0
        while a < len(window):
            i, t = window[a]
            b = a + 1
            while b < len(window) and window[b] == (i, t + b - a):
                b += 1
            if i not in self.opened:
                self.opened[i] = Variable(self.files[i], self.variable, self.sub, self.exact, self.cache_mb)
            some |= self.opened[i].read(t, t + b - a, out[a:b], minus)
            a = b
        return some

    def step(self, i, t):
        out = np.empty((1,) + self.space, np.float32)
        self.read([(i, t)], out)
        return out[0]

    def phase(self, i, t):
        return 2 * math.pi * (float(self.times[i][t]) / (24 if b"hours" in np.bytes_(self.units) else 1) % 365.25) / 365.25

    def sample(self, k, inp, y, mask):
        w, n = self.windows[k], self.steps_in
        if self.pid != os.getpid():
            self.read([], None)
        x = self.scratch
        gaps = self.read(w, x, 0.0 if self.exact else self.mean)
        np.subtract(x[-1], x[-2], out=y)
        mask.fill(1)
        if gaps:
            hole = ~np.isfinite(y)
            mask[hole] = 0
            np.nan_to_num(x, copy=False, nan=self.mean if self.exact else 0.0)
        if self.exact:
            y[...] = (y - np.float64(self.dmean)) / self.dstd
            inp[:n] = (x[:-1] - np.float64(self.mean)) / self.std
        else:
            if self.dmean:
                y -= np.float32(self.dmean)
            if self.dstd != 1:
                y *= np.float32(1 / self.dstd)
            np.multiply(x[:-1], np.float32(1 / self.std), out=inp[:n])
        if gaps:
            y[hole] = 0
        if self.static is not None:
            inp[n] = self.static
        if self.year:
            p = self.phase(*w[-1])
            inp[-2], inp[-1] = math.sin(p), math.cos(p)

    def __getitems__(self, ks):
        a, y, m = (empty(len(ks), c, *self.space) for c in (self.channels, 1, 1))
        for k, *rows in zip(ks, a.numpy(), y.numpy(), m.numpy()):
            self.sample(k, rows[0], rows[1][0], rows[2][0])
        return a, y, m

    def __getitem__(self, k):
        return tuple(t[0] for t in self.__getitems__([k]))


class Conv(nn.Conv2d):
    """3x3, zeros above and below, circular to the left and right."""

    def forward(self, x):
        return F.conv2d(F.pad(F.pad(x, (1, 1, 0, 0), mode="circular"), (0, 0, 1, 1)), self.weight, self.bias)


def pair(i, o):
    return nn.Sequential(Conv(i, o, 3, bias=False), nn.GroupNorm(8, o), nn.ReLU(), Conv(o, o, 3, bias=False), nn.GroupNorm(8, o), nn.ReLU())


class Unet(nn.Module):
    def __init__(self, channels, width=16, depth=3):
        super().__init__()
        self.inc = pair(channels, width)
        self.downs = nn.ModuleList(pair(width << i, width << (i + 1)) for i in range(depth))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in reversed(range(depth)))
        self.convs = nn.ModuleList(pair(width << (i + 1), width << i) for i in reversed(range(depth)))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        levels = [self.inc(x)]
        for d in self.downs:
            levels.append(d(F.max_pool2d(levels[-1], 2)))
        y = levels.pop()
        for up, conv in zip(self.ups, self.convs):
            skip, y = levels.pop(), up(y)
            dy, dx = skip.shape[2] - y.shape[2], skip.shape[3] - y.shape[3]
            y = conv(torch.cat([skip, F.pad(y, (dx // 2, dx - dx // 2, dy // 2, dy - dy // 2))], 1))
        return self.out(y)


def area(lat):
    """Weight of each row of latitudes, mean 1 (as WeatherBench 2)."""
    o = np.argsort(lat)
    p = np.deg2rad(lat[o])
    e = np.concatenate([[-np.pi / 2], (p[1:] + p[:-1]) / 2, [np.pi / 2]])
    if lat.max() - lat.min() < 150:  # a region: half a row beyond the outermost ones, no caps
        e[0], e[-1] = max(e[0], p[0] - (p[1] - p[0]) / 2), min(e[-1], p[-1] + (p[-1] - p[-2]) / 2)
    w = np.empty(len(lat))
    w[o] = np.diff(np.sin(e))
    return (w / w.mean()).astype(np.float32)[:, None]


def rmse(e, w):
    """Root of the area-weighted mean square over all that is there."""
    ok = np.isfinite(e)
    ww = np.broadcast_to(w, e.shape)
    return float(np.sqrt((ww[ok] * e[ok].astype(np.float64) ** 2).sum() / ww[ok].sum()))


def baselines(recipe, train, test, w, joined):
    """Persistence, climatology, damped anomaly, a line per point; train and test are lists of series [T, H, W]."""
    n = recipe["steps_in"]
    period = {"seasonal": None, "sst": 12, "yearly": 1}[recipe["name"]]
    if joined:
        series = np.concatenate(train + test)
        cut = sum(map(len, train))
        clim = np.stack([np.nanmean(series[:cut][m::period], 0) for m in range(period)])[np.arange(len(series)) % period]
        if recipe["name"] == "yearly":  # a drifting climate: mean of the 20 years before
            clim = np.stack([series[max(0, t - 20):max(1, t)].mean(0) for t in range(len(series))])
        an = series - clim
        a, b, tt = an[:cut - 1], an[1:cut], range(cut + n, len(series))
        X, Y = series[:cut - 1], series[1:cut]
        prev, cl, ap, target = series[[t - 1 for t in tt]], clim[list(tt)], an[[t - 1 for t in tt]], series[list(tt)]
    else:
        tr, te = np.stack(train), np.stack(test)
        c = tr.mean(0)
        a, b = (tr - c)[:, :-1], (tr - c)[:, 1:]
        X, Y = tr[:, :-1].reshape(-1, *c.shape[1:]), tr[:, 1:].reshape(-1, *c.shape[1:])
        prev, target = te[:, :-1], te[:, 1:]
        cl, ap = np.broadcast_to(c[1:], target.shape), (te - c)[:, :-1]
    g = float(np.nansum(w * a * b) / np.nansum(w * a * a))
    xm, ym = np.nanmean(X, 0), np.nanmean(Y, 0)
    slope = np.nansum((X - xm) * (Y - ym), 0) / (np.nansum((X - xm) ** 2, 0) + 1e-6)
    return {"persistence": rmse(prev - target, w), "climatology": rmse(cl - target, w), "damped_anomaly": rmse(cl + g * ap - target, w), "damping": g, "linear_per_point": rmse(ym + slope * (prev - xm) - target, w)}


def train(args, ranks):
    recipe = dict(RECIPES[args.recipe], name=args.recipe)
    if args.year >= 0:
        recipe["year"] = bool(args.year)
    if args.epochs:
        recipe["epochs"] = args.epochs
    if args.lr:
        recipe["lr"] = args.lr
    begin = time.time()
    data = args.data or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "fields", args.recipe)
    parts = {p: sorted(glob.glob(os.path.join(data, p + args.suffix, "*.nc")) + glob.glob(os.path.join(data, p + args.suffix, "*.h5"))) for p in ("train", "test")}
    var = variable_of(parts["train"][0])
    sub = args.subsample or recipe["subsample"]
    series = {k: [Variable(p, var, sub).all() for p in v] for k, v in parts.items()}
    lat = h5py.File(parts["train"][0], "r")["latitude"][()].astype(np.float64)[::sub]
    w = area(lat)
    base = baselines(recipe, series["train"], series["test"], w, recipe["joined"])
    x = np.concatenate(series["train"]).astype(np.float64)
    runs = [x] if recipe["joined"] else [s.astype(np.float64) for s in series["train"]]
    d = np.concatenate([r[1:] - r[:-1] for r in runs])
    stats = (np.nanmean(x), np.nanstd(x), np.nanmean(d), np.nanstd(d))
    static = None
    if recipe["static"]:
        s = h5py.File(os.path.join(data, "static.nc"), "r")[recipe["static"]][()].astype(np.float32)[::sub, ::sub]
        static = (s - s.mean()) / s.std()
    sets = {k: Fields(parts[k], var, recipe["steps_in"], recipe["joined"], stats, static, recipe["year"], sub) for k in parts}
    torch.manual_seed(args.seed)
    net = Unet(sets["train"].channels, args.width, args.depth)
    loader = DataLoader(sets["train"], recipe["batch"], shuffle=True, drop_last=False, collate_fn=as_it_is)
    steps = recipe["epochs"] * len(loader)
    opt = torch.optim.AdamW(net.parameters(), recipe["lr"], weight_decay=args.weight_decay)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, recipe["lr"], steps)
    wt = torch.from_numpy(w)
    t0, cpu0 = time.time(), sum(os.times()[:2])
    net.train()
    for _ in range(recipe["epochs"]):
        for a, y, m in loader:
            if args.roll:
                k = int(torch.randint(0, a.shape[3], ()))
                a, y, m = a.roll(k, 3), y.roll(k, 3), m.roll(k, 3)
            opt.zero_grad()
            loss = (wt * m * (net(a) - y) ** 2).sum() / (wt * m).sum()
            loss.backward()
            opt.step()
            sched.step()
    fit, cpu = time.time() - t0, sum(os.times()[:2]) - cpu0
    net.eval()
    mean, std, dm, ds = stats
    err, roll, per = [], {}, {}
    with torch.no_grad():
        for k in range(len(sets["test"])):
            a, y, m = sets["test"][k]
            e = (net(a[None])[0] - y).numpy() * ds
            e[m.numpy() == 0] = np.nan
            err.append(e[0])
        for first in range(len(sets["test"])):  # predictions fed back
            t = sets["test"]
            wdw = t.windows[first]
            if not recipe["joined"] and wdw[0][1] != 0:
                continue
            hist = [np.nan_to_num(t.step(*s), nan=float(np.float32(mean))) for s in wdw[:-1]]
            start = hist[-1]
            for j in range(args.rollout):
                if first + j >= len(t.windows) or (not recipe["joined"] and t.windows[first + j][-1][0] != wdw[0][0]):
                    break
                target = t.windows[first + j][-1]
                inp = [(h - mean) / std for h in hist] + ([static] if static is not None else [])
                if recipe["year"]:
                    p = t.phase(*target)
                    inp += [np.full_like(hist[0], math.sin(p)), np.full_like(hist[0], math.cos(p))]
                o = net(torch.from_numpy(np.stack(inp).astype(np.float32))[None])[0, 0].numpy()
                nxt = hist[-1] + o * ds + dm
                truth = t.step(*target)
                hist = hist[1:] + [nxt.astype(np.float32)]
                roll.setdefault(j + 1, []).append(nxt - truth)
                per.setdefault(j + 1, []).append(start - truth)
    common.report(ranks, args, f"fields_train_{args.recipe}", None, train_samples=len(sets["train"]), test_samples=len(sets["test"]), parameters=sum(p.numel() for p in net.parameters()), epochs=recipe["epochs"], lr=recipe["lr"], steps=steps, fit_s=round(fit, 1), fit_cpu_s=round(cpu, 1), total_s=round(time.time() - begin, 1),
                  test_rmse=round(rmse(np.stack(err), w), 4), last_train_loss=round(float(loss.detach()), 4), baselines={k: round(v, 4) for k, v in base.items()},
                  rollout_rmse={k: round(rmse(np.stack(v), w), 4) for k, v in roll.items()}, rollout_persistence={k: round(rmse(np.stack(v), w), 4) for k, v in per.items()})


def chunk_batches(ds, batch, workers, seed):
    """Endless batches of indices in the order `chunks`; every worker gets chunks of its own (workers take batches in turn)."""
    groups = {}
    for k, w in enumerate(ds.windows):
        groups.setdefault((w[0][0], w[0][1] // ds.chunk), []).append(k)
    rng, lanes = np.random.default_rng(seed), max(workers, 1)
    while True:
        order, rest = rng.permutation(len(groups)), []
        keys = list(groups)
        for lane in range(lanes):
            mine = [k for g in order[lane::lanes] for k in rng.permutation(groups[keys[g]]).tolist()]
            rest.append([mine[k:k + batch] for k in range(0, len(mine) - batch + 1, batch)])
        for row in zip(*rest):
            yield from row


def load(args, ranks):
    rates, spread, about = {}, {}, {}
    for chunk in args.chunks if not args.data else [None]:
        folder = args.data or make(args, chunk)
        files = sorted(f for e in ("nc", "h5") for f in glob.glob(os.path.join(folder, "**", "*." + e), recursive=True) if not f.endswith("static.nc"))
        var = args.variable or variable_of(files[0])
        for workers in args.workers:
            ds = Fields(files, var, args.steps_in, False, (280.0, 20.0, 0.0, 1.0), subsample=args.subsample or 1, exact=args.exact, cache_mb=args.hdf5_cache_mb)
            how = dict(num_workers=workers, persistent_workers=workers > 0 and args.order == "random", collate_fn=as_it_is)
            if args.order == "random":
                loader = DataLoader(ds, args.batch, shuffle=True, drop_last=len(ds) > args.batch, **how)
            else:
                loader = DataLoader(ds, batch_sampler=chunk_batches(ds, args.batch, workers, args.seed), **how)
            got, n, it, t = [], 0, iter(loader), time.perf_counter()
            while len(got) < 6:
                try:
                    b = next(it)
                except StopIteration:
                    it = iter(loader)
                    continue
                n += len(b[0])
                if time.perf_counter() - t > args.seconds / 5:
                    got.append(n / (time.perf_counter() - t))
                    n, t = 0, time.perf_counter()
            rates.setdefault(ds.chunk, {})[workers] = round(statistics.median(got[1:]), 1)
            spread.setdefault(ds.chunk, {})[workers] = [round(min(got[1:]), 1), round(max(got[1:]), 1)]
            shape = list(b[0].shape[1:])
            del it, loader
        number = Variable(files[0], var).ds
        about[ds.chunk] = dict(files=len(files), samples=len(ds), input_shape=shape, data_mb=round(ds.steps * math.prod(number.shape[1:]) * number.dtype.itemsize / 2**20), files_mb=round(sum(map(os.path.getsize, files)) / 2**20))
    common.report(ranks, args, "fields_load", None, order={"random": "a permutation of all windows, another one in every epoch", "chunks": "chunks in random order, the windows that begin in a chunk shuffled"}[args.order],
                  batch=args.batch, exact=args.exact, steps_a_sample=args.steps_in + 1, cache_mb=args.cache_mb, hdf5_cache_mb_a_file=args.hdf5_cache_mb, sets_by_steps_a_chunk=about, samples_per_s_by_steps_a_chunk_and_workers=rates, least_and_most=spread)


def make(args, chunk):
    """Four files of made-up fields, unless they are there; returns their folder."""
    shape, parts = (181, 360), 4
    days = args.days or -(-10 * args.cache_mb * 2**20 // (parts * 2 * math.prod(shape)))
    days = -(-days // chunk) * chunk
    folder = os.path.join(args.folder, f"{days}_days_{chunk}_a_chunk")
    os.makedirs(folder, exist_ok=True)
    y, x = np.mgrid[0:shape[0], 0:shape[1]]
    mean = (20 * np.cos(np.deg2rad(y - 90))).astype(np.float32)
    for i in range(parts):
        path = os.path.join(folder, f"part_{i}.h5")
        if os.path.exists(path):
            continue
        rng = np.random.default_rng(3 + i)
        with h5py.File(path + ".new", "w") as f:
            d = f.create_dataset("t2m", (days,) + shape, np.int16, chunks=(chunk,) + shape, compression="gzip", compression_opts=4, shuffle=True)
            d.attrs["scale_factor"], d.attrs["add_offset"], d.attrs["_FillValue"] = 0.002, 280.0, np.int16(-32768)
            for t in range(0, days, chunk):
                a = np.stack([mean + 5 * np.sin(np.deg2rad(x * 3 + 7 * s)) for s in range(t, t + chunk)]) + 0.5 * rng.standard_normal((chunk,) + shape, np.float32)
                d[t:t + chunk] = np.rint(a / 0.002).clip(-32000, 32000)
        os.rename(path + ".new", path)
    return folder


def main():
    p = common.parser(__doc__)
    p.add_argument("what", choices=["train", "load", "make"])
    p.add_argument("--data", default="", help="train: folder with train/ and test/, by itself that of the recipe; load: files to read instead of made ones")
    p.add_argument("--recipe", choices=list(RECIPES), default="seasonal")
    p.add_argument("--year", type=int, default=-1, help="1: time of year as two inputs, 0: not, -1: as the recipe says")
    p.add_argument("--suffix", default="", help="of the folders train and test")
    p.add_argument("--epochs", type=int, default=0)
    p.add_argument("--lr", type=float, default=0, help="0: as the recipe says")
    p.add_argument("--subsample", type=int, default=0, help="every k-th row and column, 0: as the recipe says")
    p.add_argument("--width", type=int, default=8)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--roll", action="store_true", help="shift along longitude at random (with static and all) while training")
    p.add_argument("--rollout", type=int, default=5)
    p.add_argument("--variable", default="")
    p.add_argument("--steps-in", type=int, default=1)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    p.add_argument("--chunks", type=int, nargs="+", default=[1, 16], help="steps a chunk of the made files")
    p.add_argument("--order", choices=["random", "chunks"], default="random", help="of reading")
    p.add_argument("--exact", action="store_true", help="load: decode and normalise in double, as train does")
    p.add_argument("--seconds", type=float, default=10, help="of each measurement; the median of its five parts counts")
    p.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "fields"), help="for the made files")
    p.add_argument("--cache-mb", type=int, default=64, help="the largest cache of any program compared: made files hold ten times as much")
    p.add_argument("--hdf5-cache-mb", type=int, default=8, help="HDF5's own chunk cache, for each file")
    p.add_argument("--days", type=int, default=0, help="steps of each of the four made files, 0: as many as --cache-mb asks for")
    args = p.parse_args()
    if args.what == "make":
        return print(*(make(args, c) for c in args.chunks), sep="\n")
    ranks = common.Ranks(args)
    (train if args.what == "train" else load)(args, ranks)


if __name__ == "__main__":
    sys.exit(main())
