"""Where a container runtime listens: `unix:///run/containerd/containerd.sock`, `npipe:////./pipe/containerd-containerd`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

DEFAULT: Final = (
    "npipe:////./pipe/containerd-containerd" if sys.platform == "win32" else "unix:///run/containerd/containerd.sock"
)


class AddressError(ValueError):
    """It is no address, or none that this operating system has."""


class Address(NamedTuple):
    kind: Literal["unix", "npipe"]
    path: str  # of the socket, or `\\\\.\\pipe\\NAME`

    def __str__(self) -> str:
        """As an endpoint."""
        return f"{self.kind}://{self.path.replace(chr(92), '/')}"


def parse(endpoint: str, platform: str = sys.platform) -> Address:
    """As Kubernetes reads it. AddressError also for what can be read but not reached from `platform`."""
    parts = urlsplit(endpoint.replace("\\", "/") if endpoint.startswith("npipe:") else endpoint)
    windows = platform == "win32"
    if parts.scheme == "unix" or endpoint.startswith("/"):
        if windows:
            raise AddressError(f'the endpoint "{endpoint}" is a Unix socket; on Windows it is "{_example(windows)}"')
        path = parts.path if parts.scheme else endpoint
        if parts.netloc or not path.startswith("/"):
            raise AddressError(f'the endpoint "{endpoint}" names no absolute path: "{_example(windows)}" does')
        return Address("unix", path)
    if parts.scheme == "npipe":
        pipe = parts.path if parts.path.startswith("//") else f"//{parts.netloc or '.'}{parts.path}"
        if not pipe.lower().startswith("//./pipe/") or pipe.endswith("/"):
            raise AddressError(f'the endpoint "{endpoint}" names no pipe: "npipe:////./pipe/containerd-containerd" does')
        if not windows:
            raise AddressError(
                f'the endpoint "{endpoint}" is a named pipe, which only Windows has; here it is "{_example(windows)}"'
            )
        return Address("npipe", pipe.replace("/", "\\"))
    known = "npipe" if windows else "unix"
    raise AddressError(f'the endpoint "{endpoint}" is not supported: only {known} endpoints as "{_example(windows)}" are')


def _example(windows: bool) -> str:
    return "npipe:////./pipe/containerd-containerd" if windows else "unix:///run/containerd/containerd.sock"


async def connect(address: Address, protocol: Callable[[], asyncio.Protocol]) -> Any:
    """The protocol, connected. Raises OSError."""
    loop: Any = asyncio.get_running_loop()
    if address.kind == "npipe":
        # Of the loop that asyncio has on Windows. While all instances of a pipe are busy it tries again, without end.
        _, made = await loop.create_pipe_connection(protocol, address.path)
        await asyncio.sleep(0)  # it answers before it has told the protocol
    else:
        _, made = await loop.create_unix_connection(protocol, address.path)
    return made


def complaint(address: Address, problem: OSError) -> str:
    """Why `connect` failed, as Go says it; Windows' words are sentences."""
    if address.kind == "npipe":
        if isinstance(problem, TimeoutError):
            return "context deadline exceeded"
        pipe = address.path.replace("\\", "/")
        return f"open {pipe}: {(problem.strerror or str(problem)).rstrip('.')}."
    why = os.strerror(problem.errno).lower() if problem.errno else str(problem) or "i/o timeout"
    return f"dial unix {address.path}: connect: {why}"
