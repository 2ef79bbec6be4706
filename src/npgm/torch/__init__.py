"""PyTorch optimizers, and the solvers for the loss of a module.

>>> import torch
>>> from npgm.torch import NGD
>>> model = torch.nn.Linear(4, 1)
>>> optimizer = NGD(model.parameters(), lr=0.1, momentum=0.9, scale=1.0, lr_like="sgd")
>>> model(torch.ones(8, 4)).square().mean().backward()
>>> optimizer.step()
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("npgm.torch needs PyTorch: pip install 'npgm[torch]'", name="torch") from error

from npgm.torch.methods import IHGD, NGD, SHGD, SNGD, SpectralGD
from npgm.torch.minimize import minimize
from npgm.torch.monitor import Monitor
from npgm.torch.optimizer import NPGM
from npgm.torch.parameters import matrices
from npgm.torch.saturation import Saturation
from npgm.torch.suggestion import Suggestion, suggest

__all__ = [
    "IHGD",
    "NGD",
    "NPGM",
    "SHGD",
    "SNGD",
    "Monitor",
    "Saturation",
    "SpectralGD",
    "Suggestion",
    "matrices",
    "minimize",
    "suggest",
]
