"""Sockets of the node on which a kubelet answers calls: by gRPC where files are real, directly where
they are simulated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from transom.kit.lazy import lazy_import
from transom.kit.rpc import Answer, RpcError
from transom.kubelet.plugins.endpoint import TABLE
from transom.machinery.protobuf.wire import MalformedProtobuf
from transom.machines.api import Files

if TYPE_CHECKING:
    from transom.http import grpc_server
else:
    grpc_server = lazy_import("transom.http.grpc_server")

_MOST_CONNECTIONS = 32


@runtime_checkable
class _Real(Protocol):
    def open(self, path: str) -> int: ...


class _Simulated(Protocol):
    def listen(self, path: str, answer: Answer) -> Callable[[], None]: ...


async def answer_calls(files: Files, folder: str, name: str, answer: Answer) -> None:
    """Until cancelled, at a socket of this name. Its folder and a socket that is left there from
    before are replaced. Raises OSError.
    """
    files.mkdir(folder, 0o750)
    path = f"{folder}/{name}"
    with suppress(FileNotFoundError):
        files.remove(path)
    if isinstance(files, _Real):
        await _listen_by_grpc(files, folder, name, answer)
        return
    close = cast(_Simulated, files).listen(path, answer)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        close()


async def _listen_by_grpc(files: _Real, folder: str, name: str, answer: Answer) -> None:
    open_connections = 0

    async def handle(path: str, request: bytes) -> bytes:
        method = path.rpartition("/")[2]
        try:
            decoded = TABLE.decode(f"{method}Request", request)
        except KeyError:
            service = path.strip("/").rpartition("/")[0]
            raise RpcError(
                "Unimplemented", f"unknown method {method} for service {service}"
            ) from None
        except MalformedProtobuf as problem:
            raise RpcError("Internal", f"grpc: error unmarshalling request: {problem}") from problem
        return TABLE.encode(f"{method}Response", await answer(path, decoded))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        if open_connections >= _MOST_CONNECTIONS:
            writer.close()
            return
        open_connections += 1
        try:
            await grpc_server.serve_grpc_connection(reader, writer, handle)
        finally:
            open_connections -= 1

    way = files.open(folder)  # whatever links it follows, and however long the path is
    try:
        server = await asyncio.start_unix_server(connected, f"/proc/self/fd/{way}/{name}")
    finally:
        os.close(way)
    async with server:
        await server.serve_forever()
