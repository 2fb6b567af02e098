"""What a server demands of its clients; everything else about a run is in `runs.config.Config`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fedcef.algorithm import Count, Positive


class Terms(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    min_clients: Count = 1
    """A round with fewer accepted replies does not end."""
    deadline_s: Positive = 600.0
    """When a round may end without those who have not answered."""
    outlier_factor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 100.0
    """A message's norm may be so many times the median of the cohort's; 0 = no limit.  Likewise a number of samples,
    where clients count by it.  It takes three to have a median: until there was a round with three, all are let in."""
    retries: Annotated[int, Field(ge=0)] = 3
    """How often a client is asked again in a round after a reply that could not be used."""
    max_reply_bytes: Annotated[int, Field(ge=0)] = 0
    """Longer replies are not looked at; 0 = what the model's vectors can take, sent whole in float64."""
