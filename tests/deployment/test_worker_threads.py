"""A client computes with as many threads as the simulator would, since sums depend on their order."""

import pytest
import torch

from fedcef.deployment.protocol import Protocol

from .loopback import Loopback
from .setting import small_settings


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("small", "threads"), [(True, 1), (False, 3)])
def test_one_thread_for_small_problems_only(tmp_path, monkeypatch, three_threads, small, threads):
    loop = Loopback(small_settings("fedcef", rounds=4), tmp_path)
    loop.run(1)
    monkeypatch.setattr(Protocol, "is_small", property(lambda self: small))
    seen, algorithm = [], type(loop.workers[1].protocol.algorithm)
    for name in ("advance", "local"):  # following the log, and the work

        def watched(self, *args, plain=getattr(algorithm, name), name=name):
            seen.append((name, torch.get_num_threads()))
            return plain(self, *args)

        monkeypatch.setattr(algorithm, name, watched)
    loop.workers[1].handle(loop.server.start_round(0.0)[1])
    assert set(seen) == {("advance", threads), ("local", threads)}
    assert torch.get_num_threads() == 3
