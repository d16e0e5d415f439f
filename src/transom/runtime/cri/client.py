"""CRI's calls by their names. Connects when somebody calls, again after the runtime was away, and finds out each time which
version of the interface it speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from transom.http.grpc import Connection
from transom.kit.rpc import RpcError
from transom.machinery.protobuf.wire import Malformed
from transom.runtime.api import RuntimeFailure
from transom.runtime.cri import address, codec
from transom.runtime.cri.codec import Message

VERSIONS: Final = ("v1", "v1alpha2")  # the first that the runtime has
PATIENCE: Final = 120.0  # the kubelet's runtimeRequestTimeout
_KUBELET_API: Final = "0.1.0"
_OF_IMAGES: Final = frozenset(("ListImages", "PullImage", "RemoveImage", "ImageFsInfo"))


class Client:
    """`version` is what the runtime said of itself when it was last met."""

    def __init__(self, endpoint: str, patience: float = PATIENCE) -> None:
        """AddressError when the endpoint is none of this system's."""
        self._address = address.parse(endpoint)
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._api = ""
        self.patience = patience
        self.version: Message = {}

    @property
    def api(self) -> str:
        """The version of the interface, "" before the first call."""
        return self._api

    async def call(self, method: str, request: Mapping[str, Any] | None = None, seconds: float | None = None) -> Message:
        """`seconds` is the patience unless told otherwise; 0 means no limit. Raises RuntimeFailure."""
        connection = await self._met()
        return await self._call(connection, self._api, method, request or {}, self.patience if seconds is None else seconds)

    async def _call(
        self, connection: Connection, api: str, method: str, request: Mapping[str, Any], seconds: float
    ) -> Message:
        service = "ImageService" if method in _OF_IMAGES else "RuntimeService"
        raw = codec.encode(f"{method}Request", request)
        try:
            answer = await connection.call(f"/runtime.{api}.{service}/{method}", raw, seconds)
            return codec.decode(f"{method}Response", answer)
        except RpcError as failure:
            raise RuntimeFailure(failure.code, failure.description) from failure
        except Malformed as problem:
            text = f"grpc: failed to unmarshal the received message {problem}"
            raise RuntimeFailure("Internal", text) from problem

    async def _met(self) -> Connection:
        connection = self._connection
        if connection is not None and connection.usable:
            return connection
        async with self._lock:
            connection = self._connection
            if connection is None or not connection.usable:
                self._connection = connection = await self._meet()
            return connection

    async def _meet(self) -> Connection:
        try:
            async with asyncio.timeout(self.patience):
                connection: Connection = await address.connect(self._address, Connection)
        except OSError as problem:
            why = address.complaint(self._address, problem)
            raise RuntimeFailure("Unavailable", f'connection error: desc = "transport: Error while dialing {why}"') from problem
        try:
            await self._negotiate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self, connection: Connection) -> None:
        """An old runtime has only the old version of the interface, a new one only the new."""
        for api in VERSIONS:
            try:
                self.version = await self._call(connection, api, "Version", {"version": _KUBELET_API}, self.patience)
            except RuntimeFailure as failure:
                if failure.code != "Unimplemented" or api == VERSIONS[-1]:
                    raise
            else:
                self._api = api
                return

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
