"""A DNS server's configuration: its domain, and the servers for names outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from ipaddress import ip_address
from typing import Final

from transom.dns.zone import DEFAULT_TTL
from transom.kit import dnswire as wire
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple

PORT: Final = 53
NAMESERVER: Final = "kube-system/kube-dns"


class DnsServerAddress(NamedTuple):
    address: str
    port: int = PORT


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """`stub_domains` and `upstreams` name servers as `10.0.0.1`, `10.0.0.1:5353` or
    `[fd00::1]:5353`.
    """

    domain: str = "cluster.local"
    ttl: int = DEFAULT_TTL  # TTL in seconds of the cluster's answers
    cache: int = 30  # the maximum caching time of other servers' answers
    upstreams: tuple[str, ...] = ()  # empty: only the cluster's names exist
    stub_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # names with addresses, which take precedence
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nameserver: str = NAMESERVER  # the service of this server


def parse_server_address(text: str) -> DnsServerAddress:
    """Raises ValueError if it is not an address."""
    address, port = text.strip(), PORT
    if address.startswith("["):
        address, _, rest = address[1:].partition("]")
        if rest:
            port = _port(rest.removeprefix(":"), text)
    elif address.count(":") == 1:
        address, _, rest = address.partition(":")
        port = _port(rest, text)
    try:
        return DnsServerAddress(str(ip_address(address)), port)
    except ValueError:
        raise ValueError(
            f"{text!r} is not the address of a name server: write 10.0.0.1 or 10.0.0.1:53"
        ) from None


def _port(text: str, whole: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ValueError(f"{whole!r} does not end in a port")
    return int(text)


def check_dns_settings(settings: DnsSettings, own: Iterable[DnsServerAddress] = ()) -> None:
    """Raises ValueError for invalid settings: an invalid domain or server, or a server that is one
    of the `own` addresses, which would cause a loop.
    """
    ours = set(own)
    for domain in (settings.domain, *settings.stub_domains, *settings.hosts):
        if not domain.strip("."):
            raise ValueError(
                "the root cannot be a domain of its own: name its servers as upstreams"
            )
        wire.encode_name(domain)
    for text in (
        *settings.upstreams,
        *(text for texts in settings.stub_domains.values() for text in texts),
    ):
        if parse_server_address(text) in ours:
            raise ValueError(f"{text} is this name server itself: questions to it would never end")
    for name, addresses in settings.hosts.items():
        for address in addresses:
            try:
                ip_address(address)
            except ValueError:
                raise ValueError(f"{address!r} is not an address for {name}") from None
