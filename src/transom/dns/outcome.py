"""The values that pass through the chain of a DNS server: requests and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from transom.kit import dnswire as wire
from transom.kit.dnswire import DnsRecord
from transom.kit.named_tuple import NamedTuple


class DnsRequest(NamedTuple):
    requested: bytes  # the name in the client's spelling
    labels: Sequence[bytes]  # of the name, in lower case
    type: int
    do: bool = False  # the client requests signatures (DNSSEC OK)
    depth: int = 0  # the number of aliases followed so far

    @property
    def key(self) -> tuple[bytes, int, bool]:
        return self.requested.lower(), self.type, self.do


class DnsOutcome(NamedTuple):
    rcode: int
    answers: Sequence[DnsRecord] = ()
    authority: Sequence[DnsRecord] = ()
    additional: Sequence[DnsRecord] = ()
    flags: int = wire.AA  # in addition to those of every answer
    depends: Sequence[str] | None = None  # valid until one of these changes; None: not cacheable


Link = Callable[[DnsRequest], "DnsOutcome | Coroutine[Any, Any, DnsOutcome] | None"]
"""A link of the chain. None passes the request on to the next link. Only links that wait return a
coroutine.
"""


def make_dns_request(requested: bytes, type: int, do: bool = False, depth: int = 0) -> DnsRequest:
    return DnsRequest(requested, wire.name_labels(requested.lower()), type, do, depth)
