"""Allocators of cluster IPs and node ports.

The stored services are the source of truth; the allocators are filled from them at start-up, so no
separate record has to be kept consistent.
"""

from __future__ import annotations

import ipaddress
import random
from collections import Counter
from collections.abc import Iterable


class NotInRange(Exception):
    pass


class AlreadyAllocated(Exception):
    pass


class AllocatorFull(Exception):
    pass


class Allocator:
    """Allocates numbers of a range at random, as Kubernetes does."""

    def __init__(self, first: int, count: int, rng: random.Random) -> None:
        self.first = first
        self.count = count
        self._rng = rng
        self._used: set[int] = set()
        self._stored: Counter[int] = Counter()  # numbers of objects that other servers may write

    def take(self, number: int) -> None:
        if not self.first <= number < self.first + self.count:
            raise NotInRange
        if number in self._used:
            raise AlreadyAllocated
        self._used.add(number)

    def take_any(self) -> int:
        if len(self._used) >= self.count:
            raise AllocatorFull
        offset = self._rng.randrange(self.count)
        for step in range(self.count):
            number = self.first + (offset + step) % self.count
            if number not in self._used:
                self._used.add(number)
                return number
        raise AllocatorFull

    def give_back(self, number: int) -> None:
        if not self._stored[number]:
            self._used.discard(number)

    def follow(self, number: int, change: int) -> None:
        """The number of stored objects that have this number changed, here or on another server."""
        self._stored[number] += change
        if self._stored[number] > 0:
            self._used.add(number)
        else:
            del self._stored[number]
            self._used.discard(number)

    def mark(self, number: int) -> None:
        """Marks a number as used by a stored object, in range or not."""
        self._used.add(number)

    @property
    def used(self) -> frozenset[int]:
        return frozenset(self._used)


class AddressAllocator:
    """Allocates cluster IPs from the service range, except the network and broadcast addresses."""

    def __init__(self, cidr: str, rng: random.Random) -> None:
        self.network = ipaddress.ip_network(cidr)
        size = self.network.num_addresses
        # IPv6 has no broadcast address, but ranges too large to track each address.
        usable = size - 2 if self.network.version == 4 else min(size, 1 << 16) - 1
        self._numbers = Allocator(int(self.network.network_address) + 1, usable, rng)

    def take(self, address: str) -> None:
        parsed = ipaddress.ip_address(address)
        if parsed not in self.network:
            raise NotInRange
        self._numbers.take(int(parsed))

    def take_any(self) -> str:
        kind = ipaddress.IPv4Address if self.network.version == 4 else ipaddress.IPv6Address
        return str(kind(self._numbers.take_any()))

    def give_back(self, address: str) -> None:
        self._numbers.give_back(int(ipaddress.ip_address(address)))

    def mark(self, address: str) -> None:
        self._numbers.mark(int(ipaddress.ip_address(address)))

    def follow(self, address: str, change: int) -> None:
        self._numbers.follow(int(ipaddress.ip_address(address)), change)


class ServiceAllocators:
    """Allocators for one range, or for one of each family separated by a comma; the first is the
    default family.
    """

    def __init__(self, service_cidr: str, node_ports: tuple[int, int], rng: random.Random) -> None:
        found = [AddressAllocator(cidr.strip(), rng) for cidr in service_cidr.split(",")]
        self.addresses = {f"IPv{pool.network.version}": pool for pool in found}
        self.ports = Allocator(node_ports[0], node_ports[1] - node_ports[0] + 1, rng)
        self.port_range = f"{node_ports[0]}-{node_ports[1]}"

    @property
    def usual(self) -> AddressAllocator:
        return next(iter(self.addresses.values()))

    def follow(self, addresses: Iterable[str], ports: Iterable[int], change: int) -> None:
        """A stored service with these was added (1) or removed (-1), here or on another server."""
        for address in addresses:
            pool = self.pool(address)
            if pool is not None:
                pool.follow(address, change)
        for port in ports:
            self.ports.follow(port, change)

    def pool(self, address: str) -> AddressAllocator | None:
        """The allocator of the address' family, if the cluster has it."""
        return self.addresses.get("IPv6" if ":" in address else "IPv4")
