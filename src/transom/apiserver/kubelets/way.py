"""The connections to kubelets, pods and whatever else is in the cluster's network."""

from __future__ import annotations

import socket
from collections.abc import Awaitable

from transom.apiserver.kubelets.locations import Location, plain_error
from transom.apiserver.kubelets.options import KubeletOptions
from transom.http.outgoing import Connect, Target
from transom.http.pool import Pool
from transom.kit.clock import Clock

_DIAL_SECONDS = 30.0


class Way:
    def __init__(self, options: KubeletOptions, clock: Clock) -> None:
        self.options = options
        self.pool = Pool(_patient(options.connect, clock) if options.connect is not None else None)

    def target(self, location: Location, *, insecure: bool = False) -> Target:
        """Kubelets see who this server is; what is proxied to shows any certificate it likes."""
        port = location.number
        if port is None:
            raise plain_error(f'invalid port ":{location.port}" after host')
        if not location.kubelet:
            return Target(location.host, port, location.host, insecure=True, tls=location.scheme == "https")
        options = self.options
        checked = bool(options.ca) and not insecure
        return Target(location.host, port, location.host, options.ca if checked else b"", not checked, options.pair)


def _patient(connect: Connect, clock: Clock) -> Connect:
    """Where no packet would come back it takes a while until that is clear."""

    async def patient(opening: Awaitable[socket.socket]) -> socket.socket:
        try:
            return await opening
        except TimeoutError:
            await clock.sleep(_DIAL_SECONDS)
            raise

    def open_patiently(host: str, port: int) -> Awaitable[socket.socket] | None:
        opening = connect(host, port)
        return None if opening is None else patient(opening)

    return open_patiently
