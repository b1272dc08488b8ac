# SPDX-License-Identifier: BSD-3-Clause
"""Initialize the process group, wrap a model in DDP, do one step, print the phases' times."""
import time

T0 = time.time()
import torch                                                    # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP    # noqa: E402

import common                                                   # noqa: E402

T1 = time.time()


def main():
    args = common.parser(__doc__).parse_args()
    ranks = common.Ranks(args)
    startup = common.StartUp(ranks)
    t2 = time.time()
    net = torch.nn.Linear(64, 64).to(ranks.device)
    model = DDP(net, device_ids=ranks.device_ids) if ranks.world > 1 else net
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loss = model(torch.ones(8, 64, device=ranks.device)).square().mean()
    loss.backward()
    opt.step()
    startup.first_step_done()
    t3 = time.time()
    phases = ranks.reduce([T0 - startup.launch if startup.launch else 0.0, T1 - T0, t2 - T1, t3 - t2])
    names = ("launch_to_script_s", "import_s", "init_s", "model_and_step_s")
    common.report(ranks, args, "startup_step", startup, loss=round(float(loss.detach()), 5),
                  **{k: round(v, 3) for k, v in zip(names, phases)})


if __name__ == "__main__":
    main()
