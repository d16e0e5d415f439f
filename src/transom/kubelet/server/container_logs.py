"""GET /containerLogs/NAMESPACE/POD/CONTAINER: finds the container's log and streams it to the
client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from transom.http.messages import Answer, HttpResponse, ResponseStream, StreamResponse
from transom.kit.clock import parse_rfc3339
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server import find
from transom.kubelet.server.answers import TEXT, HttpFailure
from transom.kubelet.server.logs import LogOptions, LogReader, UnknownFormat
from transom.kubelet.server.pieces import pieces_answer, start_sender, write_pieces
from transom.machinery.objects import Object
from transom.machinery.validation.options import validate_pod_log_options
from transom.machines.api import Files
from transom.runtime.api import RuntimeEvent

_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_PULL: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}

Query = Mapping[str, list[str]]


def serve_container_logs(
    env: KubeletContext, view: PodView, namespace: str, name: str, container: str, query: Query
) -> Answer:
    options = parse_log_options(query)
    if validate_pod_log_options(options):
        raise HttpFailure(422, '{"message": "Invalid request."}')
    pod = find.find_pod(view, namespace, name, f'pod "{name}" does not exist')
    if find.container_spec_of(pod, container) is None:
        raise HttpFailure(404, f'container "{container}" not found in pod "{name}"')
    try:
        container_id = choose_log_container(
            name, pod.get("status") or {}, container, bool(options.get("previous"))
        )
        reader, runtime_id = _open(env, container_id, log_options(options, env.clock.time()))
    except LookupError as problem:
        raise HttpFailure(400, str(problem.args[0])) from problem
    if not reader.options.follow:
        return _whole(env, reader)
    return StreamResponse(
        200, [TEXT], lambda stream: start_sender(_follow(env, reader, runtime_id, stream), stream)
    )


# ---- the request ----


def parse_log_options(query: Query) -> Object:
    """PodLogOptions as JSON has them."""
    options: Object = {}
    try:
        for name in ("follow", "previous", "timestamps"):
            if name in query and query[name][0].lower() not in ("false", "0"):
                options[name] = True
        for name in ("sinceSeconds", "tailLines", "limitBytes"):
            if name in query and query[name][0] != "":
                options[name] = _integer(query[name][0])
        since = query.get("sinceTime", [""])[0]
        if since not in ("", "null"):
            parse_rfc3339(since)
            options["sinceTime"] = since
        old = query.get("tail", [""])[0]  # the former name of tailLines
        if old == "all":
            options.pop("tailLines", None)
        elif old:
            options["tailLines"] = _integer(old)
    except ValueError as problem:
        raise HttpFailure(400, '{"message": "Unable to decode query."}') from problem
    return options


def _integer(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").removeprefix("+").isdecimal()):
        raise ValueError(text)
    return int(text)


def log_options(options: Object, now: float) -> LogOptions:
    since = 0
    if "sinceSeconds" in options:
        since = int((now - options["sinceSeconds"]) * 1e9)
    if "sinceTime" in options:
        since = max(since, int(parse_rfc3339(options["sinceTime"]) * 1e9))
    return LogOptions(
        tail=options.get("tailLines", -1),
        limit=options.get("limitBytes", -1),
        since=since,
        timestamps=bool(options.get("timestamps")),
        follow=bool(options.get("follow")),
    )


def choose_log_container(pod: str, status: Object, container: str, previous: bool) -> str:
    """The id of the container whose log to show; raises LookupError with the reason when there is
    none.
    """
    found: Any = None
    for kind in _STATUSES:
        found = found or next((s for s in status.get(kind) or () if s["name"] == container), None)
    where = f'container "{container}" in pod "{pod}"'
    if found is None:
        raise LookupError(f"{where} is not available")
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated")
    last_id: str = (last or {}).get("containerID", "")
    if previous:
        if not last_id:
            raise LookupError(f"previous terminated {where} not found")
        return last_id
    if "running" in state:
        return found.get("containerID", "")
    if "terminated" in state or last is not None:
        chosen = (state.get("terminated") or {}).get("containerID") or last_id
        if not chosen:
            raise LookupError(f"{where} is terminated")
        return chosen
    if "waiting" in state:
        reason = state["waiting"].get("reason", "")
        raise LookupError(f"{where} is waiting to start: {_PULL.get(reason, reason)}")
    raise LookupError(f"{where} is waiting to start - no logs yet")


# ---- reading ----


def _open(env: KubeletContext, container_id: str, options: LogOptions) -> tuple[LogReader, str]:
    runtime_id = container_id.partition("://")[2]
    container = env.runtime.container(runtime_id)
    if container is None:
        raise LookupError(f"unable to retrieve container logs for {container_id}")
    path = container.log_path
    if not path or not env.host.files.exists(path):
        raise LookupError(
            f'failed to try resolving symlinks in path "{path}": {env.os.no_such_file(path)}'
        )
    return LogReader(path, options), runtime_id


def _whole(env: KubeletContext, reader: LogReader) -> Answer:
    """A whole log; large ones are formatted while the client reads."""
    try:
        pieces = reader.read(_log_files(env, reader.path))
        first, second = next(pieces, None), next(pieces, None)
    except OSError as problem:
        raise HttpFailure(
            400, f'failed to open log file "{reader.path}": {problem.strerror}'
        ) from problem
    except UnknownFormat as problem:
        raise HttpFailure(
            400, f"failed to get parse function: unsupported log format: {_quoted(problem.args[0])}"
        ) from problem
    if second is None:
        return HttpResponse(200, [TEXT], first or b"")
    return pieces_answer([TEXT], chain((first or b"", second), pieces), (OSError, UnknownFormat))


def _log_files(env: KubeletContext, path: str) -> Files:
    """A pod may mount its log directory as a volume and replace its log with a link: do not follow
    it out of the directory.
    """
    return env.host.files.below(env.os.parent(path))


def _quoted(raw: bytes) -> str:
    text = (
        raw.decode(errors="replace").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    )
    return f'"{text}"'


async def _follow(
    env: KubeletContext, reader: LogReader, container_id: str, stream: ResponseStream
) -> None:
    """Follows until the container ends, the client disconnects or the limit is reached. Idle
    between writes.
    """
    changed = asyncio.Event()

    def ended(event: RuntimeEvent) -> None:
        if event.container_id == container_id and event.kind in ("died", "removed"):
            changed.set()

    endings = (env.runtime.watch_log(container_id, changed.set), env.runtime.subscribe(ended))
    try:
        while stream.alive:
            changed.clear()
            container = env.runtime.container(container_id)
            # Between two files there is none: the old one was moved and the new one does not exist
            # yet.
            with contextlib.suppress(FileNotFoundError):
                await write_pieces(reader.read(_log_files(env, reader.path)), stream)
            if reader.full or container is None or container.state != "running":
                break
            await changed.wait()
        stream.close()
    except UnknownFormat:
        stream.close()
    finally:
        for end in endings:
            end()
