"""Ctrl-C is delayed, not lost."""

from __future__ import annotations

import signal
import subprocess
import sys

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


def test_an_interrupt_waits_until_an_extension_module_is_imported() -> None:
    program = """
import importlib.machinery, signal, sys
from transom.kit.interrupts import delay_interrupts_during_imports
steps = []
real = importlib.machinery.ExtensionFileLoader.exec_module
def interrupted(self, module):
    if module.__name__ == "orjson.orjson":
        signal.raise_signal(signal.SIGINT)
        steps.append("loaded")
    return real(self, module)
importlib.machinery.ExtensionFileLoader.exec_module = interrupted
delay_interrupts_during_imports()
try:
    import orjson
except KeyboardInterrupt:
    steps.append("interrupted")
print(steps, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout.strip() == "['loaded', 'interrupted'] set()", done
