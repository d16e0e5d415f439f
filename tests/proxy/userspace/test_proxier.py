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


class World:
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
    world = World()
    world.echo("10.244.1.5")
    world.tracker.put_service(
        service(kind="NodePort", ports=[port(node=30080)], externalIPs=["198.51.100.1"])
    )
    world.tracker.put_endpoints(endpoints(pods=[("10.244.1.5", "win1")]))
    assert world.proxier.dirty
    world.proxier.sync()
    assert world.addresses() == [VIP, "198.51.100.1"]
    for address, number in ((VIP, 80), ("198.51.100.1", 80), (NODE_IP, 30080)):
        assert await world.say(address, number) == b"hello from 10.244.1.5"
        assert world.plane.sources[-1] == NODE_IP
    world.tracker.remove_service(service())
    world.proxier.sync()
    assert world.addresses() == [] and set(world.plane.listeners) == {("10.244.1.5", 8080)}
    world.proxier.close()


@in_loop
async def test_round_robin_and_affinity() -> None:
    for affinity, count in (("None", 2), ("ClientIP", 1)):
        world = World()
        for address in ("10.244.1.5", "10.244.1.6"):
            world.echo(address)
        world.tracker.put_service(
            service(
                sessionAffinity=affinity, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}}
            )
        )
        world.tracker.put_endpoints(
            endpoints(pods=[("10.244.1.5", "win1"), ("10.244.1.6", "win2")])
        )
        world.proxier.sync()
        assert len({await world.say(VIP, 80) for _ in range(4)}) == count
        world.clock.advance(61)
        await world.say(VIP, 80)
        world.proxier.close()


@in_loop
async def test_a_pod_that_refuses_is_passed_over() -> None:
    world = World()
    world.echo("10.244.1.6")
    world.tracker.put_service(service())
    world.tracker.put_endpoints(endpoints(pods=[("10.244.1.5", "win1"), ("10.244.1.6", "win2")]))
    world.proxier.sync()
    assert {await world.say(VIP, 80) for _ in range(4)} == {b"hello from 10.244.1.6"}
    world.tracker.put_endpoints(endpoints(pods=[]))
    world.proxier.sync()
    with pytest.raises(ConnectionResetError):  # taken, and closed at once
        await world.say(VIP, 80)
    world.proxier.close()


@in_loop
async def test_dns_questions_get_suffixes_of_the_default_namespace() -> None:
    world = World(suffixes=("example.com",))
    requested = []

    async def resolver(payload: bytes, source: str) -> bytes:
        message = dnsnames.parse_raw_dns(payload)
        name = b".".join(message.questions[0].labels).decode()
        requested.append(name)
        code = 0 if name == "web.default.svc.cluster.local" else 3
        return dnsnames.pack_raw_dns(message._replace(flags=0x8180 | code))

    world.plane.answer("10.244.1.5", 53, resolver)
    world.tracker.put_service(service("dns", ip="10.96.0.2", ports=[port(53, 53, "dns", "UDP")]))
    world.tracker.put_endpoints(
        endpoints("dns", [("10.244.1.5", "win1")], number=53, name="dns", protocol="UDP")
    )
    world.proxier.sync()
    answer = dnsnames.parse_raw_dns(
        await world.plane.ask("10.96.0.2", 53, query("web"), "10.244.1.9")
    )
    assert answer.code == 0 and answer.questions[0].labels == (b"web",)
    assert requested == ["web", "web.default.svc.cluster.local"]
    requested.clear()
    answer = dnsnames.parse_raw_dns(
        await world.plane.ask("10.96.0.2", 53, query("nowhere"), "10.244.1.9")
    )
    assert answer.code == 3 and requested[-1] == "nowhere.example.com" and len(requested) == 5
    requested.clear()
    await world.plane.ask("10.96.0.2", 53, query("web", 15), "10.244.1.9")
    assert requested == ["web"]
    world.proxier.close()


def test_one_port_that_goes_takes_the_address_from_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.tracker.put_service(service(ports=[port(80, name="a"), port(81, name="b")]))
    world.proxier.sync()
    assert world.addresses() == [VIP]
    world.tracker.put_service(service(ports=[port(80, name="a")]))
    world.proxier.sync()
    assert world.addresses() == [] and (VIP, 80) in world.plane.listeners


def test_what_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ProxyOnLocalhost, match="cannot proxy on localhost"):
        World(bind_address="127.0.0.1")
    world = World(interface=False)
    world.tracker.put_service(service())
    world.proxier.sync()
    assert 'Failed to start proxy for "default/web:10.96.0.10"' in caplog.text
    world = World()
    world.tracker.put_service(service(ports=[port(protocol="SCTP")]))
    world.proxier.sync()
    assert "SCTP is not supported for user space proxy" in caplog.text
    assert not world.plane.listeners


def test_the_interface_may_be_another_one() -> None:
    world = World(environment={"INTERFACE_TO_ADD_SERVICE_IP": "vEthernet (Ethernet)"})
    world.tracker.put_service(service())
    world.proxier.sync()
    assert VIP in world.stack.addresses() and world.addresses() == []
