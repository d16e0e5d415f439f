"""Ctrl-C while the command is still being imported: no traceback."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from transom.cli import entry


def test_an_interrupt_during_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def interrupted(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "transom.cli.main":
            raise KeyboardInterrupt
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert entry.main() == 130
