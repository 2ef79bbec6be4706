"""Step once under each stage of DeepSpeed's ZeRO; test_deepspeed.py compares with one process.

    torchrun --standalone --nproc-per-node 2 tests/support/deepspeed_stages.py FILE

Rank 0 writes FILE with the parameters, or the error, of each case.
"""

from __future__ import annotations

import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor, nn

from npgm.torch import IHGD, SHGD

STAGES = (0, 1, 2, 3)
OPTIMIZERS = {"IHGD": IHGD, "SHGD": SHGD}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def loss(net: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, 5, generator=generator)
    return (net(inputs) - 30.0 * torch.randn(8, 3, generator=generator)).square().mean()


def step(name: str, stage: int) -> list[Tensor] | str:
    net = model()
    options = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage},
    }
    try:
        optimizer = OPTIMIZERS[name](net.parameters(), lr=1.0)
        engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=options)
        engine.backward(loss(engine))
        engine.step()
    except RuntimeError as error:
        return str(error)
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=stage == 3):
        return [p.detach().clone() for p in parameters]


def main() -> None:
    deepspeed.init_distributed("gloo")
    results = {(name, stage): step(name, stage) for name in OPTIMIZERS for stage in STAGES}
    if dist.get_rank() == 0:
        torch.save(results, sys.argv[1])


if __name__ == "__main__":
    main()
