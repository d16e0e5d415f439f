"""Shared by the end-to-end tests: a cluster with nodes, and one kubectl for what does not depend on
its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster


@pytest.fixture(scope="session")
def admin(cluster: Any) -> Kubectl:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    return Kubectl(binaries[0], cluster)


@pytest.fixture(scope="session")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("mixed")) as running:
        yield running


@pytest.fixture(scope="session")
def mixed_kubectl(mixed_cluster: Cluster) -> Kubectl:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    return Kubectl(binaries[-1], mixed_cluster)
