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

    def __init__(
        self, first: int, count: int, rng: random.Random, used: set[int] | None = None
    ) -> None:
        """`used` is shared by ranges that may overlap."""
        self.first = first
        self.count = count
        self._rng = rng
        self._used: set[int] = set() if used is None else used
        self._stored: Counter[int] = Counter()  # numbers of objects that other servers may write

    def allocate(self, number: int) -> None:
        if not self.first <= number < self.first + self.count:
            raise NotInRange
        if number in self._used:
            raise AlreadyAllocated
        self._used.add(number)

    def allocate_next(self) -> int:
        offset = self._rng.randrange(self.count)
        for step in range(self.count):
            number = self.first + (offset + step) % self.count
            if number not in self._used:
                self._used.add(number)
                return number
        raise AllocatorFull

    def release(self, number: int) -> None:
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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _addresses(network: Network, rng: random.Random, used: set[int]) -> Allocator:
    """The addresses of a range, except the network and broadcast addresses."""
    size = network.num_addresses
    # IPv6 has no broadcast address, but ranges too large to track each address.
    usable = size - 2 if network.version == 4 else min(size, 1 << 16) - 1
    return Allocator(int(network.network_address) + 1, usable, rng, used)


class AddressAllocator:
    """Allocates cluster IPs of one family: from the service range of the cluster, or from those
    that ServiceCIDR objects add.
    """

    def __init__(self, cidr: str, rng: random.Random) -> None:
        self.network = ipaddress.ip_network(cidr)
        self._rng = rng
        self._used: set[int] = set()
        self._numbers = _addresses(self.network, rng, self._used)
        self._ranges: dict[Network, Allocator] = {self.network: self._numbers}

    def use_networks(self, networks: Iterable[Network]) -> None:
        """The ranges to allocate from, instead of those before."""
        wanted = list(dict.fromkeys(networks))
        if wanted != list(self._ranges):
            known = {**self._ranges, self.network: self._numbers}
            self._ranges = {
                network: known.get(network) or _addresses(network, self._rng, self._used)
                for network in wanted
            }

    def find_network(self, address: str) -> Network | None:
        """The range that an address is in."""
        parsed = ipaddress.ip_address(address)
        return next((network for network in self._ranges if parsed in network), None)

    def check(self, address: str, network: Network) -> None:
        """Raises NotInRange for an address that is never allocated."""
        pool = self._ranges.get(network, self._numbers)
        if not pool.first <= int(ipaddress.ip_address(address)) < pool.first + pool.count:
            raise NotInRange

    def allocate(self, address: str) -> None:
        network = self.find_network(address)
        if network is None:
            raise NotInRange
        self._ranges[network].allocate(int(ipaddress.ip_address(address)))

    def allocate_next(self) -> str:
        kind = ipaddress.IPv4Address if self.network.version == 4 else ipaddress.IPv6Address
        for pool in self._ranges.values():
            try:
                return str(kind(pool.allocate_next()))
            except AllocatorFull:
                continue
        raise AllocatorFull

    def release(self, address: str) -> None:
        self._numbers.release(int(ipaddress.ip_address(address)))

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
    def default_family(self) -> AddressAllocator:
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
