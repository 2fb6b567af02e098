"""Least squares on chains whose neighbours pull at each other, exactly and for all chains at once.

    minimise over u:   ½|u - x|² + Σ_i  up·max(u_{i+1} - u_i, 0) + down·max(u_i - u_{i+1}, 0)

down = up = λ is the proximal operator of 1-D total variation; down = 0, up = ∞ is isotonic regression (u may not rise).

Method: divide and conquer over levels (Hochbaum 2001; Darbon and Sigelle 2006).  On a stretch of the chain whose ends
are already known to lie above or below their neighbours, the best constant is the mean θ of its entries.  Which entries
of the solution exceed θ is a two-label problem on the chain, solved by dynamic programming:

    D_i = θ - x_i + clip(D_{i-1}, -down, up);    backwards, entry i is above θ if D_i < -down, below if D_i >= up,
                                                 otherwise as entry i+1;    the last one is above if D < 0.

If all are alike, the stretch is constant at θ.  Otherwise it is cut where labels change, which adds the pull of the
cut link to the entries at both sides.  "Add, then clip" is closed under composition, so the sums D are a parallel scan.

Cost: a pass is O(n log n) vector operations on the stretches still open; there are about log n passes on ordinary data,
and n at worst (entries that grow geometrically).  Everything is in float64; each pass waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def solve_chains(x: Tensor, first: Tensor, down: Tensor | float, up: Tensor | float) -> Tensor:
    """The minimiser: (..., p) -> (..., p) in float64.

    `first` marks, (..., p) or (p,), where chains begin; `down` and `up` broadcast over the leading axes.
    """
    shape = x.shape
    if x.numel() == 0:
        return x.double()

    def flat(t: Tensor | float) -> Tensor:
        return torch.as_tensor(t, dtype=torch.float64, device=x.device).expand(shape).reshape(-1)

    y, down, up = flat(x).clone(), flat(down), flat(up)
    starts = first.expand(shape).reshape(-1).clone()
    starts.view(-1, shape[-1])[:, 0] = True
    # No entry moves by more than down + up, so that a larger gap between neighbours stays one.
    gap = y.diff()
    sure = (gap.abs() > 2 * (down + up)[:-1]) & ~starts[1:]
    starts = _cut(y, starts, down, up, rises=sure & (gap > 0), falls=sure & (gap < 0))

    at = torch.arange(len(y), device=x.device)
    solution = torch.empty_like(y)
    while len(at):
        begins = starts.nonzero().squeeze(-1)
        lengths = pad(begins, (0, 1), value=len(y)).diff()
        of = starts.cumsum(0) - 1
        level = torch.segment_reduce(y, "mean", lengths=lengths)[of]
        above = _above(level - y, starts, down, up, int(lengths.max()))
        inside = ~starts[1:]
        rises, falls = inside & ~above[:-1] & above[1:], inside & above[:-1] & ~above[1:]
        is_open = torch.zeros_like(begins, dtype=torch.bool)
        is_open[of[1:][rises | falls]] = True
        open_ = is_open[of]
        solution[at[~open_]] = level[~open_]
        starts = _cut(y, starts, down, up, rises, falls)
        at, y, down, up, starts = (t[open_] for t in (at, y, down, up, starts))
    return solution.view(shape)


def _cut(y: Tensor, starts: Tensor, down: Tensor, up: Tensor, rises: Tensor, falls: Tensor) -> Tensor:
    """Cut links, (n-1,) each, at which the solution is known to rise or fall: changes y, returns the new starts."""
    pull = torch.where(rises, up[:-1], torch.where(falls, -down[:-1], 0))
    y[:-1] += pull
    y[1:] -= pull
    return torch.cat([starts[:1], starts[1:] | rises | falls])


def _above(cost: Tensor, starts: Tensor, down: Tensor, up: Tensor, longest: int) -> Tensor:
    """Which entries are above their stretch's level, given level - y: (n,) -> (n,) bool."""
    d = _clipped_sums(cost, starts, -down, up, longest)
    last = pad(starts[1:], (0, 1), value=True)
    low = d < -down
    decided = low | (d >= up) | last
    label = torch.where(last, d < 0, low)
    here = torch.arange(len(d), device=d.device)
    following = torch.where(decided, here, len(d)).flip(0).cummin(0).values.flip(0)
    return label[following]


def _clipped_sums(c: Tensor, starts: Tensor, low: Tensor, high: Tensor, longest: int) -> Tensor:
    """D_i = c_i + clip(D_{i-1}, low, high), and D_i = c_i at a start: (n,) -> (n,).

    The map from D_{i-k} to D_i is d ↦ clip(d + a, least, most); doubling k reaches every start in log2(longest) steps.
    """
    a = c.clone()
    least, most = torch.where(starts, c, c + low), torch.where(starts, c, c + high)
    k = 1
    while k < longest:
        floor, ceiling = least[k:], most[k:]
        new_least = torch.clamp(least[:-k] + a[k:], floor, ceiling)
        new_most = torch.clamp(most[:-k] + a[k:], floor, ceiling)
        new_a = a[:-k] + a[k:]
        least[k:], most[k:], a[k:] = new_least, new_most, new_a
        k *= 2
    return least
