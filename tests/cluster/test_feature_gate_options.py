"""Feature gates and API groups by name; unknown ones are rejected with the known ones."""

from __future__ import annotations

import pytest

from transom.cluster.options import parse_feature_gates, parse_runtime_config
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


@pytest.mark.parametrize("setting", ["api/beta=true", "batch/v1beta1=false", "v1=true", "api/all"])
def test_runtime_configuration_is_read(setting: str) -> None:
    assert parse_runtime_config((setting,)) == {setting.partition("=")[0]: "false" not in setting}


def test_unknown_api_groups_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown api groups foo\.example\.com"):
        parse_runtime_config(("foo.example.com/v1=true",))
