"""How an operating system resolves a name: which names it queries, at which servers, and with which
timeouts.

Linux tries the suffixes of its search list, depending on the number of dots in the name; Windows
treats every name with a dot as complete and knows a single suffix. The rules are pure
(`resolver_steps`, `resolver_turns`), so that a trace can show them; `Resolver` applies them with
real DNS messages, over any transport.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Literal, TypeVar

from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.network.api import Dial, DnsConfig

Os = Literal["linux", "windows"]
Tool = Literal["system", "nslookup"]
Ask = Callable[[str, int, bytes], Awaitable[bytes]]
"""Takes server, port and a datagram; returns the reply. Raises OSError; TimeoutError if it takes
too long.
"""

T = TypeVar("T")
PORT: Final = 53
_LOCAL = "127.0.0.1"
_MOST_SERVERS = 3
_MOST_DOTS, _MOST_ATTEMPTS, _LONGEST_WAIT = 15, 5, 30
_EDNS_SIZE = 1200
_WINDOWS_WAITS = (1.0, 1.0, 2.0, 4.0, 4.0)
_UNIQUE_LOCAL = ipaddress.ip_network("fc00::/7")
# Why a lookup failed -> number and text of the error that programs get.
ERRORS: Final = {
    ("linux", "unknown"): (socket.EAI_NONAME, "Name or service not known"),
    ("linux", "no data"): (-5, "No address associated with hostname"),
    ("linux", "again"): (socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ("windows", "unknown"): (11001, "No such host is known."),
    ("windows", "no data"): (
        11004,
        "The requested name is valid, but no data of the requested type was found.",
    ),
    ("windows", "again"): (
        11002,
        "This is usually a temporary error during hostname resolution and means that the "
        "local server did not receive a "
        "response from an authoritative server.",
    ),
}
_GO_ON = (wire.SERVFAIL, wire.REFUSED, wire.NOTIMP)  # the next server may succeed


class ResolverStep(NamedTuple):
    name: str  # fully qualified, without the trailing dot
    why: str


class ResolverReply(NamedTuple):
    name: str  # the queried name
    server: str
    message: wire.DnsMessage


class ResolverOptions(NamedTuple):
    """Options of Linux' resolver."""

    ndots: int = 1
    attempts: int = 2
    timeout: int = 5
    rotate: bool = False
    tcp: bool = False
    edns: bool = False


# ---- rules ----


def resolver_steps(
    name: str, dns: DnsConfig, os: Os, tool: Tool = "system"
) -> Iterator[ResolverStep]:
    """The names to query, in order, until one of them is found."""
    if name.endswith("."):
        yield ResolverStep(name[:-1], "it ends in a dot, so it is complete")
    elif os == "windows":
        yield from _windows_steps(name, dns_suffix(dns), tool)
    else:
        yield from _linux_steps(name, dns)


def _windows_steps(name: str, one: str, tool: Tool) -> Iterator[ResolverStep]:
    dotted = "." in name
    if one and (not dotted or tool == "nslookup"):
        why = f"with {one}, the only suffix of the pod"
        yield ResolverStep(
            f"{name}.{one}", why if not dotted else f"{why}, which nslookup adds to every name"
        )
    if dotted:
        yield ResolverStep(name, "Windows takes a name with a dot for a complete one")
    elif not one:
        yield ResolverStep(name, "as it is, for the pod has no suffix")
    elif tool == "nslookup":
        yield ResolverStep(name, "as it is, after the suffix")


def _linux_steps(name: str, dns: DnsConfig) -> Iterator[ResolverStep]:
    ndots, dots = resolver_options(dns).ndots, name.count(".")
    suffixed = [ResolverStep(f"{name}.{s}", f"with {s} of the search list") for s in _suffixes(dns)]
    if dots >= ndots:
        yield ResolverStep(name, f"as it is first, for it has {_dots(dots)} and ndots is {ndots}")
        yield from suffixed
    else:
        yield from suffixed
        yield ResolverStep(name, "as it is" + (", after the search list" if suffixed else ""))


def _dots(count: int) -> str:
    return "no dot" if not count else "1 dot" if count == 1 else f"{count} dots"


def _suffixes(dns: DnsConfig) -> list[str]:
    return [s.strip(".") for s in dns.searches if s.strip(".")]


