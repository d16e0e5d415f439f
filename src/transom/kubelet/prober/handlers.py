"""Probe handlers: exec, httpGet, tcpSocket and gRPC health.

A handler is created once per container and called for each probe. A failure of the container is an
outcome; a failure to probe (no such port, no answer from the runtime) is a `ProbeError`. This
module does not schedule probes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from transom.http.goerrors import join_host_port
from transom.kit.goquote import go_quote
from transom.kubelet import expansion, httpget
from transom.kubelet.base import KubeletContext
from transom.kubelet.deadline import TimeLimit
from transom.kubelet.dialing import failure_text, from_node
from transom.kubelet.httpget import BodyFailure, GetFailure
from transom.kubelet.prober import grpchealth
from transom.machinery.objects import Object
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import RuntimeFailure

SUCCESS, WARNING, FAILURE = "success", "warning", "failure"
OUTPUT_LIMIT = 10 << 10


class ProbeError(Exception):
    """The probe could not run; it has no result."""


class ProbeOutcome(NamedTuple):
    kind: str
    output: str = ""


class ProbeTarget(NamedTuple):
    """The container as it runs now."""

    container_id: str
    pod_ip: str


Handler = Callable[[ProbeTarget], Awaitable[ProbeOutcome]]


def make_probe_handler(
    env: KubeletContext, probe: Object, container: Object, pod_name: str
) -> Handler:
    """The handler of a probe. `pod_name` is for the message about a probe without a handler."""
    seconds = float(probe.get("timeoutSeconds") or 1)
    for field, make in _MAKERS.items():
        action = probe.get(field)
        if action is not None:
            return make(env, action, container, seconds)

    return _failing(f"missing probe handler for {pod_name}:{container['name']}")


def _failing(message: str) -> Handler:
    async def fail(_: ProbeTarget) -> ProbeOutcome:
        raise ProbeError(message)

    return fail


def probe_port(port: int | str, container: Object) -> int:
    try:
        return httpget.resolve_port(port, container)
    except httpget.PortError as problem:
        raise ProbeError(str(problem)) from problem


def _exec(env: KubeletContext, action: Object, container: Object, seconds: float) -> Handler:
    variables: dict[str, str] = {
        v["name"]: v.get("value") or "" for v in container.get("env") or ()
    }
    try:
        command = expansion.expand_all_variables(
            action.get("command"), expansion.variable_mapping(variables)
        )
    except expansion.ExpansionTooLarge as problem:
        return _failing(str(problem))
    counts = env.config.feature_gates.get("ExecProbeTimeout", True)
    late = (
        f"command {go_quote(' '.join(command))} timed out"
        if kubelet_has(env.config.release, "ProbeTimeoutsReported")
        else ""
    )

    async def run(target: ProbeTarget) -> ProbeOutcome:
        try:
            result = await env.runtime.exec_sync(target.container_id, command, seconds)
        except RuntimeFailure as problem:
            if problem.code == "DeadlineExceeded":
                if counts:
                    return ProbeOutcome(FAILURE, late)
                raise ProbeError(f"command {go_quote(' '.join(command))} timed out") from problem
            raise ProbeError(str(problem)) from problem
        output = (result.stdout + result.stderr)[:OUTPUT_LIMIT].decode(errors="replace")
        return ProbeOutcome(SUCCESS if result.exit_code == 0 else FAILURE, output)

    return run


def _http_get(env: KubeletContext, action: Object, container: Object, seconds: float) -> Handler:
    headers = httpget.action_headers(env.config.release, action, "probe")
    host_header = headers.get("Host", [""])[0]
    dial = from_node(env)

    async def run(target: ProbeTarget) -> ProbeOutcome:
        port = probe_port(action.get("port", 0), container)
        scheme = (action.get("scheme") or "HTTP").lower()
        url = httpget.make_url(
            scheme, action.get("host") or target.pod_ip, port, action.get("path") or ""
        )
        try:
            answer = await httpget.http_get(
                dial,
                env.clock,
                url,
                headers,
                seconds=seconds,
                host=host_header,
                texts=env.os.network_texts,
            )
        except GetFailure as problem:
            return ProbeOutcome(FAILURE, str(problem))
        except BodyFailure as problem:
            raise ProbeError(str(problem)) from problem
        if 200 <= answer.status < 400:
            return ProbeOutcome(
                WARNING if answer.status >= 300 else SUCCESS, answer.body.decode(errors="replace")
            )
        return ProbeOutcome(FAILURE, f"HTTP probe failed with statuscode: {answer.status}")

    return run


def _tcp_socket(env: KubeletContext, action: Object, container: Object, seconds: float) -> Handler:
    dial = from_node(env)

    async def run(target: ProbeTarget) -> ProbeOutcome:
        port = probe_port(action.get("port", 0), container)
        host = action.get("host") or target.pod_ip
        try:
            async with TimeLimit(env.clock, seconds):
                sock = await dial(host, port)
        except TimeoutError:
            return ProbeOutcome(FAILURE, f"dial tcp {join_host_port(host, port)}: i/o timeout")
        except OSError as problem:
            return ProbeOutcome(FAILURE, failure_text(host, port, problem, env.os.network_texts))
        sock.close()
        return ProbeOutcome(SUCCESS)

    return run


def _grpc(env: KubeletContext, action: Object, container: Object, seconds: float) -> Handler:
    dial = from_node(env)
    service = action.get("service") or ""
    major, minor = env.config.release
    agent = f"kube-probe/{major}.{minor}"

    async def run(target: ProbeTarget) -> ProbeOutcome:
        port = probe_port(action.get("port", 0), container)
        try:
            return ProbeOutcome(
                SUCCESS,
                await grpchealth.check_grpc_health(
                    dial, env.clock, target.pod_ip, port, service, agent, seconds
                ),
            )
        except grpchealth.Unhealthy as problem:
            return ProbeOutcome(FAILURE, str(problem))

    return run


_MAKERS: dict[str, Callable[[KubeletContext, Object, Object, float], Handler]] = {
    "exec": _exec,
    "httpGet": _http_get,
    "tcpSocket": _tcp_socket,
    "grpc": _grpc,
}
