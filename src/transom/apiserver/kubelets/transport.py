"""Connections to kubelets, pods and other hosts in the cluster network."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Sequence

from transom.apiserver.kubelets import dialing
from transom.apiserver.kubelets.locations import ProxyLocation, plain_location_error
from transom.apiserver.kubelets.options import KubeletOptions
from transom.http import goerrors
from transom.http.outgoing import CallError, CallTarget, Connect
from transom.http.pool import ConnectionPool
from transom.kit.clock import Clock
from transom.machinery import errors
from transom.machinery.validation.names import IPAddress, parse_ip

_DIAL_SECONDS = 30.0
_PAGES = 4  # the number of HTML pages that are in memory at the same time for rewriting


class KubeletTransport:
    def __init__(
        self, options: KubeletOptions, clock: Clock, services: Sequence[str] = (), own: str = ""
    ) -> None:
        """`services` are the ranges of cluster IPs and `own` is the host and port of this server:
        neither can be a kubelet.
        """
        self.options = options
        self.pool = ConnectionPool(
            _with_dial_retry(options.connect, clock) if options.connect is not None else None
        )
        self.pages = asyncio.Semaphore(_PAGES)
        self._services = [ipaddress.ip_network(text) for text in services]
        host, _, number = own.rpartition(":")
        self._own = (parse_ip(host.strip("[]")), int(number or 0))

    async def target(self, location: ProxyLocation, *, insecure: bool = False) -> CallTarget:
        """Returns where to connect: only addresses that were checked here, without resolving the
        host again.

        Kubelets get the client certificate of this server; other targets may present any
        certificate. Raises 400 for addresses that this server must not connect to, and CallError
        for a host without an address.
        """
        port = location.number
        if port is None:
            raise plain_location_error(f'invalid port ":{location.port}" after host')
        try:
            found = await dialing.checked_addresses(location.host, self.options.resolve)
            if location.kubelet and any(self._is_own(address, port) for address in found):
                raise dialing.AddressNotAllowed
        except dialing.AddressNotAllowed as problem:
            raise errors.bad_request(str(problem)) from problem
        except socket.gaierror as problem:
            text = goerrors.lookup_error(location.host, problem)
            if location.kubelet:
                raise CallError(text) from problem
            raise errors.bad_request(text.removeprefix("dial tcp: ")) from problem
        addresses = tuple(map(str, found))
        if not location.kubelet:
            return CallTarget(
                location.host,
                port,
                location.host,
                insecure=True,
                tls=location.scheme == "https",
                addresses=addresses,
            )
        options = self.options
        checked = bool(options.ca) and not insecure
        return CallTarget(
            location.host,
            port,
            location.host,
            options.ca if checked else b"",
            not checked,
            options.pair,
            addresses=addresses,
        )

    def _is_own(self, address: IPAddress, port: int) -> bool:
        """Whether the address is this server's own. It would trust the certificate that it presents
        to kubelets.
        """
        return (address, port) == self._own or any(address in network for network in self._services)


def _with_dial_retry(connect: Connect, clock: Clock) -> Connect:
    """Delays timeouts: without a reply, a dial fails only after some time, which may have passed
    already.
    """

    async def retry(opening: Awaitable[socket.socket]) -> socket.socket:
        started = clock.monotonic()
        try:
            return await opening
        except TimeoutError:
            await clock.sleep(max(0.0, started + _DIAL_SECONDS - clock.monotonic()))
            raise

    def connect_with_retry(host: str, port: int) -> Awaitable[socket.socket] | None:
        opening = connect(host, port)
        return None if opening is None else retry(opening)

    return connect_with_retry
