"""Streams of pods and nodes: logs that follow, and terminals (exec, attach, node login).

A terminal is a WebSocket of the browser joined with one of the API server: the console forwards
frames without reading them, at the pace of the slower side.
"""

from __future__ import annotations

import codecs
from typing import Any, Final

import orjson

from transom.client.api import ApiUnreachable
from transom.http.messages import Answer, UpgradeResponse
from transom.http.raw import RawConnection
from transom.http.upgraded import Upgraded, splice
from transom.kit.streaming import channels, websocket
from transom.machinery.errors import ApiError
from transom.web.pages.object_address import request_namespace
from transom.web.responses import EventStream, event_response, json_error
from transom.web.routing import PageRequest

_TAIL_LINES: Final = "1000"
_LONGEST_PIECE: Final = 64 * 1024
_MOST_WORDS: Final = 64


async def pod_log(request: PageRequest) -> Answer:
    """The log of a container as events: `text` as it is written, `end` when it ends."""
    _require_resource(request, "pods")
    namespace, name = request_namespace(request), request.params["name"]
    query = {"container": request.query("container"), "tailLines": _TAIL_LINES}
    for option in ("follow", "previous", "timestamps"):
        if request.query(option):
            query[option] = "true"

    async def produce(events: EventStream) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        stream = await request.services.api.open_stream(path, query, accept="*/*")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while data := await stream.read():
                for start in range(0, len(data), _LONGEST_PIECE):
                    text = decoder.decode(data[start : start + _LONGEST_PIECE])
                    await events.send("text", text)
        finally:
            stream.close()
        await events.send("end", {})

    return event_response(request, produce)


async def open_terminal(request: PageRequest) -> Answer:
    """A WebSocket that runs a command in a container, attaches to it, or logs in to a node."""
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in request.http.headers.items()
    }
    if invalid := websocket.check_handshake_request(request.http.method, headers):
        return json_error(400, invalid)
    if request.services.streams.full:
        return json_error(503, "too many open pages: close some")
    offered = websocket.header_tokens(headers.get("sec-websocket-protocol", ""))
    path, query = _terminal_target(request)
    wanted = [one for one in offered if one in (channels.V5, channels.V4)]
    if not wanted:
        return json_error(400, f"the protocol {channels.V4} is required")
    key = headers["sec-websocket-key"]
    try:
        upstream, protocol = await request.services.api.open_websocket(path, query, wanted)
    except ApiError as problem:
        return _refusal(key, wanted[0], problem.status())
    except ApiUnreachable as problem:
        return _refusal(key, wanted[0], {"status": "Failure", "message": str(problem)})
    answer = websocket.response_headers(key, protocol)
    return UpgradeResponse(answer, lambda browser: _join(request, browser, upstream))


def _refusal(key: str, protocol: str, status: dict[str, Any]) -> UpgradeResponse:
    """Scripts cannot see why a WebSocket is refused: it is opened, and its error channel says why."""
    connection = websocket.WebSocketConnection(client=False)
    connection.send(bytes([channels.CHANNELS.index(channels.ERROR)]) + orjson.dumps(status))
    connection.close()
    data = connection.data_to_send()

    def start(browser: RawConnection) -> None:
        browser.write(data)
        browser.close()

    return UpgradeResponse(websocket.response_headers(key, protocol), start)


def _join(request: PageRequest, browser: RawConnection, upstream: Upgraded) -> None:
    """Joins the two sides until one of them or the session ends."""
    ending = upstream.close
    request.session.on_end.append(ending)
    splice(browser, upstream)
    close_upstream = browser.on_close

    def on_close() -> None:
        if ending in request.session.on_end:
            request.session.on_end.remove(ending)
        if close_upstream is not None:
            close_upstream()

    browser.on_close = on_close


def _terminal_target(request: PageRequest) -> tuple[str, dict[str, str | list[str]]]:
    name, resource = request.params["name"], request.params["resource"]
    words = request.http.query.get("command") or []
    if len(words) > _MOST_WORDS:
        raise ApiError(400, "BadRequest", f"a command has at most {_MOST_WORDS} words")
    if resource == "nodes" and request.params["group"] == "core":
        query: dict[str, str | list[str]] = {"input": "1", "output": "1", "error": "0", "tty": "1"}
        return f"/transom/nodes/{name}/exec", {**query, "command": words}
    _require_resource(request, "pods")
    verb = "attach" if request.query("mode") == "attach" else "exec"
    tty = request.query("tty", "1") == "1"
    options: dict[str, str | list[str]] = {
        "container": request.query("container"),
        "stdin": request.query("stdin", "1"),
        "stdout": "1",
        "stderr": "0" if tty else "1",
        "tty": "1" if tty else "0",
    }
    if verb == "exec":
        options["command"] = words
    return f"/api/v1/namespaces/{request_namespace(request)}/pods/{name}/{verb}", options


def _require_resource(request: PageRequest, plural: str) -> None:
    if (request.params["group"], request.params["resource"]) != ("core", plural):
        raise ApiError(404, "NotFound", f"only {plural} have this")
