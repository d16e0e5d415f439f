"""Feature gates by name; unknown ones are rejected with the known ones."""

from __future__ import annotations

import pytest

from transom.cluster.options import parse_feature_gates
from transom.kit.user_errors import UserError


def test_gates_are_read() -> None:
    assert parse_feature_gates(("TTLAfterFinished=true",)) == {"TTLAfterFinished": True}
    assert parse_feature_gates(("TTLAfterFinished=False",)) == {"TTLAfterFinished": False}


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("TTLAfterFinished=perhaps", "invalid value"),
    ],
)
def test_wrong_gates_are_refused(setting: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        parse_feature_gates((setting,))