def dns_suffix(dns: DnsConfig) -> str:
    """The suffix that Windows uses: that of the pod's namespace."""
    return next(iter(_suffixes(dns)), "")


def limit_config(name: str, dns: DnsConfig, os: Os) -> str:
    """The id of the Windows limitation that may explain why a name that resolves on Linux does
    not.
    """
    if os != "windows" or name.endswith("."):
        return ""
    if "." in name:
        return "WIN-DNS-002"
    return "WIN-DNS-003" if len(_suffixes(dns)) > 1 else ""


def resolver_options(dns: DnsConfig) -> ResolverOptions:
    """Later options win; invalid ones are ignored."""
    found = ResolverOptions()
    for text in dns.options:
        key, _, value = text.partition(":")
        number = int(value) if value.isdigit() else -1
        match key:
            case "ndots" if number >= 0:
                found = found._replace(ndots=min(number, _MOST_DOTS))
            case "attempts" if number >= 0:
                found = found._replace(attempts=min(max(number, 1), _MOST_ATTEMPTS))
            case "timeout" if number >= 0:
                found = found._replace(timeout=min(max(number, 1), _LONGEST_WAIT))
            case "rotate":
                found = found._replace(rotate=True)
            case "use-vc" | "usevc":
                found = found._replace(tcp=True)
            case "edns0":
                found = found._replace(edns=True)
    return found


def resolver_turns(dns: DnsConfig, os: Os) -> list[tuple[str, float]]:
    """The servers to query, in order, with timeouts in seconds, until one of them answers."""
    if os == "windows":
        servers = dns.servers
        return (
            [(servers[i % len(servers)], wait) for i, wait in enumerate(_WINDOWS_WAITS)]
            if servers
            else []
        )
    servers = dns.servers[:_MOST_SERVERS] or (_LOCAL,)
    found = resolver_options(dns)
    waits = [
        max(float(found.timeout << i) / (len(servers) if i else 1), 1.0)
        for i in range(len(servers))
    ]
    return list(zip(servers, waits, strict=True)) * found.attempts


