"""Kubernetes' types of numbers and addresses in CEL: quantities, semantic versions, IP addresses,
CIDRs.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.types import CelType, struct_type
from transom.kit.cel.values import Opaque
from transom.kit.lazy import lazy_pattern
from transom.machinery.quantity import Quantity, QuantityError, parse_quantity

QUANTITY_TYPE = struct_type("kubernetes.Quantity")
SEMVER_TYPE = struct_type("kubernetes.Semver")
IP_TYPE = CelType("opaque", "net.IP")
CIDR_TYPE = CelType("opaque", "net.CIDR")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def _accepts(make: Callable[..., Any]) -> Callable[..., bool]:
    def check(*args: Any) -> bool:
        try:
            make(*args)
        except CelError:
            return False
        return True

    return check


class CelQuantity(Opaque):
    __slots__ = ("amount",)
    cel_type: CelType = QUANTITY_TYPE

    def __init__(self, amount: Quantity) -> None:
        self.amount = amount

    def equals(self, other: Any) -> bool:
        return bool(self.amount.compare(other.amount) == 0)


def _quantity(text: str) -> CelQuantity:
    try:
        return CelQuantity(parse_quantity(text))
    except QuantityError as error:
        raise CelError(str(error)) from None


def _as_integer(value: CelQuantity) -> int:
    found = value.amount.as_int64()
    if found is None:
        raise CelError("cannot convert value to integer")
    return found


def _binary(run: Callable[[Quantity, Quantity], Any]) -> Callable[[CelQuantity, CelQuantity], Any]:
    return lambda a, b: run(a.amount, b.amount)


QUANTITY_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "quantity", (Overload("string_to_quantity", "(string) -> kubernetes.Quantity", _quantity),)
    ),
    Function(
        "isQuantity", (Overload("is_quantity_string", "(string) -> bool", _accepts(_quantity)),)
    ),
    Function(
        "sign",
        (Overload("quantity_sign", "kubernetes.Quantity.() -> int", lambda q: q.amount.sign),),
    ),
    Function(
        "isGreaterThan",
        (
            Overload(
                "quantity_is_greater_than",
                "kubernetes.Quantity.(kubernetes.Quantity) -> bool",
                _binary(lambda a, b: a.compare(b) > 0),
            ),
        ),
    ),
    Function(
        "isLessThan",
        (
            Overload(
                "quantity_is_less_than",
                "kubernetes.Quantity.(kubernetes.Quantity) -> bool",
                _binary(lambda a, b: a.compare(b) < 0),
            ),
        ),
    ),
    Function(
        "compareTo",
        (
            Overload(
                "quantity_compare_to",
                "kubernetes.Quantity.(kubernetes.Quantity) -> int",
                _binary(lambda a, b: a.compare(b)),
            ),
        ),
    ),
    Function(
        "asApproximateFloat",
        (
            Overload(
                "quantity_get_float",
                "kubernetes.Quantity.() -> double",
                lambda q: q.amount.to_float(),
            ),
        ),
    ),
    Function(
        "asInteger", (Overload("quantity_get_int", "kubernetes.Quantity.() -> int", _as_integer),)
    ),
    Function(
        "isInteger",
        (
            Overload(
                "quantity_is_integer",
                "kubernetes.Quantity.() -> bool",
                lambda q: q.amount.as_int64() is not None,
            ),
        ),
    ),
    Function(
        "add",
        (
            Overload(
                "quantity_add",
                "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
                _binary(lambda a, b: CelQuantity(a + b)),
            ),
            Overload(
                "quantity_add_int",
                "kubernetes.Quantity.(int) -> kubernetes.Quantity",
                lambda a, b: CelQuantity(a.amount + parse_quantity(b)),
            ),
        ),
    ),
    Function(
        "sub",
        (
            Overload(
                "quantity_sub",
                "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
                _binary(lambda a, b: CelQuantity(a - b)),
            ),
            Overload(
                "quantity_sub_int",
                "kubernetes.Quantity.(int) -> kubernetes.Quantity",
                lambda a, b: CelQuantity(a.amount - parse_quantity(b)),
            ),
        ),
    ),
)

_SEMVER = lazy_pattern(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})"
    r"(?:-([0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*))?(?:\+([0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*))?",
    re.ASCII,
)


class Semver(Opaque):
    __slots__ = ("numbers", "prerelease")
    cel_type: CelType = SEMVER_TYPE

    def __init__(self, text: str, normalize: bool = False) -> None:
        if normalize:
            text = _normalized(text)
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise CelError(
                f'Semver parse error during conversion from string: Invalid version string "{text}"'
            )
        self.numbers = (int(found[1]), int(found[2]), int(found[3]))
        parts = found[4].split(".") if found[4] else []
        if any(part.isdigit() and part != "0" and part.startswith("0") for part in parts):
            raise CelError(
                "Semver parse error during conversion from string: Numeric PreRelease "
                "version must not "
                "contain leading zeroes"
            )
        self.prerelease = tuple(
            (0, int(p), "") if p.isdigit() and len(p) < 19 else (1, 0, p) for p in parts
        )

    def compare(self, other: Semver) -> int:
        # A version without a pre-release is newer than one with it.
        mine = (self.numbers, not self.prerelease, self.prerelease)
        theirs = (other.numbers, not other.prerelease, other.prerelease)
        return (mine > theirs) - (mine < theirs)

    def equals(self, other: Any) -> bool:
        return self.compare(other) == 0


def _normalized(text: str) -> str:
    text = text.removeprefix("v")
    core = re.split(r"[-+]", text, maxsplit=1)[0]
    rest = text[len(core) :]
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in core.split(".")]
    return ".".join(parts + ["0"] * (3 - len(parts))) + rest


_S = "kubernetes.Semver"
SEMVER_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "semver",
        (
            Overload("string_to_semver", f"(string) -> {_S}", Semver),
            Overload("string_bool_to_semver", f"(string, bool) -> {_S}", Semver),
        ),
    ),
    Function(
        "isSemver",
        (
            Overload("is_semver_string", "(string) -> bool", _accepts(Semver)),
            Overload("is_semver_string_bool", "(string, bool) -> bool", _accepts(Semver)),
        ),
    ),
    Function(
        "isGreaterThan",
        (
            Overload(
                "semver_is_greater_than", f"{_S}.({_S}) -> bool", lambda a, b: a.compare(b) > 0
            ),
        ),
    ),
    Function(
        "isLessThan",
        (Overload("semver_is_less_than", f"{_S}.({_S}) -> bool", lambda a, b: a.compare(b) < 0),),
    ),
    Function("compareTo", (Overload("semver_compare_to", f"{_S}.({_S}) -> int", Semver.compare),)),
    Function("major", (Overload("semver_major", f"{_S}.() -> int", lambda v: v.numbers[0]),)),
    Function("minor", (Overload("semver_minor", f"{_S}.() -> int", lambda v: v.numbers[1]),)),
    Function("patch", (Overload("semver_patch", f"{_S}.() -> int", lambda v: v.numbers[2]),)),
)


class Ip(Opaque):
    __slots__ = ("address",)
    cel_type: CelType = IP_TYPE

    def __init__(self, address: Address) -> None:
        self.address = address

    def equals(self, other: Any) -> bool:
        return bool(self.address == other.address)

    def __len__(self) -> int:
        return 4 if self.address.version == 4 else 16


class Cidr(Opaque):
    __slots__ = ("network",)
    cel_type: CelType = CIDR_TYPE

    def __init__(self, network: Network) -> None:
        self.network = network

    def equals(self, other: Any) -> bool:
        return bool(self.network == other.network)

    def __len__(self) -> int:
        return 4 if self.network.version == 4 else 16


def _ip(text: str) -> Ip:
    if "%" in text:
        raise CelError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): '
            "unable to parse IP"
        ) from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Ip(address)


def _cidr(text: str) -> Cidr:
    problem = (
        f'network address parse error during conversion from string: netip.ParsePrefix("{text}")'
    )
    host, slash, bits = text.rpartition("/")
    if not slash:
        raise CelError(f"{problem}: no '/'")
    if (
        not bits.isdigit()
        or not bits.isascii()
        or (len(bits) > 1 and bits.startswith("0"))
        or "%" in host
    ):
        raise CelError(f'{problem}: bad bits after slash: "{bits}"')
    try:
        network = ipaddress.ip_interface(text)
    except ValueError:
        raise CelError(f"{problem}: unable to parse IP") from None
    address = network.ip
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Cidr(network)


def _contains(outer: Cidr, address: Address) -> bool:
    return address in outer.network.network


def _contains_cidr(outer: Cidr, inner: Cidr) -> bool:
    one, two = outer.network, inner.network
    return (
        one.version == two.version
        and two.network.prefixlen >= one.network.prefixlen
        and two.ip in one.network
    )


def _global_unicast(ip: Ip) -> bool:
    a = ip.address
    broadcast = a.version == 4 and int(a) == 0xFFFFFFFF
    return not (a.is_unspecified or a.is_loopback or a.is_multicast or a.is_link_local or broadcast)


def _masked(cidr: Cidr) -> Cidr:
    return Cidr(ipaddress.ip_interface(cidr.network.network))


def _link_local_multicast(ip: Ip) -> bool:
    a = ip.address
    if a.version == 4:
        return int(a) >> 8 == 0xE00000
    return int(a) >> 112 & 0xFF0F == 0xFF02


IP_FUNCTIONS: tuple[Function, ...] = (
    Function("ip", (Overload("string_to_ip", "(string) -> net.IP", _ip),)),
    Function("isIP", (Overload("is_ip", "(string) -> bool", _accepts(_ip)),)),
    Function(
        "ip.isCanonical",
        (
            Overload(
                "ip_is_canonical", "(string) -> bool", lambda text: str(_ip(text).address) == text
            ),
        ),
    ),
    Function(
        "string", (Overload("ip_to_string", "(net.IP) -> string", lambda ip: str(ip.address)),)
    ),
    Function("family", (Overload("ip_family", "net.IP.() -> int", lambda ip: ip.address.version),)),
    Function(
        "isUnspecified",
        (Overload("ip_is_unspecified", "net.IP.() -> bool", lambda ip: ip.address.is_unspecified),),
    ),
    Function(
        "isLoopback",
        (Overload("ip_is_loopback", "net.IP.() -> bool", lambda ip: ip.address.is_loopback),),
    ),
    Function(
        "isLinkLocalMulticast",
        (Overload("ip_is_link_local_multicast", "net.IP.() -> bool", _link_local_multicast),),
    ),
    Function(
        "isLinkLocalUnicast",
        (
            Overload(
                "ip_is_link_local_unicast", "net.IP.() -> bool", lambda ip: ip.address.is_link_local
            ),
        ),
    ),
    Function(
        "isGlobalUnicast", (Overload("ip_is_global_unicast", "net.IP.() -> bool", _global_unicast),)
    ),
)
CIDR_FUNCTIONS: tuple[Function, ...] = (
    Function("cidr", (Overload("string_to_cidr", "(string) -> net.CIDR", _cidr),)),
    Function("isCIDR", (Overload("is_cidr", "(string) -> bool", _accepts(_cidr)),)),
    Function(
        "containsIP",
        (
            Overload(
                "cidr_contains_ip_string",
                "net.CIDR.(string) -> bool",
                lambda c, text: _contains(c, _ip(text).address),
            ),
            Overload(
                "cidr_contains_ip_ip",
                "net.CIDR.(net.IP) -> bool",
                lambda c, ip: _contains(c, ip.address),
            ),
        ),
    ),
    Function(
        "containsCIDR",
        (
            Overload(
                "cidr_contains_cidr_string",
                "net.CIDR.(string) -> bool",
                lambda c, text: _contains_cidr(c, _cidr(text)),
            ),
            Overload("cidr_contains_cidr", "net.CIDR.(net.CIDR) -> bool", _contains_cidr),
        ),
    ),
    Function("ip", (Overload("cidr_ip", "net.CIDR.() -> net.IP", lambda c: Ip(c.network.ip)),)),
    Function(
        "prefixLength",
        (
            Overload(
                "cidr_prefix_length", "net.CIDR.() -> int", lambda c: c.network.network.prefixlen
            ),
        ),
    ),
    Function("masked", (Overload("cidr_masked", "net.CIDR.() -> net.CIDR", _masked),)),
    Function(
        "string", (Overload("cidr_to_string", "(net.CIDR) -> string", lambda c: str(c.network)),)
    ),
)
