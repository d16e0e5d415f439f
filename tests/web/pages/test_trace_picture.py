"""The picture of a path: lanes, hops, rewritten addresses, and where the packet ends."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from transom.web.pages.trace_picture import LaneFacts, path_hops, path_lanes, path_picture

POD_NODES = {"default/client": "linux-1", "default/web": "windows-1"}


def packet(destination: str, port: int = 80, **more: Any) -> dict[str, Any]:
    return {
        "source": "10.244.1.2",
        "sourcePort": 40000,
        "destination": destination,
        "destinationPort": port,
        "protocol": "tcp",
        **more,
    }


def hop(place: str, device: str, what: str, destination: str, **more: Any) -> dict[str, Any]:
    return {"place": place, "device": device, "what": what, "packet": packet(destination, **more)}


def traced(verdict: str = "delivered", **more: Any) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "reason": None,
        "hops": [
            hop("pod default/client", "route", "to the gateway", "10.96.0.7"),
            hop("node linux-1", "nftables", "destination becomes 10.244.2.3", "10.244.2.3"),
            hop("node windows-1", "vSwitch port", "into the port", "10.244.2.3"),
            hop("pod default/web", "socket", "arrived", "10.244.2.3"),
        ],
        "reply": [],
        **more,
    }


def hops_of(document: dict[str, Any]) -> list[Any]:
    return path_hops(document, path_lanes(document, POD_NODES), POD_NODES)


def test_pods_are_in_the_lane_of_their_node() -> None:
    assert path_lanes(traced(), POD_NODES) == ["linux-1", "windows-1"]
    assert [one.lane for one in hops_of(traced())] == [0, 0, 1, 1]


def test_a_pod_of_an_unknown_node_has_a_lane() -> None:
    assert path_lanes(traced(), {}) == [
        "pod default/client",
        "linux-1",
        "windows-1",
        "pod default/web",
    ]


def test_rewritten_ends_are_marked_where_they_change() -> None:
    assert [sorted(one.changed) for one in hops_of(traced())] == [[], ["destination"], [], []]


@pytest.mark.parametrize(
    ("verdict", "state"), [("delivered", "ok"), ("dropped", "bad"), ("refused", "bad")]
)
def test_the_last_hop_shows_the_verdict(verdict: str, state: str) -> None:
    assert [one.state for one in hops_of(traced(verdict))] == ["", "", "", state]


def test_a_lost_reply_is_drawn_after_the_request() -> None:
    reply = [hop("node windows-1", "underlay", "dropped", "10.244.1.2")]
    found = hops_of(traced("dropped", reason="reply-lost", reply=reply))
    assert [one.number for one in found] == ["1", "2", "3", "4", "<1"]
    assert (found[-1].reply, found[-1].state, sorted(found[-1].changed)) == (True, "bad", [])


def test_the_picture_is_xml_and_escapes_names() -> None:
    document = traced()
    document["hops"][1]["what"] = "<script>alert(1)</script>"
    machines = {
        "linux-1": LaneFacts("linux", "Linux & more"),
        "windows-1": LaneFacts("windows", ""),
    }
    text = path_picture(document, POD_NODES, machines).text
    root = ElementTree.fromstring(text)
    assert "<script" not in text
    assert [g.get("data-hop") for g in root.iter("g") if g.get("data-hop")] == ["1", "2", "3", "4"]
    changed = [t.text for t in root.iter("tspan") if t.get("class") == "changed"]
    assert changed == ["10.244.2.3:80"]


def test_a_tunnel_is_shown_around_the_packet() -> None:
    outer = {"source": "172.20.0.3", "destination": "172.20.0.4", "vni": 4096, "port": 4789}
    document = traced()
    document["hops"][2]["packet"]["outer"] = outer
    assert "in 172.20.0.3 → 172.20.0.4" in path_picture(document, POD_NODES, {}).text
