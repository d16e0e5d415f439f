"""What a probe does: run a command, get a page, open a connection, ask a gRPC server for its health.

A handler is made once for a container and called for each probe. A failure of the container is an outcome; what says
nothing about the container (no such port, no answer of the runtime) is a `ProbeError`. When probes are due is not known
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from transom.http.goerrors import join_host_port
from transom.kubelet import expansion, httpget
from transom.kubelet.base import Env
from transom.kubelet.deadline import Within
from transom.kubelet.dialing import failure_text, from_node
from transom.kubelet.httpget import BodyFailure, GetFailure
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.runtime.api import RuntimeFailure

SUCCESS, WARNING, FAILURE = "success", "warning", "failure"
OUTPUT_LIMIT = 10 << 10
_TIMEOUT_TOLD_SINCE = (1, 23)


class ProbeError(Exception):
    """The probe could not be made; its result does not count."""


class Outcome(NamedTuple):
    kind: str
    output: str = ""


class Target(NamedTuple):
    """The container as it runs now."""

    container_id: str
    pod_ip: str


Handler = Callable[[Target], Awaitable[Outcome]]


def build(env: Env, probe: Object, container: Object, pod_name: str) -> Handler:
    """The handler of a probe. `pod_name` is for the text about a probe without one."""
    seconds = float(probe.get("timeoutSeconds") or 1)
    for field, make in _MAKERS.items():
        action = probe.get(field)
        if action is not None:
            return make(env, action, container, seconds)

    async def missing(_: Target) -> Outcome:
        raise ProbeError(f"missing probe handler for {pod_name}:{container['name']}")

    return missing


def resolve_port(port: int | str, container: Object) -> int:
    """A number, a name of a container's port, or a number written as a text."""
    number = port
    if isinstance(number, str):
        named = next((p["containerPort"] for p in container.get("ports") or () if p.get("name") == port), None)
        if named is None:
            try:
                named = int(number)
            except ValueError:
                raise ProbeError(f"strconv.Atoi: parsing {go_quote(number)}: invalid syntax") from None
        number = int(named)
    if 0 < number < 65536:
        return number
    raise ProbeError(f"invalid port number: {number}")


def _exec(env: Env, action: Object, container: Object, seconds: float) -> Handler:
    variables: dict[str, str] = {v["name"]: v.get("value") or "" for v in container.get("env") or ()}
    command = expansion.expand_all(action.get("command"), expansion.mapping(variables))
    counts = env.config.feature_gates.get("ExecProbeTimeout", True)
    late = f"command {go_quote(' '.join(command))} timed out" if env.config.release >= _TIMEOUT_TOLD_SINCE else ""

    async def run(target: Target) -> Outcome:
        try:
            result = await env.runtime.exec_sync(target.container_id, command, seconds)
        except RuntimeFailure as problem:
            if problem.code == "DeadlineExceeded":
                if counts:
                    return Outcome(FAILURE, late)
                raise ProbeError(f"command {go_quote(' '.join(command))} timed out") from problem
            raise ProbeError(str(problem)) from problem
        output = (result.stdout + result.stderr)[:OUTPUT_LIMIT].decode(errors="replace")
        return Outcome(SUCCESS if result.exit_code == 0 else FAILURE, output)

    return run


def _http_get(env: Env, action: Object, container: Object, seconds: float) -> Handler:
    headers = _headers(env, action)
    host_header = headers.get("Host", [""])[0]
    dial = from_node(env)

    async def run(target: Target) -> Outcome:
        port = resolve_port(action.get("port", 0), container)
        scheme = (action.get("scheme") or "HTTP").lower()
        url = httpget.make_url(scheme, action.get("host") or target.pod_ip, port, action.get("path") or "")
        try:
            answer = await httpget.get(dial, env.clock, url, headers, seconds=seconds, host=host_header)
        except GetFailure as problem:
            return Outcome(FAILURE, str(problem))
        except BodyFailure as problem:
            raise ProbeError(str(problem)) from problem
        if 200 <= answer.status < 400:
            return Outcome(WARNING if answer.status >= 300 else SUCCESS, answer.body.decode(errors="replace"))
        return Outcome(FAILURE, f"HTTP probe failed with statuscode: {answer.status}")

    return run


def _headers(env: Env, action: Object) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for header in action.get("httpHeaders") or ():
        headers.setdefault(header["name"], []).append(header.get("value") or "")
    major, minor = env.config.release
    headers.setdefault("User-Agent", [f"kube-probe/{major}.{minor}"])
    if headers.setdefault("Accept", ["*/*"])[0] == "":
        del headers["Accept"]
    return headers


def _tcp_socket(env: Env, action: Object, container: Object, seconds: float) -> Handler:
    dial = from_node(env)

    async def run(target: Target) -> Outcome:
        port = resolve_port(action.get("port", 0), container)
        host = action.get("host") or target.pod_ip
        try:
            async with Within(env.clock, seconds):
                sock = await dial(host, port)
        except TimeoutError:
            return Outcome(FAILURE, f"dial tcp {join_host_port(host, port)}: i/o timeout")
        except OSError as problem:
            return Outcome(FAILURE, failure_text(host, port, problem))
        sock.close()
        return Outcome(SUCCESS)

    return run


def _grpc(env: Env, action: Object, container: Object, seconds: float) -> Handler:
    from transom.kubelet.prober import grpchealth  # few pods have one

    dial = from_node(env)
    service = action.get("service") or ""
    major, minor = env.config.release
    agent = f"kube-probe/{major}.{minor}"

    async def run(target: Target) -> Outcome:
        port = resolve_port(action.get("port", 0), container)
        try:
            return Outcome(SUCCESS, await grpchealth.check(dial, env.clock, target.pod_ip, port, service, agent, seconds))
        except grpchealth.Unhealthy as problem:
            return Outcome(FAILURE, str(problem))

    return run


_MAKERS: dict[str, Callable[[Env, Object, Object, float], Handler]] = {
    "exec": _exec, "httpGet": _http_get, "tcpSocket": _tcp_socket, "grpc": _grpc,
}
