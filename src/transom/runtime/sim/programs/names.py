"""What every program that looks for names shares: a resolver as its container has it, and arguments that name types."""

from __future__ import annotations

from transom.kit import dnswire as wire
from transom.network.resolver import Resolver, Tool, is_address
from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.resolve import settings


def resolver(context: ProgramContext, server: str = "", tool: Tool = "system") -> Resolver:
    """With `server`, an address, instead of the container's own."""
    dns = settings(context.os, lambda: context.files, context.dns)
    if server:
        dns = dns._replace(servers=(server,))
    return Resolver(context.os, dns, context.clock, context.rng, context.ask, context.connect, tool)


async def server_address(context: ProgramContext, server: str) -> str:
    """Of a server that was named by its name or its address. socket.gaierror."""
    return server if not server or is_address(server) else (await context.resolve(server))[0]


def type_of(text: str) -> int | None:
    """The number of a type by its name; None if there is no such type."""
    upper = text.upper()
    if upper in wire.TYPES:
        return wire.TYPES[upper]
    return int(upper[4:]) if upper.startswith("TYPE") and upper[4:].isdigit() else None


def canonical(message: wire.Message, asked: str) -> str:
    """The name that addresses belong to, after all other names for it."""
    owners = [record.name for record in message.answers if record.type in (wire.A, wire.AAAA)]
    return wire.text(owners[0]) if owners else asked


def reverse_text(address: str) -> str:
    return wire.text(wire.reverse_name(address))
