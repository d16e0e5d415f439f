"""What csi-provisioner, csi-attacher, csi-resizer and csi-snapshotter have in common: they watch
some resources and reconcile all of them when something changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.userland.api import Program, ProgramContext
from transom.userland.csi import registrar
from transom.userland.csi.api import ApiFailure, CsiApi, Object
from transom.userland.csi.flags import parse_csi_flags, socket_path
from transom.userland.servers.base import ServerProgram

_RETRY: Final = 5.0
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"


class Sidecar:
    """`driver` is the driver's name, which is known before the first reconciliation."""

    def __init__(
        self, context: ProgramContext, server: ServerProgram, api: CsiApi, socket: str
    ) -> None:
        self.context = context
        self.api = api
        self.driver = ""
        self.flags = parse_csi_flags(context.argv)
        self._server = server
        self._socket = socket

    async def call(self, method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Calls the driver's Controller service. Raises RpcError."""
        return await registrar.call_plugin(
            self.context, self._socket, f"/csi.v1.Controller/{method}", request
        )

    def log(self, line: str) -> None:
        self._server.out(line)

    async def record_event(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Records an event; a missing permission is ignored."""
        try:
            who = (
                f"{self.driver}_{self.context.network.hostname}"
                if self.driver
                else "snapshot-controller"
            )
            await self.api.event(about, kind, reason, message, who)
        except ApiFailure as problem:
            self.log(f"cannot write event: {problem}")

    async def each(
        self, objects: Iterable[Object], reconcile: Callable[[Object], Awaitable[None]]
    ) -> None:
        """Reconciles all objects: one that fails does not keep the others waiting. Raises the first failure
        at the end, so that the round is repeated.
        """
        failures: list[ApiFailure | RpcError] = []
        for one in objects:
            try:
                await reconcile(one)
            except (ApiFailure, RpcError) as problem:
                failures.append(problem)
        for later in failures[1:]:
            self.log(str(later))
        if failures:
            raise failures[0]


Round = Callable[[Sidecar], Awaitable[None]]
Paths = Callable[[CsiApi], Awaitable[Sequence[str]]]


def fixed(*paths: str) -> Paths:
    async def found(api: CsiApi) -> Sequence[str]:
        return paths

    return found


def sidecar(
    paths: Paths, once: Round, *, needs_driver: bool = True
) -> Callable[[ProgramContext], Program]:
    """A program that calls `once` whenever something at the paths changes."""

    def start(context: ProgramContext) -> Program:
        server = ServerProgram(context)
        flags = parse_csi_flags(context.argv)
        try:
            api = CsiApi(context)
        except ApiFailure as problem:
            server.err(str(problem))
            server.exit(1)
            return server
        address = flags.get("csi-address") or context.env.get("ADDRESS") or "/run/csi/socket"
        side = Sidecar(context, server, api, socket_path(address, context.os == "windows"))
        server.spawn(_run(side, server, paths, once, needs_driver))
        return server

    return start


async def _run(
    side: Sidecar, server: ServerProgram, paths: Paths, once: Round, needs_driver: bool
) -> None:
    clock = side.context.clock
    side.log(f"{side.context.argv[0]} (simulated)")
    if needs_driver:
        side.driver = await registrar.driver_name(side.context, server, side._socket)
        side.log(f'CSI driver name: "{side.driver}"')
    changed = asyncio.Event()
    watched: Sequence[str] = ()
    while not watched:
        try:
            watched = await paths(side.api)
        except ApiFailure as problem:
            side.log(str(problem))
            await clock.sleep(_RETRY)
    for path in watched:
        server.spawn(_watch(side, path, changed))
    retries = False  # at most one retry is due: each failed round would add another

    def retry() -> None:
        nonlocal retries
        retries = False
        changed.set()

    while True:
        await changed.wait()
        changed.clear()
        try:
            await once(side)
        except (ApiFailure, RpcError) as problem:
            side.log(str(problem))
            if not retries:
                retries = True
                clock.call_later(_RETRY, retry)


async def _watch(side: Sidecar, path: str, changed: asyncio.Event) -> None:
    while True:
        try:
            await side.api.watch(path, changed.set)
        except ApiFailure as problem:
            side.log(f"Failed to watch {path}: {problem}")
            await side.context.clock.sleep(_RETRY)
