"""The objects that make the server known are good ones, and it follows the API by what its own role
lets it see.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.dns.zones import service

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.informer import InformerFactory
from transom.client.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    SERVICES,
)
from transom.dns import objects
from transom.dns.feed import ZoneFeed
from transom.dns.server import DnsServer
from transom.dns.settings import DnsSettings
from transom.dns.zone import DnsZone
from transom.kit import dnswire as wire
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

ADMIN = UserInfo("jane", ("system:masters", "system:authenticated"))


async def answers(server: DnsServer, name: str, type: int = wire.A) -> list[str]:
    reply = await server.respond(wire.encode_query(1, wire.encode_name(name), type))
    assert reply is not None
    return [wire.data_text(record) for record in wire.parse_dns_message(reply).answers]


async def until(check: Any) -> None:
    for _ in range(500):
        if await check():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come to that")


async def test_it_is_known_and_follows() -> None:
    api = build_api_server(ServerOptions(store=MemoryStore(), rng=random.Random(1)))
    await api.start()
    client = InProcessClient(api, ADMIN, user_agent="tester/1")
    address = objects.dns_cluster_ip("10.96.0.0/16")
    assert address == "10.96.0.10"
    made = await client.create(SERVICES, "kube-system", objects.dns_service_object([address]))
    assert [port["name"] for port in made["spec"]["ports"]] == ["dns", "dns-tcp", "metrics"]
    await client.create(
        ENDPOINTS, "kube-system", objects.dns_endpoints_object(["172.20.0.2"], "control-plane")
    )
    for found in objects.dns_endpoint_slices(["172.20.0.2"], "control-plane"):
        await client.create(ENDPOINT_SLICES, "kube-system", found)
    await client.create(
        CONFIG_MAPS,
        "kube-system",
        objects.dns_config_map(DnsSettings(upstreams=("192.0.2.1",))),
    )

    zone, clock = DnsZone(), RealClock()
    informers = InformerFactory(
        InProcessClient(api, ADMIN, user_agent="dns/1"), clock, random.Random(1)
    )
    feed = ZoneFeed(zone, informers)
    server = DnsServer(zone, DnsSettings(), clock, random.Random(1))
    reply = await server.respond(
        wire.encode_query(1, wire.encode_name("x.default.svc.cluster.local"), wire.A)
    )
    assert reply is not None and wire.parse_dns_message(reply).rcode == wire.SERVFAIL, (
        "nothing is known yet"
    )
    informers.start()
    await asyncio.wait_for(feed.run(), 5)
    assert await answers(server, "kube-dns.kube-system.svc.cluster.local") == ["10.96.0.10"]
    assert await answers(server, "10.0.96.10.in-addr.arpa", wire.PTR) == [
        "kube-dns.kube-system.svc.cluster.local."
    ]
    assert await answers(server, "2.0.20.172.in-addr.arpa", wire.PTR) == [
        "172-20-0-2.kube-dns.kube-system.svc.cluster.local."
    ]

    web = await client.create(
        SERVICES, "default", service("web", namespace="default", clusterIP="10.96.0.77")
    )
    await until(lambda: _is(server, "web.default.svc.cluster.local", ["10.96.0.77"]))
    await client.delete(SERVICES, "default", web["metadata"]["name"])
    await until(lambda: _is(server, "web.default.svc.cluster.local", []))
    await informers.stop()
    await api.stop()


async def _is(server: DnsServer, name: str, expected: list[str]) -> bool:
    return await answers(server, name) == expected


def test_two_families() -> None:
    made = objects.dns_service_object(["10.96.0.10", "fd00::a"])["spec"]
    assert (made["ipFamilies"], made["clusterIPs"]) == (["IPv4", "IPv6"], ["10.96.0.10", "fd00::a"])
    assert [s["addressType"] for s in objects.dns_endpoint_slices(["172.20.0.2", "fd01::2"])] == [
        "IPv4",
        "IPv6",
    ]
    with pytest.raises(ValueError, match="no tenth address"):
        objects.dns_cluster_ip("10.96.0.0/29")
