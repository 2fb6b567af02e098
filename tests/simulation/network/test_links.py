"""How long a client's round takes, and what clients' links are like."""

from typing import get_args

import pytest
import torch

from fedcef.core.network import Network, Preset
from fedcef.simulation.network.links import Links
from fedcef.simulation.network.population import Drawn
from fedcef.simulation.network.presets import PRESETS


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


LINKS = Links(up=numbers(1e6, 2e6), down=numbers(8e6, 4e6), latency=numbers(0.02, 0.5), step=numbers(0.1, 0.3))


def test_a_round_is_latency_down_work_up_and_latency():
    timing = LINKS.timing(torch.tensor([1000, 1000]), 10, torch.tensor([500, 500]), overhead=2.0)
    assert timing.worked.tolist() == pytest.approx([0.02 + 0.001 + 2 + 1, 0.5 + 0.002 + 2 + 3], abs=1e-12)
    assert (timing.sent - timing.worked).tolist() == pytest.approx([0.004, 0.002], abs=1e-12)
    assert (timing.arrived - timing.sent).tolist() == pytest.approx([0.02, 0.5], abs=1e-12)


def test_a_reply_is_sent_as_far_as_its_upload_got():
    timing = LINKS.timing(torch.tensor([0, 0]), 0, torch.tensor([125_000, 125_000]))  # 1 s and 0.5 s of upload
    assert timing.share_sent(0.27).tolist() == pytest.approx([0.25, 0.0])
    assert timing.share_sent(0.75).tolist() == pytest.approx([0.73, 0.5])
    assert timing.share_sent(9.0).tolist() == [1.0, 1.0]


def test_nobody_is_faster_than_its_share_of_the_server():
    shared = LINKS.within(1.5e6)
    assert shared.up.tolist() == [1e6, 1.5e6]
    assert shared.down.tolist() == [1.5e6, 1.5e6]
    assert LINKS.within(0.0) is LINKS


def test_presets_are_those_of_the_settings():
    assert set(PRESETS) == set(get_args(Preset))


@pytest.mark.parametrize("preset", PRESETS)
def test_without_spread_everyone_has_the_preset(preset):
    network = Network(preset=preset, spread=0, step_spread=0, step_s=0.2)
    links, speeds = Drawn(network, seed=3).links(torch.tensor([0, 999_999])), PRESETS[preset]
    assert links.up.tolist() == pytest.approx([1e6 * speeds.up_mbit] * 2)
    assert links.down.tolist() == pytest.approx([1e6 * speeds.down_mbit] * 2)
    assert links.latency.tolist() == pytest.approx([1e-3 * speeds.latency_ms] * 2)
    assert links.step.tolist() == pytest.approx([0.2] * 2)


def test_own_numbers_come_before_those_of_the_preset():
    network = Network(preset="3g", up_mbit=2, down_mbit=5, latency_ms=0, spread=0)
    links = Drawn(network, seed=0).links(torch.tensor([7]))
    assert (links.up.item(), links.down.item(), links.latency.item()) == (2e6, 5e6, 0.0)


def test_a_client_is_the_same_whoever_else_is_asked_for():
    drawn = Drawn(Network(), seed=5)
    together, alone = drawn.links(torch.tensor([3, 10**6, 17])), drawn.links(torch.tensor([10**6]))
    for name in ("up", "down", "latency", "step"):
        assert torch.equal(getattr(together, name)[1:2], getattr(alone, name))
    other = Drawn(Network(), seed=6).links(torch.tensor([10**6]))
    assert not torch.equal(other.up, alone.up)


def test_speeds_are_log_normal_around_the_preset():
    links = Drawn(Network(preset="lte", spread=0.5, step_s=0.1, step_spread=0.25), seed=0).links(torch.arange(20_000))
    for values, median, deviation in ((links.up, 12e6, 0.5), (links.latency, 0.035, 0.5), (links.step, 0.1, 0.25)):
        logs = (values / median).log()
        assert abs(float(logs.mean())) < 4 * deviation / 20_000**0.5
        assert float(logs.std()) == pytest.approx(deviation, rel=0.02)
    assert torch.equal(links.up, links.down)  # one factor for both ways
    factors = torch.stack([links.up.log(), links.latency.log(), links.step.log()])
    assert float((torch.corrcoef(factors) - torch.eye(3)).abs().max()) < 0.03


def test_clients_come_and_go_by_periods():
    drawn, everyone = Drawn(Network(availability=0.3, availability_s=60), seed=1), torch.arange(20_000)
    now, later = drawn.available(everyone, 10.0), drawn.available(everyone, 59.9)
    assert torch.equal(now, later)
    then = drawn.available(everyone, 60.0)
    assert float(now.double().mean()) == pytest.approx(0.3, abs=0.015)
    assert float((now & then).double().mean()) == pytest.approx(0.09, abs=0.01)
    assert drawn.next_change(10.0) == drawn.next_change(0.0) == 60.0
    assert drawn.next_change(60.0) == 120.0
    assert Drawn(Network(), seed=1).available(everyone, 5.0).all()
