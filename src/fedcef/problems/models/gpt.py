"""A GPT: a causal transformer that predicts the next token at every position.

Blocks are x + attention(norm(x)), then x + feed_forward(norm(x)).  Normalisation is by root mean squares (Zhang,
Sennrich, NeurIPS 2019), positions are rotations of queries and keys (Su et al., RoFormer, 2021), feed-forward layers
are SwiGLU (Shazeer, GLU variants improve transformer, 2020) or GELU.  There are no biases and no buffers: the rotations
are computed anew in each pass, from positions alone.

With L layers of width w and a vocabulary of V tokens, tied, there are

    p = L·(4 w² + 24 w ⌈w/3⌉ + 2 w) + w + V·w  ≈  12 L w² + V·w

parameters (with GELU the second term is 8 w²):

    layers  heads  width   bytes, V = 256   GPT-2's tokens, V = 50,257
         4      4    128          824,448                    7,224,576
         8      8    512       25,338,368                   50,938,880
        12     12    768       85,150,464                  123,551,232
        10     16   1024      126,276,608                  177,477,632
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import gelu, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from fedcef.core.errors import ConfigError
from fedcef.core.parts import check
from fedcef.core.ranges import Count

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angle at each position, (context, head width / 2)."""


class GPT(nn.Module):
    """A causal transformer over tokens, of any size.

    Args:
        input_shape: (context,): how many tokens an input has.  It reads any number: nothing in it depends on that.
        vocabulary: How many tokens there are, which are its classes.
        layers: How many blocks.
        heads: Of attention; the width of each, width / heads, must be even.
        width: Of what goes from block to block.
        feed_forward: "swiglu" or "gelu"; both have about 8 w² parameters.
        tied: Whether the output layer has the embedding's weights.
        checkpoint: Whether a block's activations are computed again on the way back, which takes the memory of one
            block in place of all of them, and a third more time.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        vocabulary: int,
        layers: int = 4,
        heads: int = 4,
        width: int = 128,
        feed_forward: Literal["swiglu", "gelu"] = "swiglu",
        tied: bool = True,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        layers, heads = check("model.layers", Count, layers), check("model.heads", Count, heads)
        width = check("model.width", Count, width)
        check("model.feed_forward", Literal["swiglu", "gelu"], feed_forward)
        if len(input_shape) != 1:
            raise ConfigError(
                f"gpt reads tokens (context,), not inputs {tuple(input_shape)}; take text, such as stdlib."
            )
        if width % (2 * heads):
            raise ConfigError(f"model.width is {width}; it must be an even multiple of model.heads = {heads}.")
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.output = nn.Linear(width, vocabulary, bias=False)
        if check("model.tied", bool, tied):
            self.output.weight = self.embedding.weight
        self._head_width, self._checkpoint = width // heads, check("model.checkpoint", bool, checkpoint)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # GPT-2's start: what is added to x is smaller the more blocks add to it
                adds = name.endswith((".attention.output.weight", ".feed_forward.output.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if adds else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, context) -> scores of the next token at each position, (batch, vocabulary, context)."""
        x = self.embedding(tokens)
        rotation = rotations(tokens.shape[-1], self._head_width, x)
        for block in self.blocks:
            x = run_again(block, x, rotation) if self._checkpoint and self.training else block(x, rotation)
        return self.output(self.norm(x)).transpose(1, 2)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to its input."""

    def __init__(self, width: int, heads: int, feed_forward: str) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.attention = Attention(width, heads)
        self.feed_forward = SwiGLU(width) if feed_forward == "swiglu" else GELU(width)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        """(batch, context, width) -> the same."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


def run_again(block: nn.Module, x: Tensor, rotation: Rotation) -> Tensor:
    """What the block makes of x; what it needs on the way back is computed anew there.

    Its parameters are handed over: on the way back, those that `functional_call` lends it are no longer in it.
    """
    names, parameters = zip(*block.named_parameters(), strict=True)

    def forward(x: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(block, dict(zip(names, parameters, strict=True)), (x, rotation))  # type: ignore[no-any-return]

    return checkpoint(forward, x, *parameters, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Causal attention with several heads: a position sees itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.input = nn.Linear(width, 3 * width, bias=False)  # queries, keys and values
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        """(batch, context, width) -> the same."""
        batch, context, width = x.shape
        queries, keys, values = self.input(x).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys = (rotate(part, rotation).to(values.dtype) for part in (queries, keys))
        seen = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.output(seen.transpose(1, 2).reshape(batch, context, width))  # type: ignore[no-any-return]


class SwiGLU(nn.Module):
    """W (silu(G x) · U x), with 8⌈w/3⌉ units."""

    def __init__(self, width: int) -> None:
        super().__init__()
        units = 8 * -(-width // 3)
        self.input = nn.Linear(width, 2 * units, bias=False)  # G and U
        self.output = nn.Linear(units, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> the same."""
        gate, up = self.input(x).chunk(2, -1)
        return self.output(silu(gate) * up)  # type: ignore[no-any-return]


class GELU(nn.Module):
    """W gelu(U x), with 4 w units."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 4 * width, bias=False)
        self.output = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> the same."""
        return self.output(gelu(self.input(x)))  # type: ignore[no-any-return]


def rotations(context: int, head_width: int, like: Tensor) -> Rotation:
    """Position t turns the i-th pair of entries by t · 10000^(-2i/d); computed in float32 at least, given as `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    pairs = torch.arange(0, head_width, 2, device=like.device, dtype=dtype)
    angles = torch.arange(context, device=like.device, dtype=dtype).unsqueeze(-1) * 10_000 ** (-pairs / head_width)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Each pair of entries (i, i + d/2) turned by its position's angle: (…, context, d) -> the same."""
    cos, sin = rotation
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
