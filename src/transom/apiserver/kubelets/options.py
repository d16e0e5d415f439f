"""The connection settings and credentials for kubelets."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from transom.apiserver.kubelets.dialing import Resolve
from transom.http.outgoing import ClientPair, Connect
from transom.kit.lazy_dataclass import dataclass

KUBELET_PORT = 10250


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """`connect` opens connections to nodes and pods; None for plain TCP."""

    connect: Connect | None = None
    # The server's client certificate, and the CA of kubelets: without one, their certificates are
    # not verified.
    pair: ClientPair | None = None
    ca: bytes = b""
    address_types: Sequence[str] = ("InternalIP", "ExternalIP", "Hostname")
    port: int = KUBELET_PORT  # for nodes that do not report a port
    resolve: Resolve | None = None  # resolves host names of nodes; None for this machine's resolver


async def refuse_connections(_host: str, _port: int) -> socket.socket:
    """For a control plane without nodes."""
    raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
