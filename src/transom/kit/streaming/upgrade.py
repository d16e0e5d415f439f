"""Turns an upgrade request into a session on the requested wire, or into an error response.

Shared by all servers of streams, so that each wire is offered everywhere. Headers come with names
in lower case, the values of a repeated header joined with commas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.kit.named_tuple import NamedTuple
from transom.kit.streaming import channels, portforward, remotecommand, websocket
from transom.kit.streaming.channels import Refusal
from transom.kit.streaming.portforward import PortForward
from transom.kit.streaming.remotecommand import CommandStreams, RemoteCommand


class AcceptedCommand(NamedTuple):
    """Answer 101 with these headers, then start the session."""

    headers: list[tuple[bytes, bytes]]
    protocol: str
    session: RemoteCommand


class AcceptedForward(NamedTuple):
    """Answer 101 with these headers, then start the session."""

    headers: list[tuple[bytes, bytes]]
    protocol: str
    session: PortForward


def accept_command(
    method: str,
    headers: Mapping[str, str],
    streams: CommandStreams,
    *,
    websocket_protocols: Sequence[str] = channels.REMOTE_COMMAND_WEBSOCKET,
    window: int = 0,
) -> AcceptedCommand | Refusal:
    """For exec and attach. `window` only for clients that are known to update windows, which
    kubectl is not.
    """
    if not (streams.stdin or streams.stdout or streams.stderr):
        return Refusal(400, "you must specify at least 1 of stdin, stdout, stderr", [])
    if websocket.is_websocket_upgrade(headers):
        chosen = _choose_websocket(method, headers, websocket_protocols)
        if isinstance(chosen, Refusal):
            return chosen
        answer = websocket.response_headers(headers["sec-websocket-key"], chosen)
        return AcceptedCommand(
            answer, chosen, remotecommand.WebSocketCommandServer(streams, chosen)
        )
    chosen = _choose_spdy(headers, channels.REMOTE_COMMAND_SPDY)
    if isinstance(chosen, Refusal):
        # Kubernetes writes this text twice: when comparing the protocols, and when that failed.
        return (
            chosen._replace(message=f"{chosen.message}\n{chosen.message}")
            if chosen.status == 403
            else chosen
        )
    session = remotecommand.SpdyCommandServer(streams, chosen, window=window)
    return AcceptedCommand(channels.spdy_response_headers(chosen), chosen, session)


def accept_forward(
    method: str, headers: Mapping[str, str], ports: Sequence[str] = (), *, window: int = 0
) -> AcceptedForward | Refusal:
    """For port-forward. `ports` are the query's, which only WebSocket channels need."""
    if not websocket.is_websocket_upgrade(headers):
        chosen = _choose_spdy(headers, channels.PORT_FORWARD_SPDY)
        if isinstance(chosen, Refusal):
            return chosen
        return AcceptedForward(
            channels.spdy_response_headers(chosen),
            chosen,
            portforward.SpdyForwardServer(window=window),
        )
    key = headers.get("sec-websocket-key", "")
    offered = websocket.header_tokens(headers.get("sec-websocket-protocol", ""))
    if channels.PORT_FORWARD in channels.tunnelled(offered):
        chosen = _choose_websocket(method, headers, [channels.TUNNEL])
        if isinstance(chosen, Refusal):
            return chosen
        session = portforward.SpdyForwardServer(window=window, tunnel=True)
        return AcceptedForward(websocket.response_headers(key, chosen), chosen, session)
    parsed = portforward.parse_ports(ports)
    if isinstance(parsed, str):
        return Refusal(400, parsed, [])
    chosen = _choose_websocket(method, headers, channels.PORT_FORWARD_WEBSOCKET)
    if isinstance(chosen, Refusal):
        return chosen
    return AcceptedForward(
        websocket.response_headers(key, chosen),
        chosen,
        portforward.WebSocketForwardServer(parsed, chosen),
    )


def _choose_websocket(
    method: str, headers: Mapping[str, str], supported: Sequence[str]
) -> str | Refusal:
    problem = websocket.check_handshake_request(method, headers)
    if problem:
        return Refusal(400, problem, [("Sec-WebSocket-Version", "13")])
    offered = websocket.header_tokens(headers.get("sec-websocket-protocol", ""))
    chosen = websocket.choose_subprotocol(offered, supported)
    return Refusal(403, "", []) if chosen is None else chosen


def _choose_spdy(headers: Mapping[str, str], supported: Sequence[str]) -> str | Refusal:
    chosen = channels.negotiate_spdy(headers.get(channels.PROTOCOL_HEADER.lower(), ""), supported)
    if isinstance(chosen, Refusal):
        return chosen
    asks = "upgrade" in headers.get("connection", "").lower()
    if not asks or channels.SPDY.lower() not in headers.get("upgrade", "").lower():
        return Refusal(400, "unable to upgrade: missing upgrade headers in request", [])
    return chosen
