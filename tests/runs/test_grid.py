"""The grid that a frontier takes where an experiment names no variants."""

import pytest

from fedcef.core.errors import ConfigError
from fedcef.runs.grid import default_grid, variants_or_grid
from fedcef.runs.settings import Settings, Variant


def test_ratios_by_values_by_downlinks():
    found = variants_or_grid(Settings(compressor={"name": "layerwise_topk", "ratio": 0.5}))
    assert len({config.label for config in found}) == 18
    assert {config.compressor["name"] for config in found} == {"layerwise_topk"}
    lossy = next(config for config in found if config.label == "r=0.03 log3, lossy 0.15")
    assert lossy.algorithm["downlink"] == "lossy"
    assert lossy.down_compressor == {"ratio": 0.15, "values": "log3"}
    assert {config.algorithm["downlink"] for config in found} == {"increment", "lossy"}


@pytest.mark.parametrize("downlink", ["lossy", "snapshot"])
def test_every_point_of_the_grid_can_be_run_whatever_the_experiment_s_own_downlink(downlink):
    """A [down_compressor] is refused where nothing is compressed with it."""
    lasso = {"data": {"name": "lasso"}, "compressor": {"name": "topk"}}
    config = Settings(algorithm={"name": "fedcef", "downlink": downlink}, down_compressor={"values": "sign"}, **lasso)
    problem = config.build_problem()
    for variant in variants_or_grid(config):
        assert variant.build_algorithm(problem).downlink == variant.algorithm["downlink"] != "snapshot"


def test_a_compressor_without_a_ratio_gives_way_and_a_method_without_a_lossy_downlink_has_none():
    found = variants_or_grid(Settings(algorithm={"name": "ef21"}))
    assert len(found) == 9
    assert {config.compressor["name"] for config in found} == {"topk"}
    assert all("downlink" not in config.algorithm for config in found)


def test_variants_of_the_experiment_come_first():
    found = variants_or_grid(Settings(compare=(Variant(label="a"),)))
    assert [config.label for config in found] == ["a"]


def test_a_method_that_does_not_compress_has_no_grid():
    with pytest.raises(ConfigError, match=r"no \[\[compare\]\] entries, and zhang has no compressor to vary"):
        default_grid(Settings(algorithm={"name": "zhang"}))
