"""An LSTM over tokens (Hochreiter, Schmidhuber, Long short-term memory, 1997)."""

from __future__ import annotations

from torch import Tensor, nn

from fedcef.core.errors import ConfigError
from fedcef.core.parts import check
from fedcef.core.ranges import Count


class LSTM(nn.Module):
    """A recurrent network over tokens; by default that of McMahan et al. (2017) for the characters of Shakespeare.

    Args:
        input_shape: (context,): how many tokens an input has; it reads any number.
        vocabulary: How many tokens there are, which are its classes.
        layers: How many LSTM layers.
        width: Units of each.
        embedding: How many numbers stand for a token.
    """

    def __init__(
        self, input_shape: tuple[int, ...], vocabulary: int, layers: int = 2, width: int = 256, embedding: int = 8
    ) -> None:
        super().__init__()
        layers, width = check("model.layers", Count, layers), check("model.width", Count, width)
        embedding = check("model.embedding", Count, embedding)
        if len(input_shape) != 1:
            raise ConfigError(
                f"lstm reads tokens (context,), not inputs {tuple(input_shape)}; take text, such as stdlib."
            )
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.recurrence = nn.LSTM(embedding, width, layers, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, context) -> scores of the next token at each position, (batch, vocabulary, context)."""
        states, _ = self.recurrence(self.embedding(tokens))
        return self.output(states).transpose(1, 2)  # type: ignore[no-any-return]
