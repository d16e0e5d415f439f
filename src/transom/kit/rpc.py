"""A call of a procedure elsewhere that failed, in gRPC's words. Knows neither who calls nor how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class RpcError(Exception):
    """`str()` is the whole text, with "rpc error: code = CODE desc = " in front. `code` is gRPC's name of it."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {description}")
        self.code = code
        self.description = description


Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Who answers calls: the path of the method (`/csi.v1.Node/NodeGetInfo`) and the request give the answer. Raises RpcError."""
