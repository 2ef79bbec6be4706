"""Train a small model on 2 and then on 4 processes in every parallel form; test_distributed.py compares with one.

    python tests/support/parallel.py FOLDER

Rank 0 writes FOLDER/WORLD_SIZE.pt with the parameters that each of its cases ends at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as DistributedDataParallel does, here once for all processes
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from npgm.torch import NPGM

STEPS = 2
ROWS, TOKENS, FEATURES = 8, 4, 5


class Model(nn.Module):
    """Two layers of sizes that do not divide evenly, so that some shards are empty, around a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, 12)
        self.outer = nn.Linear(12, 3)
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.outer(torch.tanh(self.inner(x))))


def model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def data(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    # of a size that the preconditioners bend
    inputs = torch.randn(ROWS, TOKENS, FEATURES, dtype=torch.float64, generator=generator)
    return inputs, 10 * torch.randn(ROWS, TOKENS, 3, dtype=torch.float64, generator=generator)


def optimizer(net: nn.Module, **changes: Any) -> NPGM:
    """Two groups: weights with decay and another scale, and the rest."""
    weights = [p for name, p in net.named_parameters() if name.endswith("weight")]
    others = [p for name, p in net.named_parameters() if not name.endswith("weight")]
    options = {"lr": 0.3, "momentum": 0.9, "reference": "isotropic-cosh"} | changes
    scale = 0.5 if options.get("scale") != "auto" else "auto"
    return NPGM([{"params": weights, "weight_decay": 0.1, "scale": scale}, {"params": others}], **options)


def zero(net: nn.Module, **changes: Any) -> torch.optim.Optimizer:
    """As `optimizer`, with the parameters and their momentum divided between the ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # whose import warns

    groups = [
        {key: value for key, value in group.items() if key in ("params", "weight_decay", "scale")}
        for group in optimizer(net, **changes).param_groups
    ]
    options = {"lr": 0.3, "momentum": 0.9, "reference": "isotropic-cosh"} | changes
    return ZeroRedundancyOptimizer(groups, NPGM, **options)


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: range, rank: int = 0, world: int = 1) -> None:
    for step in steps:
        dtype = next(net.parameters()).dtype
        inputs, targets = (part.chunk(world)[rank].to(dtype) for part in data(step))
        opt.zero_grad()
        (net(inputs) - targets).square().mean().backward()
        opt.step()


RUNS: dict[str, dict[str, Any]] = {
    "isotropic": {},
    "separable": {"reference": "separable-cosh"},
    "foreach": {"foreach": True},
    "foreach-separable": {"foreach": True, "reference": "separable-log"},
    "group": {"scope": "group"},
    "tensor": {"scope": "tensor", "weight_decay": 0.1, "decoupled_weight_decay": True},
    "tensor-foreach": {"scope": "tensor", "foreach": True},
    "skip": {"nonfinite": "skip", "reference": "separable-cosh"},
    "without-momentum": {"momentum": 0.0},
    "spectral": {"reference": "spectral-sqrt"},
    "spectral-before": {
        "reference": "spectral-cosh",
        "momentum_order": "before",
        "nesterov": True,
        "scale": "auto",
        "scale_decay": 0.0,
        "relative_scale": 0.1,
        "blocks": 3,
    },
    "auto": {"scale": "auto"},
    "auto-before": {"scale": "auto", "scope": "tensor", "momentum_order": "before", "foreach": True},
    "auto-separable": {"scale": "auto", "reference": "separable-log", "nonfinite": "skip"},
    "auto-separable-global": {"scale": "auto", "reference": "separable-log", "scope": "global"},
    "auto-spectral": {"scale": "auto", "reference": "spectral-sqrt", "momentum_order": "before", "nesterov": True},
    "limit": {"limit": 1.01},
    "limit-separable": {"limit": 1.01, "reference": "separable-log", "momentum_order": "before"},
    "limit-separable-global": {"limit": 1.01, "reference": "separable-log", "scope": "global"},
}


FLOAT32 = ["spectral", "spectral-before", "auto-spectral"]
APART = ["isotropic", "auto", "auto-separable-global", "limit-separable-global"]


def ddp() -> nn.Module:
    return DistributedDataParallel(model())


def fsdp() -> nn.Module:
    net = model()
    fully_shard(net.inner)
    fully_shard(net)
    return net


def fsdp_float32() -> nn.Module:
    net = model().float()
    fully_shard(net)
    return net


def fsdp_some() -> nn.Module:
    """DTensors beside plain tensors, which are replicated and averaged by hand."""
    net = model()
    fully_shard(net.inner)
    for parameter in [*net.outer.parameters(), *net.norm.parameters()]:
        parameter.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, dist.ReduceOp.AVG))
    return net


def hsdp() -> nn.Module:
    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "shard")))
    return net


def tensor_parallel() -> nn.Module:
    """All ranks see all rows; the gradients of the normalisation are partial sums over the sequence."""
    plan = {
        "inner": ColwiseParallel(),
        "outer": RowwiseParallel(output_layouts=SequenceParallel().sequence_sharding[0]),
        "norm": SequenceParallel(),
    }
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(model(), mesh, plan)
    net.register_forward_hook(lambda module, args, out: out.full_tensor())
    return net


def fsdp_and_tensor_parallel() -> nn.Module:
    """Pairs of ranks share their rows."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    net = parallelize_module(model(), mesh["tensor"], {"inner": ColwiseParallel(), "outer": RowwiseParallel()})
    fully_shard(net, mesh=mesh["data"])
    return net


FORMS: dict[str, Callable[[], nn.Module]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "fsdp-some": fsdp_some,
    "hsdp": hsdp,
    "tp": tensor_parallel,
    "fsdp-tp": fsdp_and_tensor_parallel,
}


ONE_OF_EACH_NORM = ["isotropic", "group", "spectral-before", "auto-separable-global"]
CASES = {
    2: {
        "ddp": ["isotropic", "separable"],
        "fsdp": list(RUNS),
        "fsdp-some": ONE_OF_EACH_NORM,
        "tp": [*ONE_OF_EACH_NORM, "separable", "tensor", "foreach", "auto", "spectral"],
        "zero": [*ONE_OF_EACH_NORM, "separable", "tensor", "foreach", "auto", "spectral", "limit"],
    },
    4: {
        "fsdp": ["isotropic", "spectral-before"],
        "hsdp": ONE_OF_EACH_NORM,
        "tp": ["isotropic"],
        "fsdp-tp": ["isotropic", "separable", "spectral-before", "auto-separable-global"],
        "zero": ["isotropic", "auto-separable-global", "limit-separable-global"],
    },
}
"""The runs by the number of processes and the form: all of them under FSDP."""


def cases(world: int) -> list[tuple[str, str]]:
    every = [(form, name) for form, names in CASES[world].items() for name in names]
    return [case for case in every if case != ("zero", "group")]  # which is refused


def full(net: nn.Module) -> list[Tensor]:
    return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for p in net.parameters()]


