"""The entry point of a kubelet's API: authenticates, then dispatches.

`handler` serves any listener of `transom.http` or in-process calls; `serve` opens its own listener.
Cheap to create: a cluster has a thousand of them, and most never receive a request.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from socket import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

from transom.http.limits import HttpLimits
from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.http.server import HttpServer
from transom.kit.lazy import lazy_import
from transom.kit.prometheus import Collector
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server import answers, hostlogs, pods, routes
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.auth import AuthRules, KubeletAuth
from transom.kubelet.server.checkpoint import serve_checkpoint
from transom.kubelet.server.configz import kubelet_configuration
from transom.kubelet.stats.metrics import KubeletMetrics, ProbeCount, kubelet_metrics, probe_metrics
from transom.kubelet.stats.resource_metrics import resource_metrics, volume_metrics
from transom.kubelet.stats.summary import StatsProvider
from transom.kubelet.stats.volumes import Mounted, pod_volumes
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.releases.metrics import metric_rules

if TYPE_CHECKING:
    from transom.kubelet.server import commands, container_logs, forward, nodelogs
    from transom.kubelet.stats import cadvisor
else:
    commands = lazy_import("transom.kubelet.server.commands")
    forward = lazy_import("transom.kubelet.server.forward")
    cadvisor = lazy_import("transom.kubelet.stats.cadvisor")
    container_logs = lazy_import("transom.kubelet.server.container_logs")
    nodelogs = lazy_import("transom.kubelet.server.nodelogs")

_METHODS: Final = frozenset(("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"))
# with Kubernetes' spelling, which differs from the path
_LONG: Final = frozenset(("exec", "attach", "portforward", "debug"))
_DEBUGGING: Final = frozenset(
    ("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs")
)
_CHECKS: Final = ("ping", "log", "syncloop")

TlsContext = Callable[[], ssl.SSLContext]


# A client that pages through a log may stop reading for a while, as with every kubelet.
_LIMITS = HttpLimits(stall_timeout=600.0, response_timeout=600.0)


class KubeletServer:
    """`tls` creates the context when the first listener is opened; without it the listener speaks
    plain HTTP.

    `alive` returns whether the sync loop makes progress, for /healthz; `mounted` returns the paths
    of claimed volumes, `probes` the probe results; `collectors` add metrics of other parts.
    """

    __slots__ = (
        "_alive",
        "_auth",
        "_checkpoints",
        "_collectors",
        "_env",
        "_http",
        "_measure",
        "_probes",
        "_started",
        "_tls",
        "_view",
        "metrics",
        "stats",
    )

    def __init__(
        self,
        env: KubeletContext,
        view: PodView,
        *,
        tls: TlsContext | None = None,
        metrics: KubeletMetrics | None = None,
        mounted: Mounted | None = None,
        measure: Callable[[], Awaitable[None]] | None = None,
        probes: Callable[[], Iterable[ProbeCount]] = tuple,
        alive: Callable[[], bool] = lambda: True,
        collectors: Sequence[Collector] = (),
    ) -> None:
        self._env = env
        self._view = view
        self._tls = tls
        self._alive = alive
        self._probes = probes
        release = Release(*env.config.release)
        enabled = FeatureSet(release, env.config.feature_gates).enabled
        self._auth = KubeletAuth(
            env.client,
            env.clock,
            env.config.node_name,
            env.config.anonymous_auth,
            AuthRules(
                enabled("KubeletFineGrainedAuthz"), kubelet_has(release, "AuthorizedSubresources")
            ),
        )
        self._checkpoints = enabled("ContainerCheckpoint")
        self._http: HttpServer | None = None
        self._started = env.clock.time()
        self.metrics = metrics if metrics is not None else KubeletMetrics()
        self.stats = StatsProvider(env, view, mounted)
        self._measure = measure
        self._collectors = collectors

    async def serve(self, listener: socket) -> HttpServer:
        """Serves a bound socket; may be called for several."""
        http = self._server()
        await http.serve([listener])
        return http

    async def adopt(self, connection: socket) -> None:
        """Serves a connection that was accepted elsewhere."""
        await self._server().adopt(connection)

    def _server(self) -> HttpServer:
        if self._http is None:
            self._http = HttpServer(
                self.handler, self._tls() if self._tls is not None else None, limits=_LIMITS
            )
        return self._http

    async def stop(self, grace: float = 0.0) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.stop(grace)

    async def handler(self, request: HttpRequest) -> Answer:
        started = monotonic()
        answer = await self._handle(request)
        self._count(request, monotonic() - started)
        return answer

    async def _handle(self, request: HttpRequest) -> Answer:
        known = routes.is_known_path(request.path)
        if isinstance(known, routes.RouteRedirect):
            return answers.moved_answer(known.location)
        if not known or (request.path.startswith("/checkpoint/") and not self._checkpoints):
            return answers.not_found_answer()
        try:
            await self._auth.check(request)
            found = routes.find_route(request.method, request.path, request.header(b"accept"))
            if isinstance(found, routes.RouteMissing):
                return answers.plain_text(found.status, found.text)
            if found.route.name in _DEBUGGING and not self._env.config.enable_debugging_handlers:
                return answers.plain_text(405, "Debug endpoints are disabled.")
            return await self._dispatch(request, found)
        except HttpFailure as failure:
            return answers.plain_text(failure.status, str(failure))

    async def _stream(self, name: str, request: HttpRequest, rest: tuple[str, ...]) -> Answer:
        # The stream protocols import many modules; load them late to keep node start-up fast.
        env, view = self._env, self._view
        if name == "exec":
            return commands.serve_exec(env, view, rest[0], rest[1], rest[-1], request)
        if name == "attach":
            return commands.serve_attach(
                env, view, rest[0], rest[1], _uid(rest, 4), rest[-1], request
            )
        if name == "run":
            return await commands.serve_run(env, view, rest[0], rest[1], rest[-1], request)
        return forward.serve_port_forward(env, view, rest[0], rest[1], _uid(rest, 3), request)

    async def _dispatch(self, request: HttpRequest, found: routes.RouteMatch) -> Answer:
        env, view, rest = self._env, self._view, found.rest
        match found.route.name:
            case "healthz" | "check":
                return self._health(request, rest)
            case "pods":
                return pods.serve_pods(view)
            case "runningpods":
                return pods.serve_running_pods(env)
            case "containerLogs":
                return container_logs.serve_container_logs(
                    env, view, rest[0], rest[1], rest[2], request.query
                )
            case "exec" | "attach" | "run" | "portForward" as name:
                return await self._stream(name, request, rest)
            case "logs":
                return await self._logs(request, rest[0])
            case "checkpoint":
                return serve_checkpoint(env, view, rest, request.query)
            case "configz":
                shown = answers.json_answer(
                    {"kubeletconfig": kubelet_configuration(env.config, env.os)}
                )
                shown.headers.append((b"X-Content-Type-Options", b"nosniff"))
                return shown
            case "summary":
                short = request.query.get("only_cpu_and_memory") == ["true"]
                if not short and self._measure is not None:
                    await self._measure()
                return answers.pretty_answer(
                    self.stats.cpu_and_memory() if short else self.stats.summary()
                )
            case name:
                if name == "metrics" and self._measure is not None:
                    await self._measure()
                return answers.metrics_answer(await self._metrics(name))

    async def _logs(self, request: HttpRequest, path: str) -> Answer:
        env = self._env
        if not env.config.enable_system_log_handler:
            return answers.http_error(405, "logs endpoint is disabled.")
        if nodelogs.answers_queries(env):
            return await nodelogs.serve_node_logs(env, path, request.query)
        return hostlogs.serve_host_logs(env.host.files, env.os, path)

    async def _metrics(self, name: str) -> str:
        env = self._env
        match name:
            case "resource":
                return resource_metrics(
                    self.stats.cpu_and_memory(), metric_rules(Release(*env.config.release))
                )
            case "cadvisor":
                return await cadvisor.cadvisor_metrics(env, self.stats)
            case "probes":
                return probe_metrics(self._probes(), self._started)
        now = env.clock.time()
        claims = [
            volume
            for pod in self._view.active_pods()
            if any("persistentVolumeClaim" in v for v in pod["spec"].get("volumes") or ())
            for volume in pod_volumes(env, pod, pod["metadata"]["uid"], now, self.stats.mounted)[1]
        ]
        others = [family for collect in self._collectors for family in collect()]
        return kubelet_metrics(env, self.metrics, self._started, [*volume_metrics(claims), *others])

    def _health(self, request: HttpRequest, rest: tuple[str, ...]) -> HttpResponse:
        alive = self._alive()
        slow = "sync Loop took longer than expected"
        if rest:
            if rest[0] == "syncloop" and not alive:
                return answers.http_error(500, f"internal server error: {slow}")
            return answers.plain_text(200, "ok")
        left_out = set(request.query.get("exclude", ()))
        lines = [
            f"[+]{name} excluded: ok"
            if name in left_out
            else f"[-]{name} failed: reason withheld"
            if name == "syncloop" and not alive
            else f"[+]{name} ok"
            for name in _CHECKS
        ]
        unknown = ",".join(f'"{name}"' for name in sorted(left_out.difference(_CHECKS)))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        if any(line.startswith("[-]") for line in lines):
            return answers.http_error(500, "\n".join([*lines, "healthz check failed"]))
        if "verbose" in request.query:
            return answers.plain_text(200, "\n".join([*lines, "healthz check passed", ""]))
        return answers.plain_text(200, "ok")

    def _count(self, request: HttpRequest, seconds: float) -> None:
        parts = request.path.lstrip("/").split("/")
        path = "/".join(parts[:2]) if parts[0] == "metrics" else parts[0]
        known = routes.is_known_path(request.path) is not False
        method = request.method if request.method in _METHODS else "other"
        labels = (str(path in _LONG).lower(), method, path if known else "other", "readwrite")
        self.metrics.count("kubelet_http_requests_total", *labels)
        self.metrics.observe("kubelet_http_requests_duration_seconds", seconds, *labels)


def _uid(rest: tuple[str, ...], words: int) -> str:
    return rest[2] if len(rest) == words else ""


def answer_ping_healthz(request: HttpRequest) -> HttpResponse:
    """The server of --healthz-port, which only reports that the kubelet runs."""
    if request.path in ("/healthz", "/healthz/", "/healthz/ping"):
        return answers.plain_text(200, "ok")
    return answers.not_found_answer()
