"""Where a container runtime listens: `unix:///run/containerd/containerd.sock`,
`npipe:////./pipe/containerd-containerd`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

DEFAULT: Final = (
    "npipe:////./pipe/containerd-containerd"
    if sys.platform == "win32"
    else "unix:///run/containerd/containerd.sock"
)


class RuntimeEndpointError(ValueError):
    """Not an endpoint, or not one that this operating system supports."""


class RuntimeEndpoint(NamedTuple):
    kind: Literal["unix", "npipe"]
    path: str  # of the socket, or `\\\\.\\pipe\\NAME`

    def __str__(self) -> str:
        """As an endpoint."""
        return f"{self.kind}://{self.path.replace(chr(92), '/')}"


def parse_runtime_endpoint(endpoint: str, platform: str = sys.platform) -> RuntimeEndpoint:
    """Parses it as Kubernetes does. Raises AddressError also for an endpoint that is not reachable
    from `platform`.
    """
    parts = urlsplit(endpoint.replace("\\", "/") if endpoint.startswith("npipe:") else endpoint)
    windows = platform == "win32"
    if parts.scheme == "unix" or endpoint.startswith("/"):
        if windows:
            raise RuntimeEndpointError(
                f'the endpoint "{endpoint}" is a Unix socket; on Windows it is '
                f'"{_example(windows)}"'
            )
        path = parts.path if parts.scheme else endpoint
        if parts.netloc or not path.startswith("/"):
            raise RuntimeEndpointError(
                f'the endpoint "{endpoint}" names no absolute path: "{_example(windows)}" does'
            )
        return RuntimeEndpoint("unix", path)
    if parts.scheme == "npipe":
        pipe = parts.path if parts.path.startswith("//") else f"//{parts.netloc or '.'}{parts.path}"
        if not pipe.lower().startswith("//./pipe/") or pipe.endswith("/"):
            raise RuntimeEndpointError(
                f'the endpoint "{endpoint}" names no pipe: '
                '"npipe:////./pipe/containerd-containerd" does'
            )
        if not windows:
            raise RuntimeEndpointError(
                f'the endpoint "{endpoint}" is a named pipe, which only Windows has; here it '
                f'is "{_example(windows)}"'
            )
        return RuntimeEndpoint("npipe", pipe.replace("/", "\\"))
    known = "npipe" if windows else "unix"
    raise RuntimeEndpointError(
        f'the endpoint "{endpoint}" is not supported: only {known} endpoints as '
        f'"{_example(windows)}" are'
    )


def _example(windows: bool) -> str:
    return (
        "npipe:////./pipe/containerd-containerd"
        if windows
        else "unix:///run/containerd/containerd.sock"
    )


async def connect_runtime(
    address: RuntimeEndpoint, protocol: Callable[[], asyncio.Protocol]
) -> Any:
    """Connects and returns the protocol. Raises OSError."""
    loop: Any = asyncio.get_running_loop()
    if address.kind == "npipe":
        # Only asyncio's event loop on Windows has this. While all instances of a pipe are busy, it
        # retries without end.
        _, made = await loop.create_pipe_connection(protocol, address.path)
        await asyncio.sleep(0)  # it returns before the protocol is notified
    else:
        _, made = await loop.create_unix_connection(protocol, address.path)
    return made


def endpoint_complaint(address: RuntimeEndpoint, problem: OSError) -> str:
    """Why `connect_runtime` failed, in Go's wording; Windows' messages are sentences."""
    if address.kind == "npipe":
        if isinstance(problem, TimeoutError):
            return "context deadline exceeded"
        pipe = address.path.replace("\\", "/")
        return f"open {pipe}: {(problem.strerror or str(problem)).rstrip('.')}."
    why = os.strerror(problem.errno).lower() if problem.errno else str(problem) or "i/o timeout"
    return f"dial unix {address.path}: connect: {why}"
