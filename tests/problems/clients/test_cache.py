"""What was read is kept up to a limit, each client is read once at a time, and a thread reads ahead."""

import pickle
import subprocess
import sys
import threading
import time

import pytest
import torch

from fedcef import clients
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.problems.client_data import Samples
from fedcef.problems.clients.cache import Cache


def client(number, rows=1):
    """32 bytes a row."""
    return Samples(torch.full((rows, 6), float(number)), torch.full((rows,), number))


class Reader:
    """Counts what is read; a client may be held up."""

    def __init__(self, rows=1):
        self.read, self.rows, self.gates = [], rows, {}

    def __call__(self, number):
        self.read.append(number)
        gate = self.gates.get(number)
        assert gate is None or gate.wait(10)
        return client(number, self.rows)


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_least_recently_used_go_first():
    reader = Reader()
    cache = Cache(reader, limit=3 * 32)
    for number in (0, 1, 2, 0, 3, 0, 2, 1):  # 3 drops 1, which 0 and 2 were used after; then 1 drops 3
        assert int(cache.get(number).targets[0]) == number
    assert reader.read == [0, 1, 2, 3, 1]
    cache.get(0)
    assert reader.read == [0, 1, 2, 3, 1]


def test_a_client_above_the_limit_is_read_every_time_and_drops_nobody():
    reader = Reader()
    cache = Cache(lambda number: reader(number) if number else client(0, 5), limit=4 * 32)
    for number in (1, 0, 1):
        assert len(cache.get(number)) == (1 if number else 5)
    assert reader.read == [1]


def test_reading_ahead():
    reader = Reader()
    cache = Cache(reader, limit=1000)
    cache.read_ahead([4, 5, 6])
    wait_for(lambda: cache._thread is None)
    assert reader.read == [4, 5, 6]
    assert int(cache.get(5).targets[0]) == 5
    cache.read_ahead([5, 6])  # both are here
    assert cache._thread is None
    assert reader.read == [4, 5, 6]


def test_at_most_half_the_limit_is_read_ahead():
    reader = Reader()
    cache = Cache(reader, limit=8 * 32)
    for number in (100, 101, 102):
        cache.get(number)
    cache.read_ahead(range(20))
    wait_for(lambda: cache._thread is None)
    assert reader.read[3:] == [0, 1, 2, 3, 4]  # the last one passes the mark
    cache.get(101)
    cache.get(102)
    assert len(reader.read) == 8  # whom the round works on are still here


def test_who_needs_a_client_that_is_being_read_waits_for_it():
    reader = Reader()
    gate = reader.gates[4] = threading.Event()
    cache = Cache(reader, limit=1000)
    cache.read_ahead([4])
    wait_for(lambda: reader.read == [4])
    threading.Timer(0.05, gate.set).start()
    assert int(cache.get(4).targets[0]) == 4
    assert reader.read == [4]


def test_a_new_hint_takes_the_place_of_the_old_one():
    reader = Reader()
    gate = reader.gates[0] = threading.Event()
    cache = Cache(reader, limit=1000)
    cache.read_ahead(range(10))
    wait_for(lambda: reader.read == [0])
    cache.read_ahead([20, 21])
    gate.set()
    wait_for(lambda: cache._thread is None)
    assert reader.read == [0, 20, 21]


def test_what_fails_ahead_is_told_to_whoever_needs_the_client():
    broken = True

    def load(number):
        if broken and number == 3:
            raise OSError("the disk is gone")
        return client(number)

    data = clients.from_function(load, num_clients=5)
    data.prefetch(torch.tensor([2, 3, 4]))
    wait_for(lambda: data._cache._thread is None)
    assert len(data.samples(4)) == 1  # it went on
    with pytest.raises(ProblemError, match=r"^The data of client 3 cannot be read: the disk is gone$"):
        data.samples(3)
    broken = False
    assert len(data.samples(3)) == 1


def test_a_failure_while_someone_waits_is_tried_again_by_that_one():
    gate, calls = threading.Event(), []

    def read(number):
        calls.append(threading.current_thread().name)
        assert gate.wait(10)
        if len(calls) == 1:
            raise OSError("once")
        return client(number)

    cache = Cache(read, limit=1000)
    cache.read_ahead([1])
    wait_for(lambda: calls)
    threading.Timer(0.05, gate.set).start()
    assert len(cache.get(1)) == 1
    assert calls == ["fedcef-read-ahead", threading.current_thread().name]


def test_the_program_ends_while_clients_are_read_ahead():
    code = """
import threading, time, torch
from fedcef import clients
started = threading.Event()
def load(client):
    started.set()
    time.sleep(60 if client else 0)
    return torch.zeros(1, 2), torch.zeros(1)
data = clients.from_function(load, num_clients=3)
data.prefetch(torch.tensor([1, 2]))
started.wait()
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun < 45


def test_a_copy_for_another_process_has_read_nothing():
    cache = Cache(client, limit=1000)
    cache.get(1)
    other = pickle.loads(pickle.dumps(cache))
    assert not other._kept
    assert int(other.get(2).targets[0]) == 2


@pytest.mark.parametrize("cache", ["much", None, True])
def test_a_limit_that_is_none(cache):
    with pytest.raises(ConfigError, match=r"^cache is .*; it must be a number of bytes such as 300MB or 1e9\.$"):
        clients.from_function(client, num_clients=2, cache=cache)
