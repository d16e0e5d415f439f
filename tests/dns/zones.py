"""A small cluster to ask about, and a client that is not ours (dnspython)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import dns.message
import dns.rcode
import dns.rrset

from transom.dns.server import DnsServer
from transom.dns.settings import DnsSettings
from transom.dns.zone import DnsZone
from transom.kit.clock import VirtualClock

HTTP = {"name": "http", "port": 80, "protocol": "TCP"}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}


def service(
    name: str, *ips: str, namespace: str = "testns", ports: Any = (HTTP,), **spec: Any
) -> dict[str, Any]:
    if ips:
        spec = {"clusterIP": ips[0], "clusterIPs": list(ips), **spec}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": list(ports), **spec},
    }


def external(name: str, target: str) -> dict[str, Any]:
    return service(name, ports=(), type="ExternalName", externalName=target)


def slice_of(
    owner: str,
    *endpoints: Mapping[str, Any] | str,
    name: str = "",
    namespace: str = "testns",
    ports: Any = (HTTP,),
    family: str = "IPv4",
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name or f"{owner}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": owner},
        },
        "addressType": family,
        "ports": list(ports),
        "endpoints": [
            {"addresses": [e], "conditions": {"ready": True}} if isinstance(e, str) else e
            for e in endpoints
        ],
    }


def endpoint(address: str, host: str = "", ready: bool | None = True) -> dict[str, Any]:
    named = {"hostname": host} if host else {}
    return {
        "addresses": [address],
        "conditions": {} if ready is None else {"ready": ready},
        **named,
    }


def zone(**more: Any) -> DnsZone:
    made = DnsZone(ttl=5, now=lambda: 1499347823.0, **more)
    made.put_namespace({"metadata": {"name": "testns"}})
    made.put_namespace({"metadata": {"name": "empty"}})
    made.put_service(service("kube-dns", "10.96.0.10", namespace="kube-system", ports=(DNS,)))
    made.put_service(service("svc1", "10.0.0.1"))
    made.put_service(service("two", "10.0.0.2", ports=(HTTP, {"port": 443}, DNS)))
    made.put_service(service("svc6", "1234:abcd::1"))
    made.put_service(service("dual", "10.0.0.3", "1234:ABCD::0003"))
    made.put_service(service("hdls1", "None"))
    made.put_slice(
        slice_of(
            "hdls1",
            "172.0.0.2",
            endpoint("172.0.0.3", ready=None),
            endpoint("172.0.0.4", "dup-name"),
            endpoint("172.0.0.5", "dup-name"),
            endpoint("172.0.0.9", "late", ready=False),
        )
    )
    made.put_slice(slice_of("hdls1", "5678:abcd::1", "5678:abcd::2", name="hdls1-6", family="IPv6"))
    made.put_service(service("hdlsprtls", "None", ports=()))
    made.put_slice(slice_of("hdlsprtls", "172.0.0.20", ports=()))
    made.put_service(service("nobody", "None"))
    made.put_slice(slice_of("svc1", endpoint("172.0.0.7", "ep1a")))
    made.put_service(external("external", "ext.interwebs.test"))
    made.put_service(external("to-service", "svc1.testns.svc.cluster.local."))
    made.put_service(external("to-nothing", "svc0.testns.svc.cluster.local"))
    made.put_service(external("itself", "itself.testns.svc.cluster.local"))
    made.put_service(external("ping", "pong.testns.svc.cluster.local"))
    made.put_service(external("pong", "ping.testns.svc.cluster.local"))
    return made


def server(
    made: DnsZone | None = None, settings: DnsSettings | None = None, **more: Any
) -> DnsServer:
    return DnsServer(
        made or zone(), settings or DnsSettings(), VirtualClock(), random.Random(1), **more
    )


def ask(
    on: DnsServer, name: str, type: str = "A", transport: str = "udp", **query: Any
) -> dns.message.Message:
    question = dns.message.make_query(name, type, **query)
    answer = asyncio.run(on.respond(question.to_wire(), "10.244.1.2", transport))
    assert answer is not None
    read = dns.message.from_wire(answer, one_rr_per_rrset=True)
    assert question.is_response(read)
    assert transport == "tcp" or len(answer) <= max(query.get("payload", 512), 512)
    return read


def lines(section: list[dns.rrset.RRset]) -> list[str]:
    return sorted(rrset.to_text() for rrset in section)


def shown(read: dns.message.Message) -> tuple[str, list[str], list[str], list[str]]:
    return (
        dns.rcode.to_text(read.rcode()),
        lines(read.answer),
        lines(read.authority),
        lines(read.additional),
    )
