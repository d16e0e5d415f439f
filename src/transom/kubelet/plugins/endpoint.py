"""Calls to a socket of the node: by gRPC where files are real, directly where they are
simulated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from transom.kit.lazy import lazy_import
from transom.kit.rpc import Answer, RpcError
from transom.machinery.protobuf.table import Message, MessageTable
from transom.machinery.protobuf.wire import MalformedProtobuf
from transom.machines.api import Files

if TYPE_CHECKING:
    from transom.http import grpc
else:
    grpc = lazy_import("transom.http.grpc")

REQUEST_TIMEOUT: Final = 120.0
TABLE: Final = MessageTable(resources(__package__).joinpath("messages.txt").read_text)


@runtime_checkable
class _Real(Protocol):
    """The machine's files."""

    def open(self, path: str) -> int: ...


class _Simulated(Protocol):
    def answerer(self, path: str) -> Answer: ...


class PluginEndpoint:
    """One connection per call, as kubelets do: a driver may have been replaced in between."""

    __slots__ = ("_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    async def call(
        self,
        method: str,
        request: Mapping[str, Any] | None = None,
        seconds: float = REQUEST_TIMEOUT,
    ) -> Message:
        """`method` as /csi.v1.Node/NodeGetInfo. Raises RpcError."""
        try:
            if isinstance(self._files, _Real):
                return await self._by_grpc(self._files, method, request or {}, seconds)
            answer = cast(_Simulated, self._files).answerer(self.path)
        except OSError as problem:
            raise RpcError("Unavailable", self._unreachable_text(problem)) from problem
        return dict(await answer(method, request or {}))

    async def _by_grpc(
        self, files: _Real, method: str, request: Mapping[str, Any], seconds: float
    ) -> Message:
        name = method.rpartition("/")[2]
        way = files.open(self.path)  # whatever links it follows, and however long the path is
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(
                grpc.GrpcConnection, f"/proc/self/fd/{way}"
            )
        finally:
            os.close(way)
        try:
            return TABLE.decode(
                f"{name}Response",
                await connection.call(method, TABLE.encode(f"{name}Request", request), seconds),
            )
        except MalformedProtobuf as problem:
            raise RpcError(
                "Internal", f"grpc: failed to unmarshal the received message {problem}"
            ) from problem
        finally:
            connection.close()

    def _unreachable_text(self, problem: OSError) -> str:
        why = os.strerror(problem.errno).lower() if problem.errno else str(problem)
        return (
            f'connection error: desc = "transport: Error while dialing dial unix {self.path}: '
            f'connect: {why}"'
        )
