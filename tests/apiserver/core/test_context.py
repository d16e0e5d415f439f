"""The field manager of requests."""

from __future__ import annotations

import pytest

from transom.apiserver.core.context import RequestContext, UserInfo


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1.20.0 (linux/amd64)", "kubectl"),
        ("my\tagent\x7f/1", "myagent"),
        ("x" * 200, "x" * 128),
        ("é" * 100, "é" * 64),
        ("/1", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_client_without_a_field_manager_is_named_by_its_user_agent(
    agent: str, manager: str
) -> None:
    assert RequestContext(UserInfo("jane"), 0.0, user_agent=agent).manager == manager
