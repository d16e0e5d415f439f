"""Shared by the end-to-end tests: one kubectl for what does not depend on its version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import Kubectl, kubectl_binaries


@pytest.fixture(scope="session")
def admin(cluster: Any) -> Kubectl:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    return Kubectl(binaries[0], cluster)
