from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
from tests.proxy.objects import endpoints, port, service
from tests.proxy.planes import TablePlane, in_loop
from tests.proxy.userspace.test_dnsnames import query

from transom.kit.clock import VirtualClock
from transom.network.stacks import Fabric, NetworkLink
from transom.proxy.tracker import ServiceTracker
from transom.proxy.userspace import dnsnames
from transom.proxy.userspace.proxier import INTERFACE, ProxyOnLocalhost, UserspaceProxier

NODE_IP = "172.18.0.4"
VIP = "10.96.0.10"


class ProxyHarness:
    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.plane = TablePlane()
        self.tracker = ServiceTracker("endpoints")
        self.stack = Fabric().add("win1", "node", "windows")
        self.stack.add_link(NetworkLink("vEthernet (Ethernet)", "ethernet"))
        self.stack.add_address("vEthernet (Ethernet)", f"{NODE_IP}/16")
        if options.pop("interface", True):
            self.stack.add_link(NetworkLink(INTERFACE, "vnic"))
        self.proxier = UserspaceProxier(
            self.tracker,
            "win1",
            self.stack,
            self.plane,
            self.clock,
            rng=random.Random(1),
            node_ip=NODE_IP,
            **options,
        )

    def addresses(self) -> list[str]:
        return [str(a.ip) for a in self.stack.links[INTERFACE].addresses]

    def echo(self, address: str, number: int = 8080) -> None:
        """A pod that answers with its address."""

        def accept(connection: socket.socket) -> None:
            asyncio.get_running_loop().create_task(talk(connection))

        async def talk(connection: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            with connection:
                while data := await loop.sock_recv(connection, 100):
                    await loop.sock_sendall(connection, data + b" from " + address.encode())

        self.plane.listen(address, number, accept)

    async def say(
        self, address: str, number: int, text: bytes = b"hello", source: str = "10.244.1.9"
    ) -> bytes:
        loop = asyncio.get_running_loop()
        with await self.plane.connect(address, number, source) as connection:
            await loop.sock_sendall(connection, text)
            return await loop.sock_recv(connection, 100)


@in_loop
async def test_a_connection_to_a_pod_has_the_source_address_of_the_node() -> None:
    harness = ProxyHarness()
    harness.echo("10.244.1.5")
    harness.tracker.put_service(
        service(kind="NodePort", ports=[port(node=30080)], externalIPs=["198.51.100.1"])
    )
    harness.tracker.put_endpoints(endpoints(pods=[("10.244.1.5", "win1")]))
    assert harness.proxier.dirty
    harness.proxier.sync()
    assert harness.addresses() == [VIP, "198.51.100.1"]
    for address, number in ((VIP, 80), ("198.51.100.1", 80), (NODE_IP, 30080)):
        assert await harness.say(address, number) == b"hello from 10.244.1.5"
        assert harness.plane.sources[-1] == NODE_IP
    harness.tracker.remove_service(service())
    harness.proxier.sync()
    assert harness.addresses() == [] and set(harness.plane.listeners) == {("10.244.1.5", 8080)}
    harness.proxier.close()


@in_loop
async def test_round_robin_and_affinity() -> None:
    for affinity, count in (("None", 2), ("ClientIP", 1)):
        harness = ProxyHarness()
        for address in ("10.244.1.5", "10.244.1.6"):
            harness.echo(address)
        harness.tracker.put_service(
            service(
                sessionAffinity=affinity, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}}
            )
        )
        harness.tracker.put_endpoints(
            endpoints(pods=[("10.244.1.5", "win1"), ("10.244.1.6", "win2")])
        )
        harness.proxier.sync()
        assert len({await harness.say(VIP, 80) for _ in range(4)}) == count
        harness.clock.advance(61)
        await harness.say(VIP, 80)
        harness.proxier.close()


@in_loop
async def test_a_pod_that_refuses_is_passed_over() -> None:
    harness = ProxyHarness()
    harness.echo("10.244.1.6")
    harness.tracker.put_service(service())
    harness.tracker.put_endpoints(endpoints(pods=[("10.244.1.5", "win1"), ("10.244.1.6", "win2")]))
    harness.proxier.sync()
    assert {await harness.say(VIP, 80) for _ in range(4)} == {b"hello from 10.244.1.6"}
    harness.tracker.put_endpoints(endpoints(pods=[]))
    harness.proxier.sync()
    with pytest.raises(ConnectionResetError):  # taken, and closed at once
        await harness.say(VIP, 80)
    harness.proxier.close()


@in_loop
async def test_dns_questions_get_suffixes_of_the_default_namespace() -> None:
    harness = ProxyHarness(suffixes=("example.com",))
    requested = []

    async def resolver(payload: bytes, source: str) -> bytes:
        message = dnsnames.parse_raw_dns(payload)
        name = b".".join(message.questions[0].labels).decode()
        requested.append(name)
        code = 0 if name == "web.default.svc.cluster.local" else 3
        return dnsnames.pack_raw_dns(message._replace(flags=0x8180 | code))

    harness.plane.answer("10.244.1.5", 53, resolver)
    harness.tracker.put_service(service("dns", ip="10.96.0.2", ports=[port(53, 53, "dns", "UDP")]))
    harness.tracker.put_endpoints(
        endpoints("dns", [("10.244.1.5", "win1")], number=53, name="dns", protocol="UDP")
    )
    harness.proxier.sync()
    answer = dnsnames.parse_raw_dns(
        await harness.plane.ask("10.96.0.2", 53, query("web"), "10.244.1.9")
    )
    assert answer.code == 0 and answer.questions[0].labels == (b"web",)
    assert requested == ["web", "web.default.svc.cluster.local"]
    requested.clear()
    answer = dnsnames.parse_raw_dns(
        await harness.plane.ask("10.96.0.2", 53, query("nowhere"), "10.244.1.9")
    )
    assert answer.code == 3 and requested[-1] == "nowhere.example.com" and len(requested) == 5
    requested.clear()
    await harness.plane.ask("10.96.0.2", 53, query("web", 15), "10.244.1.9")
    assert requested == ["web"]
    harness.proxier.close()


def test_one_port_that_goes_takes_the_address_from_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = ProxyHarness()
    harness.tracker.put_service(service(ports=[port(80, name="a"), port(81, name="b")]))
    harness.proxier.sync()
    assert harness.addresses() == [VIP]
    harness.tracker.put_service(service(ports=[port(80, name="a")]))
    harness.proxier.sync()
    assert harness.addresses() == [] and (VIP, 80) in harness.plane.listeners


def test_what_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ProxyOnLocalhost, match="cannot proxy on localhost"):
        ProxyHarness(bind_address="127.0.0.1")
    harness = ProxyHarness(interface=False)
    harness.tracker.put_service(service())
    harness.proxier.sync()
    assert 'Failed to start proxy for "default/web:10.96.0.10"' in caplog.text
    harness = ProxyHarness()
    harness.tracker.put_service(service(ports=[port(protocol="SCTP")]))
    harness.proxier.sync()
    assert "SCTP is not supported for user space proxy" in caplog.text
    assert not harness.plane.listeners


def test_the_interface_may_be_another_one() -> None:
    harness = ProxyHarness(environment={"INTERFACE_TO_ADD_SERVICE_IP": "vEthernet (Ethernet)"})
    harness.tracker.put_service(service())
    harness.proxier.sync()
    assert VIP in harness.stack.addresses() and harness.addresses() == []
