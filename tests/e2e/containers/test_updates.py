"""Configuration that changes while containers run. After the other tests: a node looks at its sources every ten seconds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.nodes.conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
LINUX, WINDOWS = ("linux", "--container=web", "--"), ("windows", "--container=web", "--")


def _seen(home: Space) -> tuple[str, str]:
    """What each container has now."""
    windows = home("exec", *WINDOWS, "cmd", "/c", r"type C:\settings\colour& type C:\keys\password")
    return home("exec", *LINUX, "cat", "/settings/colour", "/keys/password"), windows


def test_configuration_changes_while_it_is_mounted(home: Space) -> None:
    assert _seen(home) == ("redhush", "redhush")
    home("patch", "configmap", "settings", "--patch", '{"data": {"colour": "blue"}}')
    home("patch", "secret", "keys", "--patch", '{"stringData": {"password": "quiet"}}')

    def changed(found: Any) -> bool:
        number = found["metadata"]["resourceVersion"]
        home("annotate", "--overwrite", "pods", "linux", "windows", f"look=at-{number}")  # else once a minute
        return _seen(home) == ("bluequiet", "bluequiet")

    home.until(changed, "pod", "linux")
