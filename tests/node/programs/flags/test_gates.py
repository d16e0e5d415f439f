"""The feature gates that kubelets of a cluster have."""

from __future__ import annotations

import pytest

from transom.node.programs.flags.gates import cluster_gates

SETTINGS = ("ContainerStopSignals=true", "NodeSwap=true", "GenericWorkload=false")


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ((1, 20), {}),
        ((1, 30), {"NodeSwap": True}),  # the others are of later releases
        ((1, 36), {"ContainerStopSignals": True, "GenericWorkload": False}),  # NodeSwap is locked
    ],
)
def test_a_kubelet_has_the_gates_of_its_cluster_that_its_release_knows(
    release: tuple[int, int], found: dict[str, bool]
) -> None:
    assert cluster_gates(SETTINGS, release) == found
