"""Draws the path of a packet as SVG: a lane for each machine, a box for each hop, the packet under it.

A pure function of the document of `transom trace`. Colours come from classes of the style sheet.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.network.model.addresses import address_with_port
from transom.web.markup import Child, Markup, tag

LANE_WIDTH: Final = 310
_MARGIN: Final = 12
_BOX: Final = LANE_WIDTH - 2 * _MARGIN
_HEAD: Final = 54
_LINE: Final = 16
_POD_LINE: Final = 20
_COLUMNS: Final = 40  # characters of a line in a box
_PACKET: Final = 30  # height of the line with the packet
_SPACE: Final = 26  # between the packet and the next box


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """What is known of a machine: its operating system ("linux", "windows", "") and a description."""

    os: str
    about: str


@dataclass(frozen=True, slots=True)
class PathHop:
    number: str
    lane: int
    pod: str  # "" unless the hop is in a pod
    device: str
    what: list[str]
    packet: dict[str, Any]
    changed: frozenset[str]  # ends of the packet that this hop rewrites
    state: str  # "", "ok" or "bad"
    reply: bool

    @property
    def height(self) -> int:
        return 30 + (_POD_LINE if self.pod else 0) + _LINE * len(self.what) + 6


def path_lanes(document: Mapping[str, Any], pod_nodes: Mapping[str, str]) -> list[str]:
    """The machines of a path in the order of the packet. A pod of an unknown node has its own."""
    hops = [*document["hops"], *(document["reply"] if shows_reply(document) else ())]
    return list(dict.fromkeys(_machine(hop["place"], pod_nodes) for hop in hops))


def shows_reply(document: Mapping[str, Any]) -> bool:
    return document["reason"] == "reply-lost"


def _machine(place: str, pod_nodes: Mapping[str, str]) -> str:
    kind, _, name = place.partition(" ")
    if kind == "pod":
        return pod_nodes.get(name) or place
    return name if kind == "node" and name else place


def path_hops(
    document: Mapping[str, Any], lanes: Sequence[str], pod_nodes: Mapping[str, str]
) -> list[PathHop]:
    found: list[PathHop] = []
    before: Mapping[str, Any] = {}
    reply = document["reply"] if shows_reply(document) else []
    last = len(document["hops"]) + len(reply)
    for count, hop in enumerate([*document["hops"], *reply], 1):
        is_reply = count > len(document["hops"])
        number = f"<{count - len(document['hops'])}" if is_reply else str(count)
        if count == len(document["hops"]) + 1:
            before = {}
        state = ""
        if count == last:
            state = "ok" if document["verdict"] == "delivered" else "bad"
        place, packet = hop["place"], hop["packet"]
        found.append(
            PathHop(
                number,
                lanes.index(_machine(place, pod_nodes)),
                place.removeprefix("pod ") if place.startswith("pod ") else "",
                hop["device"],
                textwrap.wrap(hop["what"], _COLUMNS, break_long_words=True)[:6],
                packet,
                frozenset(_changes(before, packet)),
                state,
                is_reply,
            )
        )
        before = packet
    return found


def _changes(before: Mapping[str, Any], packet: Mapping[str, Any]) -> Iterator[str]:
    """The ends whose address or port is not that of the packet before."""
    for end in ("source", "destination"):
        keys = (end, f"{end}Port")
        if before and any(before.get(key) != packet.get(key) for key in keys):
            yield end


def path_picture(
    document: Mapping[str, Any],
    pod_nodes: Mapping[str, str],
    machines: Mapping[str, LaneFacts],
) -> Markup:
    """`pod_nodes`: the node of each pod (NAMESPACE/NAME); `machines`: facts by name of the node."""
    lanes = path_lanes(document, pod_nodes)
    hops = path_hops(document, lanes, pod_nodes)
    tops: list[int] = []
    y = _HEAD + 14
    for hop in hops:
        tops.append(y)
        y += hop.height + _PACKET + _SPACE
    width, height = LANE_WIDTH * len(lanes), y - _SPACE + _MARGIN
    unknown = LaneFacts("", "")
    return tag(
        "svg",
        [_lane(i, name, machines.get(name, unknown), height) for i, name in enumerate(lanes)],
        [_arrow(a, b, tops[i], tops[i + 1]) for i, (a, b) in enumerate(pairwise(hops))],
        [_box(hop, top) for hop, top in zip(hops, tops, strict=True)],
        class_="path-picture",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=f"Path of the packet over {', '.join(lanes)}; the table below has the same steps",
    )


def _lane(number: int, name: str, facts: LaneFacts, height: int) -> Markup:
    x = number * LANE_WIDTH
    middle = x + LANE_WIDTH / 2
    return tag(
        "g",
        tag("rect", x=x + 4, y=2, width=LANE_WIDTH - 8, height=height - 4, rx=10, class_="lane"),
        tag("text", _short(name, 34), x=middle, y=24, class_="lane-name"),
        tag("text", _short(facts.about, 44), x=middle, y=43, class_="lane-about"),
        class_=f"lane-group {facts.os}".strip(),
    )


def _arrow(start: PathHop, end: PathHop, start_top: int, end_top: int) -> Markup:
    x1 = start.lane * LANE_WIDTH + LANE_WIDTH / 2
    x2 = end.lane * LANE_WIDTH + LANE_WIDTH / 2
    y1, y2 = start_top + start.height + _PACKET, end_top - 5
    middle = (y1 + y2) / 2
    points = f"M{x1},{y1}V{middle}H{x2}V{y2}" if start.lane != end.lane else f"M{x1},{y1}V{y2}"
    tip = f"M{x2 - 5},{y2 - 4}L{x2},{y2 + 4}L{x2 + 5},{y2 - 4}Z"
    return tag(
        "g",
        tag("path", d=points, class_="way"),
        tag("path", d=tip, class_="tip"),
        class_="reply" if end.reply else None,
    )


def _box(hop: PathHop, top: int) -> Markup:
    x = hop.lane * LANE_WIDTH + _MARGIN
    rows: list[Child] = []
    y = top + 21
    if hop.pod:
        rows.append(tag("text", _short(f"pod {hop.pod}", 44), x=x + 12, y=y, class_="in-pod"))
        y += _POD_LINE
    rows += [
        tag("circle", cx=x + 20, cy=y - 4, r=10, class_="number-circle"),
        tag("text", hop.number, x=x + 20, y=y, class_="number-text"),
        tag("text", _short(hop.device, 30), x=x + 37, y=y, class_="device"),
    ]
    for line in hop.what:
        y += _LINE
        rows.append(tag("text", line, x=x + 12, y=y + 3, class_="what"))
    below = top + hop.height
    rows += [
        tag("rect", x=x, y=below, width=_BOX, height=_PACKET - 4, rx=6, class_="packet-box"),
        _packet_text(hop, x + _BOX / 2, below + 17),
    ]
    classes = " ".join(
        filter(None, ("hop", hop.state, "pod" if hop.pod else "", "reply" if hop.reply else ""))
    )
    box = tag("rect", x=x, y=top, width=_BOX, height=hop.height, rx=8, class_="box")
    return tag("g", box, rows, class_=classes, data_hop=hop.number)


def _packet_text(hop: PathHop, x: float, y: int) -> Markup:
    packet = hop.packet
    ported = packet["protocol"] != "icmp"
    ends: list[Child] = []
    for end in ("source", "destination"):
        port = packet.get(f"{end}Port", 0) if ported else 0
        text = address_with_port(packet.get(end, ""), port)
        ends.append(tag("tspan", text, class_="changed" if end in hop.changed else None))
    outer = packet.get("outer")
    tunnel = f" in {outer['source']} → {outer['destination']}" if outer else ""
    return tag("text", ends[0], " → ", ends[1], tunnel, x=x, y=y, class_="packet")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
