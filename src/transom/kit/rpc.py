"""A failed remote procedure call, in gRPC's terms. Independent of caller and transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class RpcError(Exception):
    """`str()` is the whole text, prefixed with "rpc error: code = CODE desc = ". `code` is gRPC's
    name of the code.
    """

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {description}")
        self.code = code
        self.description = description


Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Handles calls: gets the path of the method (`/csi.v1.Node/NodeGetInfo`) and the request, and
returns the response. Raises RpcError.
"""
