"""A validation keeps a bounded number of errors for any object."""

from __future__ import annotations

import pytest

from transom.machinery import field, validation
from transom.machinery.errors import GroupResource, invalid
from transom.machinery.field import OMITTED, FieldError, bounded_errors
from transom.machinery.kinds import KINDS

ROLE = next(kind for kind in KINDS if kind.kind == "ClusterRole")


def test_errors_beyond_the_limit_share_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "MAX_ERRORS", 100)
    role = {"metadata": {"name": "a"}, "rules": [{}] * 5000}
    found = validation.validate_create(ROLE, role)
    assert len(found) >= 5000
    assert len({id(error) for error in found}) == 101
    assert all(isinstance(error, FieldError) for error in found)
    problem = invalid(GroupResource("", "ClusterRole"), "a", found)
    assert len(problem.status()["details"]["causes"]) == 100
    assert problem.message.endswith(f"(and {len(found) - 100} more errors)")
    assert OMITTED.detail not in problem.message


def test_each_validation_has_the_whole_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "MAX_ERRORS", 2)
    for _ in range(3):
        with bounded_errors():
            found = [field.required("a"), field.required("b"), field.required("c")]
        assert [error is OMITTED for error in found] == [False, False, True]
    assert field.required("outside") is not OMITTED
