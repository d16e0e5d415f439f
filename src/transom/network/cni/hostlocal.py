"""host-local: addresses of one node, from ranges in the configuration, stored in files of the node.

Every allocated address is a file that contains the container's id and interface; another file has
the last allocated address of each range set, where the next search starts. An in-memory index
avoids reading all files for each call. The files remain authoritative: an address whose file was
removed is free again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transom.kit.lazy_dataclass import dataclass
from transom.machines.smallfiles import list_small_directory, read_small_file
from transom.network.cni import values
from transom.network.cni.paths import fail_with_file_error, join_cni_path
from transom.network.cni.plugin import CniCall, CniError, CniNode, Delegate, Result, fail_plugin
from transom.network.stacks import read_address

if TYPE_CHECKING:
    from transom.machines.api import Files
    from transom.network.stacks import Address, Network

DATA = "/var/lib/cni/networks"
LAST = "last_reserved_ip."
_MOST_ADDRESSES = 5000  # more than the pods of a node
_BREAK = "\r\n"
_ONE_OF_EACH = ("", "0.1.0", "0.2.0")


@dataclass(frozen=True, slots=True)
class AddressRange:
    subnet: Network
    first: int
    last: int
    gateway: Address

    def has(self, address: Address) -> bool:
        return address.version == self.subnet.version and self.first <= int(address) <= self.last

    def overlaps(self, other: AddressRange) -> bool:
        same = self.subnet.version == other.subnet.version
        return same and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{_text(self.first, self.subnet.version)}-{_text(self.last, self.subnet.version)}"


RangeSet = tuple[AddressRange, ...]


@dataclass(frozen=True, slots=True)
class _Settings:
    sets: tuple[RangeSet, ...]
    routes: Sequence[dict[str, Any]]


def host_local(call: CniCall, machine: CniNode, _delegate: Delegate) -> Result | None:
    settings = _settings(call, machine)
    store = _store(call, machine)
    owner = f"{call.container_id.strip()}{_BREAK}{call.ifname}"
    if call.command == "DEL":
        store.release(owner, call.container_id)
        return None
    if call.command == "CHECK":
        if not store.holds(owner, call.container_id):
            fail_plugin(
                f"host-local: Failed to find address added by container {call.container_id}"
            )
        return None
    dns = _dns(call, machine)
    wanted = _requested(call)
    ips = []
    for number, ranges in enumerate(settings.sets):
        requested = next(
            (address for address in wanted if _range(ranges, address) is not None), None
        )
        if requested is not None:
            wanted.remove(requested)
        try:
            ips.append(store.take(ranges, str(number), owner, call.container_id, requested))
        except CniError as error:
            if ips:
                store.release(owner, call.container_id)
            fail_plugin(f"failed to allocate for range {number}: {error}")
    if wanted:
        store.release(owner, call.container_id)
        fail_plugin("failed to allocate all requested IPs: " + " ".join(map(str, wanted)))
    result: Result = {"cniVersion": "0.4.0", "ips": ips}
    if settings.routes:
        result["routes"] = list(settings.routes)
    result["dns"] = dns
    return result


# ---- configuration ----


def _settings(call: CniCall, machine: CniNode) -> _Settings:
    """Every sandbox of a node has the same configuration, so the last one is cached."""
    ipam = call.config.get("ipam")
    if ipam is None:
        fail_plugin("IPAM config missing 'ipam' key")
    given = (
        ipam,
        (call.config.get("runtimeConfig") or {}).get("ipRanges"),
        call.config.get("cniVersion") or "",
    )
    key = ("host-local", call.config["name"])
    before = machine.memory.get(key)
    if before is not None and before[0] == given:
        kept: _Settings = before[1]
        return kept
    settings = _parse(*given)
    machine.memory[key] = (given, settings)
    return settings


def _parse(ipam: Mapping[str, Any], from_runtime: Any, version: str) -> _Settings:
    sets: list[Any] = list(ipam.get("ranges") or ())
    if ipam.get("subnet"):
        sets.insert(0, [ipam])
    sets = list(from_runtime or ()) + sets
    if not sets:
        fail_plugin("no IP ranges specified")
    parsed: list[RangeSet] = []
    for number, written in enumerate(sets):
        read = tuple(_read_range(item) for item in written)  # decoding comes before validation
        try:
            parsed.append(_check_set(read))
        except _Bad as bad:
            fail_plugin(f"invalid range set {number}: {bad}")
    if version in _ONE_OF_EACH:
        families = [ranges[0].subnet.version for ranges in parsed]
        if families.count(4) > 1 or families.count(6) > 1:
            fail_plugin(f"CNI version {version} does not support more than 1 address per family")
    for number, ranges in enumerate(parsed):
        for later in range(number + 1, len(parsed)):
            if any(a.overlaps(b) for a in ranges for b in parsed[later]):
                fail_plugin(f"range set {number} overlaps with {later}")
    return _Settings(tuple(parsed), values.parse_routes(ipam.get("routes")))


class _Bad(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Written:
    subnet: Any
    first: Address | None
    last: Address | None
    gateway: Address | None


def _read_range(item: Mapping[str, Any]) -> _Written:
    first, last, gateway = (
        None if not item.get(key) else values.parse_address(item[key])
        for key in ("rangeStart", "rangeEnd", "gateway")
    )
    return _Written(values.parse_cidr_value(item.get("subnet") or ""), first, last, gateway)


def _check_set(written: tuple[_Written, ...]) -> RangeSet:
    if not written:
        raise _Bad("empty range set")
    ranges: list[AddressRange] = []
    for item in written:
        ranges.append(_check_range(item))
        if ranges[-1].subnet.version != ranges[0].subnet.version:
            raise _Bad("mixed address families")
    for number, one in enumerate(ranges):
        for other in ranges[number + 1 :]:
            if one.overlaps(other):
                raise _Bad(f"subnets {one} and {other} overlap")
    return tuple(ranges)


def _check_range(item: _Written) -> AddressRange:
    subnet = item.subnet.network
    if subnet.prefixlen > subnet.max_prefixlen - 2:
        raise _Bad(f"Network {item.subnet} too small to allocate from")
    if item.subnet.ip != subnet.network_address:
        raise _Bad(
            f"Network has host bits set. For a subnet mask of length {subnet.prefixlen} "
            f"the network address is {subnet.network_address}"
        )
    base = int(subnet.network_address)
    if item.first is not None and (
        item.first not in subnet or (item.last is not None and int(item.first) > int(item.last))
    ):
        raise _Bad(f"RangeStart {item.first} not in network {subnet}")
    if item.last is not None and (item.last not in subnet or int(item.last) < base + 1):
        raise _Bad(f"RangeEnd {item.last} not in network {subnet}")
    # excludes the broadcast address
    last = base + subnet.num_addresses - (2 if subnet.version == 4 else 1)
    return AddressRange(
        subnet,
        base + 1 if item.first is None else int(item.first),
        last if item.last is None else int(item.last),
        subnet[1] if item.gateway is None else item.gateway,
    )


def _requested(call: CniCall) -> list[Address]:
    """The addresses that CNI_ARGS or the configuration's `args` request for this container."""
    wanted: list[Address] = []
    values.check_cni_args(call.args, ("IP",))
    if call.args.get("IP"):
        text = call.args["IP"]
        try:
            wanted.append(values.unmapped_address(ipaddress.ip_address(text)))
        except ValueError:
            fail_plugin(
                f'ARGS: error parsing value of pair "IP={text}": invalid IP address: {text})'
            )
    args = (call.config.get("args") or {}).get("cni") or {}
    for text in args.get("ips") or ():
        found = values.parse_address(text)
        if found not in wanted:
            wanted.append(found)
    return wanted


