"""Ctrl-C while the command is still being imported: no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from transom.cli import main as command_line

# Interrupts itself when the module is imported, as a user does who is fast.
_INTERRUPTED = """
import builtins, signal, sys
real = builtins.__import__
def interrupted(name, *arguments, **options):
    if name == {module!r}:
        signal.raise_signal(signal.SIGINT)
    return real(name, *arguments, **options)
builtins.__import__ = interrupted
from transom.cli.entry import main
sys.argv = ["transom", "version"]
sys.exit(main())
"""


def _interrupt(module: str) -> subprocess.CompletedProcess[str]:
    program = _INTERRUPTED.format(module=module)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=accept_interrupts,
    )


def accept_interrupts() -> None:
    """As in a terminal; a shell starts programs in the background with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_during_the_first_imports_ends_the_command_quietly() -> None:
    done = _interrupt("transom.cli.main")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_an_interrupt_during_the_imports_of_the_verb() -> None:
    done = _interrupt("transom.machinery.releases")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_ignored_interrupt_stays_ignored() -> None:
    program = 'trap \'\' INT; exec "$0" -c "$1"'
    code = _INTERRUPTED.format(module="transom.cli.main")
    done = subprocess.run(
        ["sh", "-c", program, sys.executable, code], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("transom "), done


def test_an_error_that_follows_from_an_interrupt_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in argparse, whose `finally` expects that all of the `try` has run."""

    def interrupted(arguments: list[str]) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise AttributeError("save_nargs")

    monkeypatch.setattr(command_line, "_dispatch", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert command_line.main(["list"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "")
