"""exec, attach and port-forward: joins a client's connection with one to the kubelet.

Kubelets support SPDY and the older WebSocket channels: those bytes are passed through unchanged.
The newer protocols, channels that can be closed and SPDY inside a WebSocket, are translated to SPDY
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

from transom.apiserver.kubelets import requests
from transom.apiserver.kubelets.locations import ProxyLocation, location_url, plain_location_error
from transom.apiserver.kubelets.transport import KubeletTransport
from transom.http import relay as passing
from transom.http.messages import Answer, HttpRequest, HttpResponse, UpgradeResponse
from transom.http.outgoing import CallError, OutgoingConnection, ResponseHead
from transom.http.raw import RawConnection
from transom.http.sessions import SessionDriver
from transom.http.upgraded import Upgraded, splice
from transom.kit.streaming import channels, portforward, relay, remotecommand, upgrade, websocket
from transom.kit.streaming.remotecommand import CommandStreams, RemoteCommand
from transom.machinery import errors

_MOST_REDIRECTS = 9
_TEXT = (b"Content-Type", b"text/plain; charset=utf-8")


async def serve_stream(
    transport: KubeletTransport,
    request: HttpRequest,
    kubelet: ProxyLocation,
    target: str,
    streams: CommandStreams | None,
) -> Answer:
    """`streams` are those of a command; None for port-forward."""
    if not passing.wants_upgrade(request):
        raise errors.bad_request("Upgrade request required")
    offered = websocket.header_tokens(request.header(b"sec-websocket-protocol"))
    if request.header(b"upgrade").lower() == "websocket":
        if streams is not None and channels.V5 in offered:
            return await _command(transport, request, kubelet, target, streams)
        if streams is None and channels.TUNNEL in offered:
            return await _tunnel(transport, request, kubelet, target)
    lines = requests.forwarded_headers(request, upgrade=True)
    connection, head = await _upgrade(
        transport, kubelet, request.method, target, lines, request.body
    )
    if head.status == 101:
        return passing.relay_upgraded(connection, head)
    return await _echo(transport, connection, head)


async def _upgrade(
    transport: KubeletTransport,
    kubelet: ProxyLocation,
    method: str,
    target: str,
    lines: requests.Lines,
    body: bytes = b"",
) -> tuple[OutgoingConnection, ResponseHead]:
    """Connects to the kubelet; follows redirects on the same machine."""
    place, path = kubelet, target
    for _ in range(_MOST_REDIRECTS + 1):
        raw = requests.encode_kubelet_request(method, path, place.authority, lines, body)
        try:
            connection, head = await transport.pool.begin(
                await transport.target(place), raw, repeatable=False
            )
        except CallError as problem:
            raise plain_location_error(f"error dialing backend: {problem}") from problem
        if head.status != 302:
            if head.status != 101 and head.status < 400:
                connection.abort()
                raise plain_location_error(f"invalid upgrade response: status code {head.status}")
            return connection, head
        connection.abort()
        if not head.header(b"location"):
            raise plain_location_error("302 response missing Location header")
        try:
            parts = urlsplit(urljoin(location_url(place, path, ""), head.header(b"location")))
            place = ProxyLocation(
                parts.scheme, parts.hostname or "", str(parts.port or ""), kubelet.kubelet
            )
        except ValueError as problem:
            raise plain_location_error(f"malformed Location header: {problem}") from problem
        if place.host != kubelet.host:
            raise plain_location_error(
                f"hostname mismatch: expected {kubelet.host}, found {place.host}"
            )
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        method, body = "GET", b""
    raise plain_location_error(f"too many redirects ({_MOST_REDIRECTS + 1})")


async def _echo(
    transport: KubeletTransport, connection: OutgoingConnection, head: ResponseHead
) -> Answer:
    """Passes a kubelet's response that is not an upgrade to the client."""
    return await passing.relay_response(
        connection, head, passing.relayed_headers(head), transport.pool
    )


def _refused(refusal: channels.Refusal) -> HttpResponse:
    more = [(name.encode(), value.encode()) for name, value in refusal.headers]
    return HttpResponse(refusal.status, [_TEXT, *more], f"{refusal.message}\n".encode())


def _texts(request: HttpRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }


# ---- the newer wires ----


async def _command(
    transport: KubeletTransport,
    request: HttpRequest,
    kubelet: ProxyLocation,
    target: str,
    streams: CommandStreams,
) -> Answer:
    accepted = upgrade.accept_command(
        request.method, _texts(request), streams, websocket_protocols=[channels.V5]
    )
    if isinstance(accepted, channels.Refusal):
        return _refused(accepted)
    lines = channels.spdy_request_headers(channels.REMOTE_COMMAND_SPDY)
    connection, head = await _upgrade(transport, kubelet, "POST", target, lines)
    if head.status != 101:
        return await _echo(transport, connection, head)
    protocol = head.header(channels.PROTOCOL_HEADER.lower().encode()) or channels.V1
    there = Upgraded(connection)
    far = remotecommand.SpdyCommandClient(streams, protocol)
    answer = UpgradeResponse(
        accepted.headers, lambda raw: _relay(accepted.session, raw, far, there)
    )
    passing.unless_started(answer, there.close)
    return answer


def _relay(near: RemoteCommand, raw: RawConnection, far: RemoteCommand, there: Upgraded) -> None:
    def from_near(event: Any) -> None:
        relay.relay_command([event], near, far)
        to_kubelet.send()

    def from_far(event: Any) -> None:
        relay.relay_command([event], far, near)
        to_client.send()

    def holding(other: SessionDriver) -> Callable[[bool], None]:
        return lambda behind: other.hold() if behind else other.release()

    to_client = SessionDriver(near, raw, from_near)
    to_kubelet = SessionDriver(far, there, from_far)
    to_client.on_behind = holding(to_kubelet)
    to_kubelet.on_behind = holding(to_client)
    to_kubelet.start()
    to_client.start()


async def _tunnel(
    transport: KubeletTransport, request: HttpRequest, kubelet: ProxyLocation, target: str
) -> Answer:
    accepted = upgrade.accept_forward(request.method, _texts(request))
    if isinstance(accepted, channels.Refusal):
        return _refused(accepted)
    lines = channels.spdy_request_headers(channels.PORT_FORWARD_SPDY)
    connection, head = await _upgrade(transport, kubelet, "POST", target, lines)
    if head.status != 101:
        return await _echo(transport, connection, head)
    there = Upgraded(connection)
    answer = UpgradeResponse(accepted.headers, lambda raw: splice(_TunnelWire(raw), there))
    passing.unless_started(answer, there.close)
    return answer


class _TunnelWire:
    """A connection whose bytes are in WebSocket messages."""

    __slots__ = ("_raw", "_tunnel", "on_close", "on_writable")

    def __init__(self, raw: RawConnection) -> None:
        self._raw = raw
        self._tunnel = portforward.Tunnel(client=False)
        self.on_close: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        raw, tunnel = self._raw, self._tunnel

        def received(data: bytes) -> None:
            inside = tunnel.receive_data(data)
            raw.write(tunnel.data_to_send())
            if inside:
                on_data(inside)
            if tunnel.closed:
                raw.close()

        raw.on_close = self.on_close
        raw.on_writable = self.on_writable
        raw.receive(received)

    def write(self, data: bytes) -> None:
        self._tunnel.send(data)
        self._raw.write(self._tunnel.data_to_send())

    @property
    def writable(self) -> bool:
        return self._raw.writable

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def close(self) -> None:
        self._tunnel.close()
        self._raw.write(self._tunnel.data_to_send())
        self._raw.close()
