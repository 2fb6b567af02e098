"""The local step as one pass over memory, where there is a kernel for it.

On a GPU a local step on p parameters is bound by the bytes it moves.  Written as torch operations it makes twelve
passes over the vectors; the kernel makes seven.  Elsewhere, and for regularisers whose proximal operator is
more than soft-thresholding, the torch operations are what is done.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef import kernels
from fedcef.regularizers import Regularizer


def corrected_step(
    x_hat: Tensor,
    g_sum: Tensor,
    g: Tensor,
    correction: Tensor,
    local_lr: float | Tensor,
    regularizer: Regularizer | None,
    prox_step: float | Tensor,
) -> Tensor:
    """In place g_sum += g and x̂ ← x̂ - α (g + correction); returns prox(x̂), or x̂ itself without a regulariser.

    g is overwritten.
    """
    one_length = not (isinstance(local_lr, Tensor) and local_lr.ndim)
    if one_length and x_hat.is_cuda and kernels.available(x_hat.device):
        from fedcef.kernels.update import corrected_step as in_one_pass

        shrinkage = None if regularizer is None else regularizer.shrinkage
        if shrinkage is not None:
            return in_one_pass(x_hat, g_sum, g, correction, local_lr, shrinkage * prox_step)
    g_sum.add_(g)
    g.add_(correction)
    if isinstance(local_lr, Tensor):
        x_hat.sub_(g.mul_(local_lr))
    else:
        torch.sub(x_hat, g, alpha=local_lr, out=x_hat)
    return x_hat if regularizer is None else regularizer.prox(x_hat, prox_step)
