"""Cluster addresses and node ports: what is taken, what is free.

The truth is what the stored services hold; the allocators are filled from them at start, so no record of their own has
to be kept in step.
"""

from __future__ import annotations

import ipaddress
import random


class NotInRange(Exception):
    pass


class AlreadyAllocated(Exception):
    pass


class RangeFull(Exception):
    pass


class Allocator:
    """Numbers of a range, given out at random as Kubernetes does."""

    def __init__(self, first: int, count: int, rng: random.Random) -> None:
        self.first = first
        self.count = count
        self._rng = rng
        self._used: set[int] = set()

    def take(self, number: int) -> None:
        if not self.first <= number < self.first + self.count:
            raise NotInRange
        if number in self._used:
            raise AlreadyAllocated
        self._used.add(number)

    def take_any(self) -> int:
        if len(self._used) >= self.count:
            raise RangeFull
        offset = self._rng.randrange(self.count)
        for step in range(self.count):
            number = self.first + (offset + step) % self.count
            if number not in self._used:
                self._used.add(number)
                return number
        raise RangeFull

    def give_back(self, number: int) -> None:
        self._used.discard(number)

    def mark(self, number: int) -> None:
        """Used by a stored object, in range or not."""
        self._used.add(number)

    @property
    def used(self) -> frozenset[int]:
        return frozenset(self._used)


class AddressAllocator:
    """Cluster IPs out of the service range; the network and broadcast addresses are never given out."""

    def __init__(self, cidr: str, rng: random.Random) -> None:
        self.network = ipaddress.ip_network(cidr)
        size = self.network.num_addresses
        # IPv6 has no broadcast address, but ranges larger than anybody would keep books of.
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


class ServiceAllocators:
    """Of a range of addresses, or of one of each family with a comma: the first is of the family that services usually have."""

    def __init__(self, service_cidr: str, node_ports: tuple[int, int], rng: random.Random) -> None:
        found = [AddressAllocator(cidr.strip(), rng) for cidr in service_cidr.split(",")]
        self.addresses = {f"IPv{pool.network.version}": pool for pool in found}
        self.ports = Allocator(node_ports[0], node_ports[1] - node_ports[0] + 1, rng)
        self.port_range = f"{node_ports[0]}-{node_ports[1]}"

    @property
    def usual(self) -> AddressAllocator:
        return next(iter(self.addresses.values()))

    def pool(self, address: str) -> AddressAllocator | None:
        """Of the address' family, if the cluster has it."""
        return self.addresses.get("IPv6" if ":" in address else "IPv4")
