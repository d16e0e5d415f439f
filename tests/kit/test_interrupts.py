"""Ctrl-C is delayed, not lost."""

from __future__ import annotations

import signal

import pytest

from transom.kit.interrupts import delayed_interrupts


def test_an_interrupt_takes_effect_at_the_end_of_the_block() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    steps: list[str] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            with delayed_interrupts():
                signal.raise_signal(signal.SIGINT)  # of this thread
                steps.append("after the signal")
            steps.append("not reached")
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["after the signal"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
