"""How the ranks of torchrun train networks together: each computes a share of every minibatch.

Gradients are those of the whole minibatch, of the size that the experiment states, so that a training ends where that
of one process does, up to rounding. Batch normalisation is the exception: as usual in PyTorch, each rank normalises
with the statistics of its own share, and the running statistics are those of the first rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from npgm.lab.experiments.spec import Resources
from npgm.torch.norms import is_dtensor


class Single:
    """One process by itself, which has the whole of everything."""

    rank = 0
    size = 1
    in_words = ""

    def wrap(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return the network on a device, such that its gradients will be means over the ranks."""
        return network.to(device)

    def share(self, start: int, stop: int) -> slice:
        """Return this rank's part of a range; the parts differ by one in length at most."""
        places = [start + (stop - start) * rank // self.size for rank in (self.rank, self.rank + 1)]
        return slice(*places)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks; ``values`` may be changed."""
        return values

    def agreed(self, value: Any) -> Any:
        """Return the value of the first rank."""
        return value

    def gathered(self, state: Any) -> Any:
        """Return a state with all parts of its tensors."""
        return state

    def part(self, values: Tensor, like: Tensor) -> Tensor:
        """Return what this rank has of a tensor, where it has a part of another one of that shape."""
        return values

    def load(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Let an optimizer take over a whole state."""
        optimizer.load_state_dict(state)


class Replicated(Single):
    """Ranks of which each has a copy of the network (`torch.nn.parallel.DistributedDataParallel`)."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.in_words = f", each on {self.size} ranks (DDP)"

    def wrap(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return a network on a device, such that its gradients will be means over the ranks."""
        return nn.parallel.DistributedDataParallel(network.to(device))

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks; ``values`` are changed."""
        dist.all_reduce(values)
        return values

    def agreed(self, value: Any) -> Any:
        """Return the value of the first rank."""
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]


class Sharded(Replicated):
    """Ranks of which each has a part of every parameter (FSDP2), for networks too large for one device."""

    def __init__(self) -> None:
        super().__init__()
        self.in_words = f", each on {self.size} ranks (FSDP)"

    def wrap(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return the network in parts, of which one layer at a time is put together."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        mesh = init_device_mesh(device.type, (self.size,))
        for layer in (*network.children(), network):
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        network.register_forward_pre_hook(_broadcast_buffers)
        return network

    def gathered(self, state: Any) -> Any:
        """Return a state with all parts of its tensors, on the first rank; the others have None in their place."""
        if isinstance(state, dict):
            return {key: self.gathered(value) for key, value in state.items()}
        if not is_dtensor(state):
            return state
        values = state.full_tensor()
        return values.cpu() if self.rank == 0 else None

    def part(self, values: Tensor, like: Tensor) -> Tensor:
        """Return what this rank has of a tensor, where it has a part of another one of that shape."""
        if not is_dtensor(like) or values.shape != like.shape:
            return values
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(values.to(like.device), like.device_mesh, like.placements)  # type: ignore[attr-defined]

    def load(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Let an optimizer take over a whole state."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        parts = {
            i: {name: self.part(value, parameters[i]) for name, value in entries.items()}
            for i, entries in state["state"].items()
        }
        super().load(optimizer, {**state, "state": parts})


def ranks(resources: Resources) -> Single:
    """Return how this process trains."""
    kinds = {None: Single, "ddp": Replicated, "fsdp": Sharded}
    return kinds[resources.parallel]()


def _broadcast_buffers(network: nn.Module, inputs: Any) -> None:
    """Make the running statistics those of the first rank, as DistributedDataParallel does."""
    buffers = [buffer for buffer in network.buffers() if buffer.is_floating_point()]
    if buffers:
        together = torch.cat([buffer.flatten() for buffer in buffers])
        dist.broadcast(together, src=0)
        for buffer, values in zip(buffers, torch.split(together, [buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(values.view_as(buffer))
