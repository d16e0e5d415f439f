"""IP addresses and CIDRs as releases after 1.20 validate them: canonical in new fields, strict in
legacy fields where the feature is on, and with warnings where it is not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.machinery.field import invalid
from transom.machinery.validation.names import (
    IPAddress,
    is_cidr,
    is_valid_ip,
    parse_cidr,
    parse_ip,
)
from transom.machinery.validation.rules import Errors

STRICT_ADDRESSES: Final = "StrictIPCIDRValidation"
_INTERFACE: Final = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"

_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# An IPv4 address without anything that a check of this module looks for: most addresses are.
_PLAIN_IPV4: Final = lazy_pattern(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


def _as_written(value: str) -> IPAddress | None:
    """What Go's strict parser makes of it; None with leading zeros."""
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def _mapped(address: IPAddress | None) -> ipaddress.IPv4Address | None:
    return address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None


def _is_mapped(address: IPAddress | None) -> bool:
    return _mapped(address) is not None


def _canonical_cidr(value: str) -> str:
    """The network; a mapped address becomes an IPv4 one."""
    found = parse_cidr(value)
    assert found is not None
    network = found[1]
    mapped = _mapped(network.network_address)
    if mapped is not None and network.prefixlen >= 96:
        return f"{mapped}/{network.prefixlen - 96}"
    return str(network)


def _is_strict_prefix(value: str) -> bool:
    """Whether Go's strict parser accepts a CIDR that the lenient one accepts."""
    address, _, bits = value.partition("/")
    return _as_written(address) is not None and bits == str(int(bits))


def legacy_ip(value: str, path: str, *, strict: bool, old: Collection[str] = ()) -> Errors:
    """An address of a field that is older than strict validation; values of the stored object
    stay valid.
    """
    if value in old or _PLAIN_IPV4.fullmatch(value):
        return []
    messages = is_valid_ip(value)
    if messages:
        return [invalid(path, value, text) for text in messages]
    if not strict:
        return []
    written = _as_written(value)
    if written is None:
        return [invalid(path, value, "must not have leading 0s")]
    if _is_mapped(written):
        return [invalid(path, value, "must not be an IPv4-mapped IPv6 address")]
    return []


def canonical_ip(value: str, path: str) -> Errors:
    if _PLAIN_IPV4.fullmatch(value):
        return []
    errors = legacy_ip(value, path, strict=True)
    if errors:
        return errors
    form = str(parse_ip(value))
    if value != form:
        return [invalid(path, value, f"must be in canonical form ({go_quote(form)})")]
    return []


def legacy_cidr(value: str, path: str, *, strict: bool, old: Collection[str] = ()) -> Errors:
    if value in old:
        return []
    messages = is_cidr(value)
    if messages:
        return [invalid(path, value, text) for text in messages]
    found = parse_cidr(value)
    if not strict or found is None:
        return []
    if not _is_strict_prefix(value):
        return [invalid(path, value, "must not have leading 0s in IP or prefix length")]
    address, network = found
    if _is_mapped(address):
        return [invalid(path, value, "must not have an IPv4-mapped IPv6 address")]
    if address != network.network_address:
        return [invalid(path, value, "must not have bits set beyond the prefix length")]
    return []


def canonical_cidr(value: str, path: str) -> Errors:
    errors = legacy_cidr(value, path, strict=True)
    if errors:
        return errors
    form = _canonical_cidr(value)
    if value != form:
        return [invalid(path, value, f"must be in canonical form ({go_quote(form)})")]
    return []


def interface_address(value: str, path: str) -> Errors:
    """`10.9.8.7/24`: an address with the length of its network."""
    found = parse_cidr(value)
    if found is None:
        return [invalid(path, value, _INTERFACE)]
    address, network = found
    bits = network.prefixlen
    mapped = _mapped(address)
    if mapped is not None:
        address, bits = mapped, bits - 96 if bits > 32 else bits
    form = f"{address}/{bits}"
    if value == form:
        return []
    return [invalid(path, value, f"must be in canonical form ({go_quote(form)})")]


def ip_warnings(value: str, path: str) -> list[str]:
    if _PLAIN_IPV4.fullmatch(value):
        return []
    ip = parse_ip(value)
    if ip is None:
        return []
    written = _as_written(value)
    if written is None or _is_mapped(written):
        return [
            f"{path}: non-standard IP address {go_quote(value)} is invalid: use {go_quote(str(ip))}"
        ]
    if written.version == 6 and str(written) != value:
        return [
            f"{path}: IPv6 address {go_quote(value)} should be in RFC 5952 canonical format "
            f"({go_quote(str(written))})"
        ]
    return []


def cidr_warnings(value: str, path: str) -> list[str]:
    found = parse_cidr(value)
    if found is None:
        return []
    address, network = found
    form, shown = _canonical_cidr(value), go_quote(value)
    warnings = []
    if address != network.network_address:
        single = f"{parse_ip(str(address))}/{network.max_prefixlen}"
        warnings.append(
            f"{path}: CIDR value {shown} is ambiguous in this context (should be "
            f"{go_quote(form)} or {go_quote(single)}?)"
        )
    if not _is_strict_prefix(value) or _is_mapped(address):
        warnings.append(f"{path}: non-standard CIDR value {shown} is invalid: use {go_quote(form)}")
    if not warnings and network.version == 6 and form != value:
        warnings.append(
            f"{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format "
            f"({go_quote(form)})"
        )
    return warnings


def _parse_error(value: str) -> str:
    """The error of Go's strict parser for an address that the lenient one accepts."""
    if value != value.strip():
        return f"ParseAddr({go_quote(value)}): unexpected character (at {go_quote(value)})"
    return f"ParseAddr({go_quote(value)}): IPv4 field has octet with leading zero"


def earlier_ip_warnings(value: str, path: str) -> list[str]:
    """Addresses of services from 1.27 to 1.32."""
    written = _as_written(value)
    if written is None:
        return [
            f"{path}: IP address was accepted, but will be invalid in a future Kubernetes release: "
            f"{_parse_error(value)}"
        ]
    form = _go_form(written)
    if written.version == 6 and form != value:
        return [
            f"{path}: IPv6 address {go_quote(value)} is not in RFC 5952 canonical format "
            f"({go_quote(form)}), which may cause controller apply-loops"
        ]
    return []


def earlier_cidr_warnings(value: str, path: str) -> list[str]:
    """Source ranges of services from 1.27 to 1.32."""
    address, _, bits = value.partition("/")
    start = (
        f"{path}: IP prefix was accepted, but will be invalid in a future Kubernetes release: "
        f"netip.ParsePrefix({go_quote(value)}): "
    )
    written = _as_written(address)
    if written is None:
        return [start + _parse_error(address)]
    if not bits.isdecimal() or bits != str(int(bits)):
        return [f"{start}bad bits after slash: {go_quote(bits)}"]
    form = f"{_go_form(written)}/{bits}"
    if written.version == 6 and form != value:
        return [
            f"{path}: IPv6 prefix {go_quote(value)} is not in RFC 5952 canonical format "
            f"({go_quote(form)}), which may cause controller apply-loops"
        ]
    return []


def _go_form(address: IPAddress) -> str:
    mapped = _mapped(address)
    return str(address) if mapped is None else f"::ffff:{mapped}"
