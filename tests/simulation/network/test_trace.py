"""Clients from a file."""

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.simulation.network.trace import Trace

from .setting import fedavg, simulation

HEAD = "client,up,down,latency,step_s"
ROWS = "0,1e6,8e6,0.02,0.05\n1,4000000,2e7,0,0.5"


def read(tmp_path, text, num_clients=2):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return Trace.read(str(path), num_clients)


def test_every_client_has_its_own_numbers(tmp_path):
    trace = read(tmp_path, f"{HEAD}\n{ROWS}\n")
    links = trace.links(torch.tensor([1, 0, 1]))
    assert links.up.tolist() == [4e6, 1e6, 4e6]
    assert links.down.tolist() == [2e7, 8e6, 2e7]
    assert links.latency.tolist() == [0.0, 0.02, 0.0]
    assert links.step.tolist() == [0.5, 0.05, 0.5]
    assert trace.always_there
    assert trace.available(torch.tensor([0, 1]), 1e9).all()


def test_spaces_and_the_older_name_of_a_column_do_not_matter(tmp_path):
    trace = read(tmp_path, "client, up, down, latency, speed\n 0, 1e6, 8e6, 0.02, 0.05\n1 ,4000000, 2e7, 0, 0.5\n")
    assert trace.links(torch.tensor([1, 0])).step.tolist() == [0.5, 0.05]
    with pytest.raises(ConfigError, match="has the columns client, up, down, latency, step_s, step_s"):
        read(tmp_path, f"{HEAD},speed\n0,1,1,0,0,0\n")


@pytest.mark.parametrize("idle", [{"preset": "3g"}, {"spread": 0.0}, {"up_mbit": 2.0}, {"step_s": 1.0}])
def test_settings_that_a_trace_replaces_are_refused(tmp_path, idle):
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "".join(f"\n{client},1e6,8e6,0.02,0.05" for client in range(6)))
    simulation(fedavg(), {"trace": str(path), "overhead_s": 1.0})
    with pytest.raises(
        ConfigError, match=f"A trace says itself how fast clients are; leave network.{next(iter(idle))} out"
    ):
        simulation(fedavg(), {"trace": str(path), **idle})
    with pytest.raises(ConfigError, match=r"when clients are there; leave network\.availability_s out"):
        simulation(fedavg(), {"trace": str(path), "availability_s": 60.0})


def test_windows_open_close_and_begin_again(tmp_path):
    text = f"{HEAD},from,to\n0,1,1,0,0,10,20\n0,1,1,0,0,40,50\n1,1,1,0,0,,\n2,1,1,0,0,15,45\n"
    trace, everyone = read(tmp_path, text, 3), torch.arange(3)
    assert not trace.always_there

    def there(at):
        return trace.available(everyone, at).int().tolist()

    assert [there(at) for at in (0, 10, 15, 20, 45, 50)] == [
        [0, 1, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 1, 0], [0, 1, 0],
    ]  # fmt: skip
    assert there(50 + 17) == [1, 1, 1]
    assert [trace.next_change(at) for at in (0, 10, 15, 44, 45, 50, 61)] == [10, 15, 20, 45, 50, 60, 65]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "client,up\n0,1\n",
            "has the columns client, up; it must have client, up, down, latency, step_s, and may have",
        ),
        ("", r"has the columns \(none\)"),
        (f"{HEAD}\n0,1,1,0,0\n", "has no line for client 1; it must have all of 0 to 1"),
        (f"{HEAD}\n{ROWS}\n2,1,1,0,0\n", "Line 4 of .* is for client '2'; clients are 0 to num_clients - 1 = 1"),
        (f"{HEAD}\n0,0,1,0,0\n", "Line 2 of .* has up '0'; it must be a number above 0"),
        (f"{HEAD}\n0,1,1,soon,0\n", "Line 2 of .* has latency 'soon'; it must be a number, 0 or more"),
        (f"{HEAD}\n0,1,1,inf,0\n", "has latency 'inf'"),
        (f"{HEAD}\n0,1\n", "has down ''"),
        (f"{HEAD}\n{ROWS}\n1,5,5,5,5\n", "Line 4 of .* has other numbers for client 1 than a line before it"),
        (f"{HEAD},from,to\n0,1,1,0,0,5,5\n", "has no window: `from` must be before `to`"),
        (f"{HEAD},from,to\n0,1,1,0,0,5,\n", "has no window"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="which cannot be read"):
        Trace.read(str(tmp_path / "none.csv"), 2)
