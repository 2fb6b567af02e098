"""Functions that watch a run."""

import pytest
import torch

from fedcef import run
from fedcef.core.errors import ConfigError

from .setting import method, small_problem


def test_who_watches_cannot_change_what_is_recorded():
    def spoil(record, model):
        record.clear()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()

    def measures(**options):
        history = run(small_problem(), method(), rounds=4, eval_every=2, batch_size=8, **options)
        return [{name: value for name, value in record.items() if name != "wall_s"} for record in history]

    assert measures(watch=spoil) == measures()


def test_only_functions_watch():
    with pytest.raises(
        ConfigError, match="watch is 3; it must be a function of a record, or of a record and the model"
    ):
        run(small_problem(), method(), rounds=1, watch=3)
