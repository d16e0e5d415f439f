"""Statements of the document about network modes that no other test covers: packets between nodes
and their requirements.
"""

from __future__ import annotations

import pytest
from tests.network.fabrics import Cluster, Mode, make_cluster


def peopled(mode: Mode) -> Cluster:
    """A pod on each of two Windows nodes."""
    cluster = make_cluster(mode)
    for name, node in (("near", "windows-1"), ("far", "windows-2")):
        cluster.pod(name, node)
    return cluster


@pytest.mark.windows("NET-14", "SUP-NET-008")
def test_a_bridge_does_not_encapsulate() -> None:
    cluster = peopled("l2bridge")
    found = cluster.walk("near", "far")
    [crossed] = [hop for hop in found.hops if hop.device == "underlay"]
    assert found.outcome == "delivered" and crossed.packet.outer is None
    assert (crossed.packet.source, crossed.packet.destination) == (
        cluster.address("near"),
        cluster.address("far"),
    )


@pytest.mark.windows("NET-26", "SUP-NET-013")
def test_an_overlay_needs_nothing_but_ip_between_nodes() -> None:
    """Whatever carries packets between nodes sees nodes alone, so that these need not be in one
    segment.
    """
    cluster = peopled("overlay")
    found = cluster.walk("near", "far")
    [crossed] = [hop for hop in found.hops if hop.device == "underlay"]
    assert found.outcome == "delivered" and crossed.packet.outer is not None
    seen = crossed.packet.outer.source, crossed.packet.outer.destination
    assert seen == (cluster.ip("windows-1"), cluster.ip("windows-2"))