def _dns(call: CniCall, machine: CniNode) -> dict[str, Any]:
    path = call.config["ipam"].get("resolvConf")
    if not path:
        return {}
    try:
        lines = read_small_file(machine.files, path).decode(errors="replace").splitlines()
    except OSError as error:
        fail_with_file_error("open", path, error)
    dns: dict[str, Any] = {}
    for line in lines:
        words = line.split()
        if len(words) < 2 or words[0][0] in "#;":
            continue
        if words[0] == "nameserver":
            dns.setdefault("nameservers", []).append(words[1])
        elif words[0] == "domain":
            dns["domain"] = words[1]
        elif words[0] in ("search", "options"):
            dns.setdefault(words[0], []).extend(words[1:])
    return {key: dns[key] for key in ("nameservers", "domain", "search", "options") if key in dns}


# ---- files ----


def _store(call: CniCall, machine: CniNode) -> _Store:
    directory = join_cni_path(
        machine.os, call.config["ipam"].get("dataDir") or DATA, call.config["name"]
    )
    key = ("host-local store", directory)
    found: _Store | None = machine.memory.get(key)
    if found is None:
        found = machine.memory[key] = _Store(machine.files, directory, machine.os)
    return found


class _Store:
    """The data directory of one network, and its index."""

    __slots__ = ("_files", "_folder", "_owned", "_taken", "_windows", "directory")

    def __init__(self, files: Files, directory: str, os: str) -> None:
        self._files = files
        self.directory = directory
        self._folder = directory + ("\\" if os == "windows" else "/")
        self._windows = os == "windows"
        self._owned: dict[str, list[str]] = {}
        self._taken: set[str] = set()
        self._scan()

    def take(
        self, ranges: RangeSet, set_id: str, owner: str, container: str, requested: Address | None
    ) -> dict[str, Any]:
        if requested is not None:
            within = _range(ranges, requested)
            assert within is not None
            if requested == within.gateway:
                fail_plugin(f"requested ip {requested} is subnet's gateway")
            text = str(requested)
            if not self._reserve(owner, text, set_id):
                fail_plugin(
                    f"requested IP address {requested} is not available in range set {_names(ranges)}"
                )
            return _config(text, within)
        for text in self._has(owner, container):
            address = ipaddress.ip_address(text)
            if not (self._windows and address.version == 6) and _range(ranges, address) is not None:
                fail_plugin(
                    f"{text} has been allocated to {container}, duplicate allocation is not allowed"
                )
        found = self._search(ranges, set_id, owner)
        if found is None:
            self._scan()  # files may have been removed
            found = self._search(ranges, set_id, owner)
        if found is None:
            fail_plugin(f"no IP addresses available in range set: {_names(ranges)}")
        return found

    def _search(self, ranges: RangeSet, set_id: str, owner: str) -> dict[str, Any] | None:
        version = ranges[0].subnet.version
        place, current = self._start(ranges, set_id)
        begin: tuple[int, int] | None = None
        while True:
            if current is None:
                current = ranges[place].first
            elif current == ranges[place].last:
                place = (place + 1) % len(ranges)
                current = ranges[place].first
            else:
                current += 1
            if begin is None:
                begin = (place, current)
            elif begin == (place, current):
                return None
            within = ranges[place]
            if current == int(within.gateway) and within.gateway.version == version:
                continue
            text = _text(current, version)
            if text not in self._taken and self._reserve(owner, text, set_id):
                return _config(text, within)

    def _start(self, ranges: RangeSet, set_id: str) -> tuple[int, int | None]:
        """The position after the last allocated address, if it still belongs to this set."""
        try:
            last = read_address(read_small_file(self._files, self._folder + LAST + set_id).decode())
        except (OSError, ValueError):
            return 0, None
        for number, one in enumerate(ranges):
            if one.has(last):
                return number, int(last)
        return 0, None

    def _reserve(self, owner: str, text: str, set_id: str) -> bool:
        path = self._path(text)
        self._taken.add(text)
        if self._files.exists(path):
            return False
        try:
            self._files.write(path, owner.encode())
        except FileNotFoundError:  # the whole directory was removed
            self._scan()
            self._taken.add(text)
            self._files.write(path, owner.encode())
        except OSError as error:
            self._taken.discard(text)
            fail_with_file_error("open", path, error)
        self._owned.setdefault(owner, []).append(text)
        self._files.write(self._folder + LAST + set_id, text.encode())
        return True

    def release(self, owner: str, container: str) -> None:
        """Files of earlier versions do not contain the interface."""
        if owner not in self._owned:
            self._scan()
        for match in (owner, container.strip()):
            texts = self._owned.pop(match, None)
            if texts is None:
                continue
            for text in texts:
                self._taken.discard(text)
                path = self._path(text)
                if self._belongs(path, match):
                    self._files.remove(path)
            return

    def holds(self, owner: str, container: str) -> bool:
        self._scan()
        return owner in self._owned or container.strip() in self._owned

    def _has(self, owner: str, container: str) -> list[str]:
        texts = [t for t in self._owned.get(owner, ()) if self._belongs(self._path(t), owner)]
        old = container.strip()
        return texts + [t for t in self._owned.get(old, ()) if self._belongs(self._path(t), old)]

    def _belongs(self, path: str, match: str) -> bool:
        try:
            return read_small_file(self._files, path).decode(errors="replace").strip() == match
        except OSError:
            return False

    def _path(self, text: str) -> str:
        return self._folder + (text.replace(":", "_") if self._windows else text)

    def _scan(self) -> None:
        self._owned.clear()
        self._taken.clear()
        for name in self._names():
            if name.startswith(LAST) or name == "lock":
                continue
            text = name.replace("_", ":") if self._windows else name
            self._taken.add(text)
            owner = (
                read_small_file(self._files, self._folder + name).decode(errors="replace").strip()
            )
            self._owned.setdefault(owner, []).append(text)

    def _names(self) -> list[str]:
        try:
            return list_small_directory(self._files, self.directory, _MOST_ADDRESSES)
        except FileNotFoundError:
            pass
        try:
            self._files.mkdir(self.directory)
            self._files.write(self._folder + "lock", b"", 0o750)
        except OSError as error:
            fail_with_file_error("mkdir", self.directory, error)
        return []


def _range(ranges: RangeSet, address: Address) -> AddressRange | None:
    return next((one for one in ranges if one.has(address)), None)


def _names(ranges: RangeSet) -> str:
    return ",".join(map(str, ranges))


def _config(text: str, within: AddressRange) -> dict[str, Any]:
    version = within.subnet.version
    return {
        "version": str(version),
        "address": f"{text}/{within.subnet.prefixlen}",
        "gateway": str(within.gateway),
    }


def _text(number: int, version: int) -> str:
    if version == 4:
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return str(ipaddress.IPv6Address(number))
