"""Ranges of options, as annotated types: settings, methods and compressors declare their fields by them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A finite number above 0."""
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A finite number, 0 or more."""
Fraction = Annotated[float, Field(gt=0, le=1)]
"""A share: above 0 and at most 1."""
UnitInterval = Annotated[float, Field(ge=0, le=1)]
"""From 0 to 1, both included."""
Count = Annotated[int, Field(ge=1, lt=2**62)]
"""A whole number, 1 or more."""
NotNegative = Annotated[int, Field(ge=0, lt=2**62)]
"""A whole number, 0 or more."""

Scalar = float | Tensor
"""A step size: a number, or a 0-dim tensor on the vectors' device where a schedule changes it from round to round."""