def resume(folder: Path, source: str | None, target: str, steps: range) -> list[Tensor]:
    """Load model and optimizer from ``source``, train under FSDP and save to ``target``."""
    net = fsdp()
    opt = optimizer(net)
    if source is not None:
        state = dict(zip(("model", "optimizer"), get_state_dict(net, opt), strict=True))
        dcp.load(state, checkpoint_id=folder / source)
        set_state_dict(net, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(net, opt, steps, dist.get_rank(), dist.get_world_size())
    dcp.save(dict(zip(("model", "optimizer"), get_state_dict(net, opt), strict=True)), checkpoint_id=folder / target)
    return full(net)


def nonfinite(policy: str) -> tuple[str, bool]:
    """Put a NaN in the shard of the last rank; return the error and whether anything changed on any rank."""
    net = fsdp()
    opt = optimizer(net, nonfinite=policy)
    train(net, opt, range(1), dist.get_rank(), dist.get_world_size())
    before = [*full(net), *(s["momentum_buffer"].full_tensor().clone() for s in opt.state.values())]
    if dist.get_rank() == dist.get_world_size() - 1:
        net.inner.weight.grad.to_local().view(-1)[0] = torch.nan
    message = ""
    try:
        opt.step()
    except RuntimeError as error:
        message = str(error)
    after = [*full(net), *(s["momentum_buffer"].full_tensor() for s in opt.state.values())]
    return message, all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def scaled() -> list[Tensor]:
    """Train under FSDP with a gradient scaler, whose scale overflows on one rank alone in one step."""
    net = fsdp()
    opt = optimizer(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    for step in [0, 0, *range(1, STEPS)]:
        inputs, targets = (part.chunk(dist.get_world_size())[dist.get_rank()] for part in data(step))
        opt.zero_grad()
        scaler.scale((net(inputs) - targets).square().mean()).backward()
        if scaler.get_scale() == 8.0 and dist.get_rank() == 1:
            net.inner.weight.grad.to_local().fill_(torch.inf)
        scaler.step(opt)
        scaler.update()
    return full(net)


TRACKED = ["isotropic", "separable", "tensor-foreach", "auto-spectral", "skip"]


def tracked(net: nn.Module, steps: range, rank: int = 0, world: int = 1, **options: Any) -> Tensor:
    """Train, and return the saturation of the last step: the groups by its four numbers."""
    opt = optimizer(net, track=True, **options)
    train(net, opt, steps, rank, world)
    return torch.stack([torch.stack(list(saturation)) for saturation in opt.saturation if saturation is not None])


def apart(**options: Any) -> list[Tensor]:
    """Step on each rank its own part of the parameters, as the stages of a pipeline do, and put them together."""
    net = model()
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [list(net.parameters())[i::world] for i in range(world)]
    opt = NPGM(parts[rank], 0.3, 0.9, weight_decay=0.1, **options)
    opt.process_group = dist.group.WORLD
    for step in range(STEPS):
        net.zero_grad()
        inputs, targets = data(step)
        (net(inputs) - targets).square().mean().backward()
        opt.step()
        for i, part in enumerate(parts):
            for parameter in part:
                dist.broadcast(parameter.detach(), i)
    return full(net)


def refused() -> dict[str, str]:
    """What is said of forms whose norm cannot be known, and of separable φ under FSDP1."""
    outcomes = {}
    for name in ("isotropic-cosh", "separable-cosh"):
        for original in (False, True):
            net = FullyShardedDataParallel(model(), use_orig_params=original, device_id=torch.device("cpu"))
            opt = NPGM(net.parameters(), 0.1, reference=name)
            outcomes[f"fsdp1 {original} {name}"] = said(lambda net=net, opt=opt: train(net, opt, range(1)))
    outcomes["zero group"] = said(lambda: zero(model(), scope="group"))
    return outcomes


def said(function: Callable[[], object]) -> str:
    try:
        function()
    except RuntimeError as error:
        return str(error)
    return ""


def run(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous-{world}", rank=rank, world_size=world)
    results: dict[Any, Any] = {}
    for form, name in cases(world):
        net = ddp() if form == "zero" else FORMS[form]()
        rows = {"tp": (0, 1), "fsdp-tp": (rank // 2, world // 2)}.get(form, (rank, world))
        make = zero if form == "zero" else optimizer
        train(net, make(net, **RUNS[name]), range(STEPS), *rows)
        results[form, name] = full(net)
    source = {2: None, 4: "from-2"}[world]
    steps = {2: range(2), 4: range(2, 4)}[world]
    results["resume"] = resume(folder, source, f"from-{world}", steps)
    results["apart"] = {name: apart(**RUNS[name]) for name in APART}
    if world == 2:
        results["refused"] = refused()
        results["tracked"] = {name: tracked(fsdp(), range(STEPS), rank, world, **RUNS[name]) for name in TRACKED}
        results["float32"] = {}
        for name in FLOAT32:
            net = fsdp_float32()
            train(net, optimizer(net, **RUNS[name]), range(STEPS))  # of all rows, so that gradients are equal
            results["float32"][name] = full(net)
    else:
        results["nonfinite"] = {policy: nonfinite(policy) for policy in ("propagate", "skip", "raise")}
        results["scaled"] = scaled()
    if rank == 0:
        torch.save(results, folder / f"{world}.pt")
    dist.destroy_process_group()


def main(folder: Path) -> None:
    for world in (2, 4):  # the second goes on from the first
        torch.multiprocessing.start_processes(run, (world, folder), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
