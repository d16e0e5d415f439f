"""Where a registry may send its clients."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from transom.http.outgoing import CallError
from transom.kit.clock import VirtualClock
from transom.runtime.images.reference import parse_reference
from transom.runtime.images.registry import Registries, RegistryClient, is_global_unicast_host

FORBIDDEN = [
    "http://127.0.0.1:8080/",
    "http://127.1.2.3/",
    "http://localhost/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://169.254.169.254/latest/meta-data",
    "http://[fe80::1]/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://224.0.0.1/",
    "http://rebound.example/",
]


def registry(name: str, **settings: Any) -> RegistryClient:
    return RegistryClient(Registries(**settings), parse_reference(name), None, VirtualClock())


def reached(client: RegistryClient, url: str, origin: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def main() -> Any:
        loop = asyncio.get_running_loop()

        async def resolve(host: str, port: int, **_: object) -> list[Any]:
            answers = {"localhost": "127.0.0.1", "rebound.example": "169.254.169.254"}
            address = answers.get(host, "203.0.113.7")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        return await client._reachable(client._place_of(url), origin)

    return asyncio.run(main())


@pytest.mark.parametrize("url", FORBIDDEN)
def test_a_registry_elsewhere_does_not_lead_to_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CallError, match="not a global unicast address"):
        reached(registry("registry.example/a:1"), url, "registry.example", monkeypatch)


def test_the_address_that_was_checked_is_the_one_that_is_dialed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = registry("registry.example/a:1")
    place = reached(client, "https://cdn.example/x", "registry.example", monkeypatch)
    assert place.target.addresses == ("203.0.113.7",)
    assert place.target.server_name == "cdn.example"


@pytest.mark.parametrize("origin", ["localhost:5000", "127.0.0.1:5000", "[::1]:5000"])
def test_a_registry_on_this_machine_may(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = registry("localhost:5000/a:1")
    place = reached(client, "http://127.0.0.1:5001/x", origin, monkeypatch)
    assert place.authority == "127.0.0.1:5001"


def test_what_the_owner_has_named_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    client = registry("registry.example/a:1", insecure=frozenset(("127.0.0.1:5001",)))
    assert reached(client, "http://127.0.0.1:5001/x", "registry.example", monkeypatch)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd00::1"]
)
def test_private_and_public_addresses_are_global_unicast(address: str) -> None:
    assert is_global_unicast_host(address)
