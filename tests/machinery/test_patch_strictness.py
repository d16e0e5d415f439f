"""Duplicate and unknown fields of patches."""

from __future__ import annotations

import pytest

from transom.machinery.strictness import patch_problems


@pytest.mark.parametrize(
    ("raw", "json_patch", "expected"),
    [
        (b'{"a": 1, "a": 2, "b": {"c": 1, "c": 2}}', False, ["a", "b.c"]),
        (b'[{"op": "add", "op": "add", "path": "/", "value": {"x": 1, "x": 2}}]', True, ["[0].op"]),
        (b"{", False, []),
        (b'{"a": 1}', False, []),
    ],
)
def test_duplicates_of_a_patch_are_found(raw: bytes, json_patch: bool, expected: list[str]) -> None:
    prefix = "json patch " if json_patch else ""
    wanted = [f'{prefix}duplicate field "{path}"' for path in expected]
    assert patch_problems(raw, json_patch=json_patch) == wanted
