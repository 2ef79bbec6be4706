"""One pass over memory on CUDA devices, by the operators of `npgm.torch.fused` as `npgm.torch.triton` has them."""

from npgm.torch.fused import measure, move

__all__ = ["measure", "move"]