def read_resolv_conf(text: str) -> DnsConfig:
    """The settings of a Linux process when it starts to resolve names."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    more: list[str] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 2 or fields[0][0] in "#;":
            continue
        match fields[0]:
            case "nameserver":
                servers.append(fields[1])
            case "domain":
                searches = (fields[1],)
            case "search":
                searches = tuple(fields[1:])
            case "options":
                more += fields[1:]
    return DnsConfig(tuple(servers), searches, tuple(more))


def address_families(own: Sequence[str]) -> tuple[int, ...]:
    """The record types that are useful for a client with these addresses."""
    types = (wire.A,) if not own or any(":" not in address for address in own) else ()
    return (*types, wire.AAAA) if any(":" in address for address in own) else types


def preferred_addresses(addresses: Sequence[str]) -> list[str]:
    """In the order of RFC 6724: IPv6 before IPv4, but private IPv6 after it."""
    return sorted(addresses, key=_rank)


def _rank(address: str) -> int:
    if ":" not in address:
        return 1
    return 2 if ipaddress.ip_address(address) in _UNIQUE_LOCAL else 0


# ---- queries ----


class Resolver:
    """The resolver of one process: `ask` sends datagrams from where it runs, `dial` connects, for
    truncated answers.
    """

    def __init__(
        self,
        os: Os,
        dns: DnsConfig,
        clock: Clock,
        rng: random.Random,
        ask: Ask,
        dial: Dial | None = None,
        tool: Tool = "system",
    ) -> None:
        self.os = os
        self.dns = dns
        self._tool: Tool = tool
        self._clock = clock
        self._rng = rng
        self._ask = ask
        self._dial = dial
        self._options = resolver_options(dns) if os == "linux" else ResolverOptions()

    async def addresses(self, name: str, types: Sequence[int] = (wire.A,)) -> list[str]:
        """Raises socket.gaierror if there are none."""
        problem = "unknown"
        for step in resolver_steps(name, self.dns, self.os, self._tool):
            try:
                replies = await self._query_all(step.name, types)
            except ValueError:  # not a valid name with this suffix
                continue
            except OSError:
                problem = "again"
                break  # no server answers: the next name would fail as well
            found = [a for reply in replies for a in addresses_in(reply.message)]
            if found:
                return preferred_addresses(found)
            rcodes = {reply.message.rcode for reply in replies}
            if rcodes & set(_GO_ON):
                problem = "again"
            elif wire.NOERROR in rcodes:
                problem = "no data"
        raise socket.gaierror(*ERRORS[self.os, problem])

    async def _query_all(self, name: str, types: Sequence[int]) -> list[ResolverReply]:
        if len(types) == 1:
            return [await self.query(name, types[0])]
        replies = await asyncio.gather(
            *(self.query(name, type) for type in types), return_exceptions=True
        )
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return [reply for reply in replies if isinstance(reply, ResolverReply)]

    async def search(self, name: str, *types: int) -> list[ResolverReply]:
        """The replies, one for each type, to the first name with an answer, otherwise to the last
        one that exists. Raises ValueError for an invalid name; OSError if no server answers.
        """
        last: list[ResolverReply] = []
        for step in resolver_steps(name, self.dns, self.os, self._tool):
            try:
                replies = await self._query_all(step.name, types)
            except ValueError:
                continue
            if any(reply.message.answers for reply in replies):
                return replies
            if not _known(last) or _known(replies):
                last = replies
        if not last:
            raise ValueError(f"{name} is not a domain name")
        return last

    async def query(self, name: str, type: int) -> ResolverReply:
        """Queries a fully qualified name. Raises ValueError if it is invalid; OSError if no server
        answers: TimeoutError, or the last refused connection.
        """
        requested = wire.encode_name(name)
        order = resolver_turns(self.dns, self.os)
        if self._options.rotate and order:
            start = self._rng.randrange(len(order))
            order = order[start:] + order[:start]
        problem: OSError = TimeoutError("no servers could be reached")
        refusal: ResolverReply | None = None
        silent: set[str] = set()
        for server, seconds in order:
            if server in silent:
                continue
            try:
                reply = ResolverReply(
                    name,
                    server,
                    await limited_config(
                        self._clock, seconds, self._exchange(server, requested, type)
                    ),
                )
            except wire.MalformedDnsMessage:
                continue
            except TimeoutError as error:
                problem = error
                continue
            except OSError as error:
                problem = error
                silent.add(server)
                continue
            if reply.message.rcode not in _GO_ON:
                return reply
            refusal = reply
            silent.add(server)
        if refusal is None:
            raise problem
        return refusal

    async def _exchange(self, server: str, requested: bytes, type: int) -> wire.DnsMessage:
        number = self._rng.getrandbits(16)
        payload = wire.encode_query(
            number, requested, type, edns=wire.Edns(_EDNS_SIZE) if self._options.edns else None
        )
        if not self._options.tcp or self._dial is None:
            message = _checked(await self._ask(server, PORT, payload), number)
            if not message.truncated or self._dial is None:
                return message
        with await self._dial(server, PORT) as connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, len(payload).to_bytes(2) + payload)
            size = int.from_bytes(await _exactly(connection, 2))
            return _checked(await _exactly(connection, size), number)


def _checked(data: bytes, number: int) -> wire.DnsMessage:
    message = wire.parse_dns_message(data)
    if message.id != number or not message.flags & wire.QR:
        raise wire.MalformedDnsMessage("an answer to another question")
    return message


async def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(connection, size - len(data))
        if not piece:
            raise ConnectionResetError("the connection has ended")
        data += piece
    return data


def _known(replies: Sequence[ResolverReply]) -> bool:
    return any(reply.message.rcode == wire.NOERROR for reply in replies)


def addresses_in(message: wire.DnsMessage) -> list[str]:
    return [
        wire.data_text(record) for record in message.answers if record.type in (wire.A, wire.AAAA)
    ]


async def limited_config(clock: Clock, seconds: float, coming: Awaitable[T]) -> T:
    """Raises TimeoutError if it takes longer, by this clock."""
    task = asyncio.ensure_future(coming)
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = clock.call_later(seconds, expire)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        # the caller may have given up too
        if expired and (current is None or not current.cancelling()):
            raise TimeoutError("no answer in time") from None
        task.cancel()
        raise
    finally:
        timer.cancel()
