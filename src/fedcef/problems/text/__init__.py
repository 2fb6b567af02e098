"""Text: tokens, windows of them as samples, corpora and how they are dealt to clients."""

from fedcef.problems.text.loss import next_token_loss
from fedcef.problems.text.windows import TextData, from_texts

__all__ = ["TextData", "from_texts", "next_token_loss"]
