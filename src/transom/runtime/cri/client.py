"""CRI calls by name. Connects on the first call, reconnects after the runtime was down, and
negotiates the CRI version each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from transom.http.grpc import GrpcConnection
from transom.kit.rpc import RpcError
from transom.machinery.protobuf.wire import MalformedProtobuf
from transom.runtime.api import RuntimeFailure
from transom.runtime.cri import address, codec
from transom.runtime.cri.codec import Message

VERSIONS: Final = ("v1", "v1alpha2")  # the first one that the runtime supports
REQUEST_TIMEOUT: Final = 120.0  # the kubelet's runtimeRequestTimeout
_KUBELET_API: Final = "0.1.0"
_OF_IMAGES: Final = frozenset(("ListImages", "PullImage", "RemoveImage", "ImageFsInfo"))


class CriClient:
    """`version` is what the runtime reported on the last connect."""

    def __init__(self, endpoint: str, patience: float = REQUEST_TIMEOUT) -> None:
        """Raises AddressError when this system does not support the endpoint."""
        self._address = address.parse_runtime_endpoint(endpoint)
        self._connection: GrpcConnection | None = None
        self._lock = asyncio.Lock()
        self._api = ""
        self.patience = patience
        self.version: Message = {}

    @property
    def api(self) -> str:
        """The CRI version, "" before the first call."""
        return self._api

    async def call(
        self, method: str, request: Mapping[str, Any] | None = None, seconds: float | None = None
    ) -> Message:
        """`seconds` replaces the default timeout; 0 means no limit. Raises RuntimeFailure."""
        connection = await self._connected()
        return await self._call(
            connection,
            self._api,
            method,
            request or {},
            self.patience if seconds is None else seconds,
        )

    async def _call(
        self,
        connection: GrpcConnection,
        api: str,
        method: str,
        request: Mapping[str, Any],
        seconds: float,
    ) -> Message:
        service = "ImageService" if method in _OF_IMAGES else "RuntimeService"
        raw = codec.encode(f"{method}Request", request)
        try:
            answer = await connection.call(f"/runtime.{api}.{service}/{method}", raw, seconds)
            return codec.decode(f"{method}Response", answer)
        except RpcError as failure:
            raise RuntimeFailure(failure.code, failure.description) from failure
        except MalformedProtobuf as problem:
            text = f"grpc: failed to unmarshal the received message {problem}"
            raise RuntimeFailure("Internal", text) from problem

    async def _connected(self) -> GrpcConnection:
        connection = self._connection
        if connection is not None and connection.usable:
            return connection
        async with self._lock:
            connection = self._connection
            if connection is None or not connection.usable:
                self._connection = connection = await self._meet()
            return connection

    async def _meet(self) -> GrpcConnection:
        try:
            async with asyncio.timeout(self.patience):
                connection: GrpcConnection = await address.connect_runtime(
                    self._address, GrpcConnection
                )
        except OSError as problem:
            why = address.endpoint_complaint(self._address, problem)
            raise RuntimeFailure(
                "Unavailable", f'connection error: desc = "transport: Error while dialing {why}"'
            ) from problem
        try:
            await self._negotiate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self, connection: GrpcConnection) -> None:
        """An old runtime supports only the old version of CRI, a new one only the new."""
        for api in VERSIONS:
            try:
                self.version = await self._call(
                    connection, api, "Version", {"version": _KUBELET_API}, self.patience
                )
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
