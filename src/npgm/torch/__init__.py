"""PyTorch optimizers."""

from npgm.torch.optimizer import IHGD, NGD, NPGM, SHGD, SNGD
from npgm.torch.starting import Suggestion, suggest

__all__ = ["IHGD", "NGD", "NPGM", "SHGD", "SNGD", "Suggestion", "suggest"]
