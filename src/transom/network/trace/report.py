"""The report of a trace, for users and for programs."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.network.model.addresses import address_with_port
from transom.network.packets import Hop, Outcome, Packet


@dataclass(slots=True)
class TraceReport:
    origin: str
    target: str
    protocol: str
    port: int
    address: str = ""
    verdict: Outcome = "delivered"
    hops: list[Hop] = field(default_factory=list)
    reply: list[Hop] = field(default_factory=list)
    seen: Packet | None = None  # as it arrived
    at: str = ""  # where
    reason: str = ""
    explanation: str = ""
    limit: str = ""
    title: str = ""
    remedy: str = ""
    # limitations that are visible although it arrives: limit, text
    notes: list[dict[str, str]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "from": self.origin,
            "to": self.target,
            "protocol": self.protocol,
            "port": self.port or None,
            "address": self.address or None,
            "verdict": self.verdict,
            "reason": self.reason or None,
            "explanation": self.explanation or None,
            "limit": self.limit or None,
            "title": self.title or None,
            "remedy": self.remedy or None,
            "seen": packet_document(self.seen)
            if self.seen is not None and self.verdict == "delivered"
            else None,
            "at": self.at or None,
            "hops": [hop_document(hop) for hop in self.hops],
            "reply": [hop_document(hop) for hop in self.reply],
            "notes": self.notes,
        }


def hop_document(hop: Hop) -> dict[str, Any]:
    return {
        "place": hop.place,
        "device": hop.device,
        "what": hop.what,
        "packet": packet_document(hop.packet),
    }


def packet_document(packet: Packet) -> dict[str, Any]:
    outer = packet.outer
    found: dict[str, Any] = {
        "source": packet.source,
        "destination": packet.destination,
        "protocol": packet.protocol,
        "sourcePort": packet.source_port,
        "destinationPort": packet.destination_port,
        "sourceMac": packet.source_mac,
        "destinationMac": packet.destination_mac,
    }
    found = {key: value for key, value in found.items() if value}
    if outer is not None:
        found["outer"] = {
            "source": outer.source,
            "destination": outer.destination,
            "vni": outer.vni,
            "port": outer.port,
        }
    return found


def packet_text(packet: dict[str, Any]) -> str:
    """One packet in a few characters, with the tunnel header around it."""
    ported = packet["protocol"] != "icmp"
    ends = [
        (packet.get(end, ""), packet.get(f"{end}Port", 0) if ported else 0)
        for end in ("source", "destination")
    ]
    inner = " > ".join(address_with_port(*end) for end in ends)
    outer = packet.get("outer")
    return f"[{outer['source']} > {outer['destination']}, {inner}]" if outer else inner


def report_lines(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row for each hop: number, place, device, action, packet."""
    rows: list[tuple[str, ...]] = [("#", "PLACE", "DEVICE", "WHAT", "PACKET")]
    rows += [
        (str(number), hop["place"], hop["device"], hop["what"], packet_text(hop["packet"]))
        for number, hop in enumerate(document["hops"], 1)
    ]
    if document["reason"] == "reply-lost":
        rows += [
            (
                "<" + str(number),
                hop["place"],
                hop["device"],
                hop["what"],
                packet_text(hop["packet"]),
            )
            for number, hop in enumerate(document["reply"], 1)
        ]
    return rows


def verdict_lines(document: dict[str, Any]) -> list[str]:
    found = [f"verdict: {document['verdict']}"]
    if document["verdict"] == "delivered" and document["seen"] is not None:
        seen = document["seen"]
        wanted = address_with_port(seen["destination"], seen.get("destinationPort", 0))
        found[0] += f" to {document['at']}, which sees {seen['source']} ask for {wanted}"
    if document["explanation"]:
        found.append(f"reason:  {document['explanation']} ({document['reason']})")
    if document["limit"]:
        found.append(f"limit:   {document['limit']} {document['title']}")
    if document["remedy"]:
        found.append(f"remedy:  {document['remedy']}")
    found += [f"note:    {note['limit']} {note['text']}" for note in document["notes"]]
    return found
