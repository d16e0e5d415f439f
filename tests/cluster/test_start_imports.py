"""What a cluster does not import before its nodes are ready, so that it starts quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What `cluster/run.py` imports on the way to ready nodes.
STARTED = (
    "transom.cluster.run",
    "transom.cluster.endpoints.node_control",
    "transom.controllers.early",
    "transom.node.pool",
    "transom.node.cluster_network",
    "transom.network.model.dataplane",
)
# Expensive, and first used by a pod, a command, a damaged store or a custom resource.
DEFERRED = (
    "numpy",
    "transom.apiserver.crd.definition",
    "transom.controllers.deployment",
    "transom.controllers.manager",
    "transom.ingress.controller",
    "transom.kit.streaming",
    "transom.kubelet.prober.handlers",
    "transom.machinery.apply",
    "transom.machinery.protobuf",
    "transom.machinery.structural",
    "transom.machinery.tables",
    "transom.network.model.walk",
    "transom.node.login",
    "transom.proxy.userspace.proxier",
    "transom.runtime.sim.context",
    "transom.scheduler",
    "transom.store.recover",
    "transom.store.snapshot_file",
    "transom.userland.start",
)


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    script = f"import sys, {', '.join(STARTED)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", DEFERRED)
def test_not_imported_before_the_nodes_are_ready(module: str, loaded: set[str]) -> None:
    assert module not in loaded
