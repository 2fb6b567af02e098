"""Interrupts are held back, and stay ignored where they are ignored."""

import os
import signal

import pytest

from fedcef.core.interrupts import uninterrupted


def test_an_interrupt_waits_for_the_end_of_the_block():
    steps = []

    def block():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == ["the rest of the block"]


def test_an_ignored_interrupt_stays_ignored():
    """As in the workers of a sweep, which share a terminal with the process that answers Ctrl-C for all of them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
