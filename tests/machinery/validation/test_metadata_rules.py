"""Which kinds check metadata in their own rules."""

from __future__ import annotations

import pytest

from transom.machinery import kinds, validation

_BAD = {"name": "x", "namespace": "y", "labels": {"a b": "c"}}
_STORED = sorted(
    kind.key for kind in kinds.KINDS if kind.key not in (*validation.NOT_STORED, "/ComponentStatus")
)


@pytest.mark.parametrize("key", _STORED)
def test_the_table_of_kinds_without_metadata_rules_is_right(key: str) -> None:
    versions = ("", "v1beta1", "v1")
    group = key.partition("/")[0]
    for version in versions:
        rules = validation.validation_rules(key, f"{group}/{version}" if version else "")
        found = [
            error
            for error in rules.create({"metadata": dict(_BAD), "spec": {}})
            if error.field == "metadata.labels"
        ]
        assert bool(found) != (key in validation.WITHOUT_METADATA_RULES)
