"""Caches of texts that clients choose keep no long ones."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import transom
from transom.kit.caching import text_cache

SOURCE = Path(transom.__file__).parent


def test_short_texts_are_kept_and_long_ones_are_not() -> None:
    calls: list[str] = []

    @text_cache(2, longest=3)
    def twice(text: str, *, upper: bool = False) -> str:
        calls.append(text)
        return (text.upper() if upper else text) * 2

    for text in ("a", "a", "abcd", "abcd", "a"):
        assert twice(text) == text * 2
    assert twice("a", upper=True) == "AA"
    assert calls == ["a", "abcd", "abcd", "a"]
    assert twice.cache_size() == 2  # type: ignore[attr-defined]


CACHES = [
    (".".join(("transom", *path.relative_to(SOURCE).with_suffix("").parts)), match[1] or match[2])
    for path in sorted(SOURCE.rglob("*.py"))
    for match in re.finditer(
        r"@text_cache\(.*\)\ndef (\w+)\(|^(\w+) = text_cache", path.read_text(), re.MULTILINE
    )
]


@pytest.mark.parametrize(("module", "name"), CACHES, ids=[name for _, name in CACHES])
def test_a_long_text_is_kept_nowhere(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    before = function.cache_size()
    for text in ("x" * 100_000, b"x" * 100_000):
        try:
            function(text)
        except Exception:  # noqa: S112 - many texts are invalid here; what is kept is the question
            continue
    assert function.cache_size() == before


def test_a_full_cache_starts_again() -> None:
    calls: list[str] = []

    @text_cache(2)
    def same(text: str) -> str:
        """Returns it."""
        calls.append(text)
        return text

    for text in ("a", "b", "a", "c", "a"):
        assert same(text) == text
    assert calls == ["a", "b", "c", "a"]
    assert same.__doc__ == "Returns it."


def test_an_error_is_not_kept() -> None:
    @text_cache(2)
    def fail(text: str) -> str:
        raise ValueError(text)

    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            fail("a")
    assert fail.cache_size() == 0  # type: ignore[attr-defined]


def test_there_are_caches_to_check() -> None:
    assert len(CACHES) > 20
