"""How this server reaches kubelets, and as whom."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from transom.http.outgoing import ClientPair, Connect

KUBELET_PORT = 10250


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """`connect` opens connections to nodes and pods; plain TCP when there is none."""

    connect: Connect | None = None
    # What the server shows itself with, and the authority that signs kubelets: without one nobody is checked.
    pair: ClientPair | None = None
    ca: bytes = b""
    address_types: Sequence[str] = ("InternalIP", "ExternalIP", "Hostname")
    port: int = KUBELET_PORT  # of kubelets whose node does not say


async def nobody(_host: str, _port: int) -> socket.socket:
    """The way out of a control plane that stands alone."""
    raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
