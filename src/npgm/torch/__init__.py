"""PyTorch optimizers."""

from npgm.torch.optimizer import IHGD, NGD, NPGM, SHGD, SNGD

__all__ = ["IHGD", "NGD", "NPGM", "SHGD", "SNGD"]
