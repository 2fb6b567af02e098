"""What a server demands of its clients, and how it knows them: the section `[deployment]` of a run's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedcef.core.ranges import Count, NonNegative, NotNegative, Positive


class DeploymentSettings(BaseModel):
    """The server's own settings: clients need not know them, and a resumed run may change them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_clients: Count = 1
    """A round with fewer accepted replies does not end."""
    deadline_s: Positive = 600.0
    """When a round may end without those who have not answered."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0
    """When so large a share of those who were asked has answered, the others have `grace_s` more; 1 = the deadline."""
    grace_s: NonNegative = 30.0
    """How long a round goes on after its quorum is there."""
    misses: NotNegative = 3
    """A client that misses so many rounds in a row is asked in every second round, then in every fourth, and so on to
    every 32nd, until it takes part again; 0 = in every round.  Methods that need everyone ask everyone."""
    patience_s: NonNegative = 60.0
    """How long the first round waits for all clients; then it begins with those who are there, if they are enough."""
    outlier_factor: NonNegative = 100.0
    """A message's norm may be so many times the median of the cohort's; 0 = no limit.  Likewise a number of samples,
    where clients count by it.  It takes three to have a median: until there was a round with three, all are let in."""
    retries: NotNegative = 3
    """How often a client is asked again in a round after a reply that could not be used."""
    max_reply_bytes: NotNegative = 0
    """Longer replies are not looked at; 0 = what the model's vectors can take, sent whole in float64."""
    identity: Literal["number", "key"] = "number"
    """What a client is known by: the number in its own settings, which anyone can claim, or its public key.  Take `key`
    where the transport checks keys."""
    keys: tuple[str, ...] = ()
    """The keys of clients 0, 1, …, by the names that `fedcef deployment key FILE` prints; "" leaves a number to whoever
    claims it first.  Nobody else gets these numbers."""

    @model_validator(mode="after")
    def _keys_are_used(self) -> Self:
        if self.keys and self.identity != "key":
            raise ValueError(
                "deployment.keys says who has which key; set deployment.identity = 'key' too, or leave it out"
            )
        given = [key for key in self.keys if key]
        if len(set(given)) < len(given):
            raise ValueError("deployment.keys has a key twice; each client has its own")
        return self
