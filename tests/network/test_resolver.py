"""The rules of each operating system, and asking by them."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from transom.kit import dnswire as wire
from transom.kit.clock import VirtualClock
from transom.network.api import DnsConfig
from transom.network.resolver import (
    Resolver,
    address_families,
    dns_suffix,
    limit_config,
    limited_config,
    preferred_addresses,
    read_resolv_conf,
    resolver_steps,
    resolver_turns,
)

POD = DnsConfig(
    ("10.96.0.10",), ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local"), ("ndots:5",)
)


@pytest.mark.windows(
    "DNS-02",
    "DNS-03",
    "DNS-04",
    "DNS-05",
    "DNS-06",
    "DNS-08",
    "WIN-DNS-002",
    "WIN-DNS-003",
    "WIN-DNS-004",
)
@pytest.mark.parametrize(
    ("os", "name", "tried"),
    [
        (
            "linux",
            "db",
            ["db.ns.svc.cluster.local", "db.svc.cluster.local", "db.cluster.local", "db"],
        ),
        (
            "linux",
            "db.x",
            ["db.x.ns.svc.cluster.local", "db.x.svc.cluster.local", "db.x.cluster.local", "db.x"],
        ),
        (
            "linux",
            "a.b.c.d.e.f",
            [
                "a.b.c.d.e.f",
                "a.b.c.d.e.f.ns.svc.cluster.local",
                "a.b.c.d.e.f.svc.cluster.local",
                "a.b.c.d.e.f.cluster.local",
            ],
        ),
        ("linux", "db.x.", ["db.x"]),
        ("windows", "db", ["db.ns.svc.cluster.local"]),
        ("windows", "db.x", ["db.x"]),
        ("windows", "db.x.svc", ["db.x.svc"]),
        ("windows", "db.", ["db"]),
    ],
)
def test_names_that_are_tried(os: str, name: str, tried: list[str]) -> None:
    assert [step.name for step in resolver_steps(name, POD, os)] == tried  # type: ignore[arg-type]


@pytest.mark.windows("DNS-09")
def test_nslookup_of_windows_adds_its_suffix_to_every_name() -> None:
    assert [step.name for step in resolver_steps("db.x", POD, "windows", "nslookup")] == [
        "db.x.ns.svc.cluster.local",
        "db.x",
    ]
    assert [step.name for step in resolver_steps("db", POD, "windows", "nslookup")] == [
        "db.ns.svc.cluster.local",
        "db",
    ]
    assert [step.name for step in resolver_steps("db.x.", POD, "windows", "nslookup")] == ["db.x"]


def test_without_suffixes() -> None:
    for os in ("linux", "windows"):
        assert [step.name for step in resolver_steps("db", DnsConfig(searches=(".",)), os)] == [
            "db"
        ]  # type: ignore[arg-type]
    assert dns_suffix(POD) == "ns.svc.cluster.local"


def test_each_step_says_why() -> None:
    assert [
        step.why
        for step in resolver_steps("db.x", POD._replace(searches=("a.b",), options=()), "linux")
    ] == [
        "as it is first, for it has 1 dot and ndots is 1",
        "with a.b of the search list",
    ]
    assert [step.why for step in resolver_steps("db.x", POD, "windows")] == [
        "Windows takes a name with a dot for a complete one"
    ]
    assert (
        limit_config("db.x", POD, "windows"),
        limit_config("db", POD, "windows"),
        limit_config("db.x", POD, "linux"),
    ) == ("WIN-DNS-002", "WIN-DNS-003", "")


def test_which_servers_are_queried_and_for_how_long() -> None:
    three = DnsConfig(("1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"))
    once = [("1.1.1.1", 5.0), ("2.2.2.2", 10 / 3), ("3.3.3.3", 20 / 3)]
    assert resolver_turns(three, "linux") == once * 2
    assert (
        resolver_turns(POD._replace(options=("timeout:1", "attempts:3")), "linux")
        == [("10.96.0.10", 1.0)] * 3
    )
    assert resolver_turns(DnsConfig(), "linux") == [("127.0.0.1", 5.0)] * 2
    assert [wait for _, wait in resolver_turns(POD, "windows")] == [1.0, 1.0, 2.0, 4.0, 4.0]
    assert resolver_turns(DnsConfig(), "windows") == []


def test_resolv_conf() -> None:
    text = (
        "# nameserver 9.9.9.9\nnameserver 10.96.0.10\nsearch a\nsearch b c\noptions ndots:5 "
        "timeout:1\noptions edns0\n;x y\n"
    )
    assert read_resolv_conf(text) == DnsConfig(
        ("10.96.0.10",), ("b", "c"), ("ndots:5", "timeout:1", "edns0")
    )


def test_families() -> None:
    assert address_families(["10.0.0.1"]) == (wire.A,)
    assert address_families(["10.0.0.1", "fd00::1"]) == (wire.A, wire.AAAA)
    assert address_families(["fd00::1"]) == (wire.AAAA,)
    assert preferred_addresses(["fd00::1", "10.0.0.1", "2001:db8::1"]) == [
        "2001:db8::1",
        "10.0.0.1",
        "fd00::1",
    ]


# ---- asking ----


class Net:
    """Answers by name server and name: an address, an rcode, or silence."""

    def __init__(self, answers: dict[tuple[str, str], str | int]) -> None:
        self.answers = answers
        self.requested: list[tuple[str, str]] = []
        self.clock = VirtualClock()

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        message = wire.parse_dns_message(payload)
        question = message.question
        assert question is not None and port == 53
        name = wire.name_text(question.name)
        self.requested.append((server, name))
        answer = self.answers.get((server, name), self.answers.get((server, "*"), wire.NXDOMAIN))
        if answer == -1:
            await asyncio.get_running_loop().create_future()
        if answer == -2:
            raise ConnectionRefusedError
        records = (
            [wire.DnsRecord(question.name, wire.A, 5, wire.address_data(answer))]
            if isinstance(answer, str)
            else []
        )
        packed = wire.PackedMessage(
            question.name, answer if isinstance(answer, int) else 0, records
        )
        return packed.message(message.id, question.name + b"\0\1\0\1", message.flags, 512)

    def find(
        self, name: str, os: str = "linux", dns: DnsConfig = POD
    ) -> tuple[list[str] | tuple[int, str], float]:
        async def main() -> tuple[list[str] | tuple[int, str], float]:
            resolver = Resolver(os, dns, self.clock, random.Random(1), self.ask)  # type: ignore[arg-type]
            task = asyncio.ensure_future(resolver.addresses(name))
            while not task.done():
                await self.clock.run_for(0.5)
            began = self.clock.monotonic()
            try:
                return task.result(), began
            except socket.gaierror as error:
                return (error.args[0], error.args[1]), began

        return asyncio.run(main())


def test_the_search_list_is_gone_through() -> None:
    net = Net({("10.96.0.10", "db.x.svc.cluster.local"): "10.96.0.7"})
    assert net.find("db.x")[0] == ["10.96.0.7"]
    assert net.requested == [
        ("10.96.0.10", "db.x.ns.svc.cluster.local"),
        ("10.96.0.10", "db.x.svc.cluster.local"),
    ]


@pytest.mark.windows("DNS-08", "WIN-DNS-002")
def test_windows_does_not_find_the_same_name() -> None:
    net = Net({("10.96.0.10", "db.x.svc.cluster.local"): "10.96.0.7"})
    assert net.find("db.x", "windows")[0] == (11001, "No such host is known.")
    assert net.requested == [("10.96.0.10", "db.x")]


@pytest.mark.parametrize(
    ("answer", "error", "requested"),
    [
        (wire.NXDOMAIN, (socket.EAI_NONAME, "Name or service not known"), 4),
        (wire.NOERROR, (-5, "No address associated with hostname"), 4),
        (
            wire.SERVFAIL,
            (socket.EAI_AGAIN, "Temporary failure in name resolution"),
            4,
        ),  # each name may fare better
        (-2, (socket.EAI_AGAIN, "Temporary failure in name resolution"), 1),
        (
            -1,
            (socket.EAI_AGAIN, "Temporary failure in name resolution"),
            2,
        ),  # two attempts, and no further name
    ],
)
def test_errors(answer: int, error: tuple[int, str], requested: int) -> None:
    net = Net({("10.96.0.10", "*"): answer})
    assert net.find("db")[0] == error
    assert len(net.requested) == requested


def test_the_next_server_is_asked_when_one_is_silent_or_refuses() -> None:
    dns = POD._replace(servers=("1.1.1.1", "2.2.2.2", "3.3.3.3"))
    net = Net({("1.1.1.1", "*"): -1, ("2.2.2.2", "*"): wire.REFUSED, ("3.3.3.3", "*"): "10.0.0.1"})
    found, seconds = net.find("db.", dns=dns)
    assert (found, [server for server, _ in net.requested]) == (
        ["10.0.0.1"],
        ["1.1.1.1", "2.2.2.2", "3.3.3.3"],
    )
    assert 5.0 <= seconds <= 6.0


def test_an_answer_that_does_not_fit_is_fetched_over_a_connection() -> None:
    async def main() -> list[str]:
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        loop = asyncio.get_running_loop()

        def packed(payload: bytes, limit: int) -> bytes:
            message = wire.parse_dns_message(payload)
            assert message.question is not None
            name = message.question.name
            records = [
                wire.DnsRecord(name, wire.A, 5, wire.address_data(f"10.0.0.{i}"))
                for i in range(100)
            ]
            return wire.PackedMessage(name, 0, records).message(
                message.id, name + b"\0\1\0\1", message.flags, limit
            )

        async def ask(_server: str, _port: int, payload: bytes) -> bytes:
            return packed(payload, 512)

        async def dial(server: str, port: int) -> socket.socket:
            assert (server, port) == ("10.96.0.10", 53)

            async def serve() -> None:
                data = await loop.sock_recv(far, 4096)
                answer = packed(data[2:], 65535)
                await loop.sock_sendall(far, len(answer).to_bytes(2) + answer)

            tasks.append(loop.create_task(serve()))
            return near

        tasks: list[asyncio.Task[None]] = []
        found = await Resolver("linux", POD, VirtualClock(), random.Random(1), ask, dial).addresses(
            "many."
        )
        far.close()
        return found

    assert len(asyncio.run(main())) == 100


async def test_limits_that_end_together_all_end() -> None:
    """The outer one must not be taken for the inner one, which would go on with the next server."""

    clock, tries = VirtualClock(), []

    async def ask() -> None:
        for _ in range(3):
            tries.append(clock.monotonic())
            try:
                await limited_config(clock, 1, asyncio.Event().wait())
            except TimeoutError:
                continue

    task = asyncio.create_task(limited_config(clock, 1, ask()))
    await clock.run_for(10)
    with pytest.raises(TimeoutError):
        await task
    assert tries == [tries[0]]
