"""Modules that are imported, and patterns that are compiled, at their first use."""

from __future__ import annotations

import copy
import re
import sys

import pytest

from transom.kit.lazy import lazy_import, lazy_pattern


def test_a_module_is_imported_with_the_first_use_of_an_attribute() -> None:
    name = "transom.kit.dnswire"
    known = sys.modules.pop(name, None)
    try:
        module = lazy_import(name)
        assert name not in sys.modules
        assert module.encode_query is sys.modules[name].encode_query
        with pytest.raises(AttributeError):
            _ = module.nothing_of_that_name
    finally:
        if known is not None:
            sys.modules[name] = known


def test_a_pattern_is_compiled_with_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_pattern(pattern: str, flags: int) -> re.Pattern[str]:
        compiled.append(pattern)
        return original(pattern, flags)

    original = re.compile
    monkeypatch.setattr(re, "compile", compile_pattern)
    words = lazy_pattern(r"(\w)(\w*)", re.ASCII)
    stored = words.fullmatch
    assert (compiled, words.pattern) == ([], r"(\w)(\w*)")
    found = stored("ab")
    assert found is not None and found.groups() == ("a", "b")
    compiled.clear()
    assert [words.sub(r"\2\1", text) for text in ("ab cd", "é")] == ["ba dc", "é"]
    assert len(compiled) == 1
    assert stored("é") is None


def test_a_pattern_of_bytes() -> None:
    assert lazy_pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_pattern_can_be_copied() -> None:
    assert copy.deepcopy(lazy_pattern("a+")).match("aa") is not None
