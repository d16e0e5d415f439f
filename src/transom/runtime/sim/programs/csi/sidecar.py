"""What csi-provisioner, csi-attacher, csi-resizer and csi-snapshotter have in common: they watch some resources, and when
something has changed go through all of them and do what is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.csi import registrar
from transom.runtime.sim.programs.csi.api import Api, ApiFailure, Object
from transom.runtime.sim.programs.csi.flags import parse, socket_path
from transom.runtime.sim.programs.servers.base import Server

_RETRY: Final = 5.0
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"


class Sidecar:
    """`driver` is the driver's name, known before the first round."""

    def __init__(self, context: ProgramContext, server: Server, api: Api, socket: str) -> None:
        self.context = context
        self.api = api
        self.driver = ""
        self.flags = parse(context.argv)
        self._server = server
        self._socket = socket

    async def call(self, method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The driver's Controller service. Raises RpcError."""
        return await registrar.call(self.context, self._socket, f"/csi.v1.Controller/{method}", request)

    def log(self, line: str) -> None:
        self._server.out(line)

    async def tell(self, about: Object, kind: str, reason: str, message: str) -> None:
        """An event; that nobody may write it is no reason to stop."""
        try:
            who = f"{self.driver}_{self.context.hostname}" if self.driver else "snapshot-controller"
            await self.api.event(about, kind, reason, message, who)
        except ApiFailure as problem:
            self.log(f"cannot write event: {problem}")


Round = Callable[[Sidecar], Awaitable[None]]
Paths = Callable[[Api], Awaitable[Sequence[str]]]


def fixed(*paths: str) -> Paths:
    async def found(api: Api) -> Sequence[str]:
        return paths

    return found


def sidecar(paths: Paths, once: Round, *, needs_driver: bool = True) -> Callable[[ProgramContext], Program]:
    """A program that does `once` whenever something at the paths has changed."""

    def start(context: ProgramContext) -> Program:
        server = Server(context)
        flags = parse(context.argv)
        try:
            api = Api(context)
        except ApiFailure as problem:
            server.err(str(problem))
            server.exit(1)
            return server
        address = flags.get("csi-address") or context.env.get("ADDRESS") or "/run/csi/socket"
        side = Sidecar(context, server, api, socket_path(address, context.os == "windows"))
        server.spawn(_run(side, server, paths, once, needs_driver))
        return server

    return start


async def _run(side: Sidecar, server: Server, paths: Paths, once: Round, needs_driver: bool) -> None:
    clock = side.context.clock
    side.log(f"{side.context.argv[0]} (simulated)")
    if needs_driver:
        side.driver = await registrar.driver_name(side.context, server, side._socket)
        side.log(f'CSI driver name: "{side.driver}"')
    news = asyncio.Event()
    watched: Sequence[str] = ()
    while not watched:
        try:
            watched = await paths(side.api)
        except ApiFailure as problem:
            side.log(str(problem))
            await clock.sleep(_RETRY)
    for path in watched:
        server.spawn(_watch(side, path, news))
    while True:
        await news.wait()
        news.clear()
        try:
            await once(side)
        except (ApiFailure, RpcError) as problem:
            side.log(str(problem))
            server.later(_RETRY, news.set)


async def _watch(side: Sidecar, path: str, news: asyncio.Event) -> None:
    while True:
        try:
            await side.api.watch(path, news.set)
        except ApiFailure as problem:
            side.log(f"Failed to watch {path}: {problem}")
            await side.context.clock.sleep(_RETRY)
