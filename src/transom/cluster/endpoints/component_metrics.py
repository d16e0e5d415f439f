"""The metrics of the scheduler and the controllers in the process of the API server.

In Kubernetes each has a port of its own. Here the API server serves them below /transom/metrics,
one path for each component, so that Prometheus scrapes them as separate jobs. Like any other
non-resource path, RBAC decides who may read them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from transom.client.metrics import ClientMetrics
from transom.http import HttpServer
from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.kit.process_metrics import collect_process_metrics
from transom.kit.prometheus import CONTENT_TYPE, Collector, render_metrics
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery.build_info import build_info
from transom.machinery.releases import BUILDS, Release

METRICS_ROOT = "/transom/metrics"
SCHEDULER = "kube-scheduler"
CONTROLLER_MANAGER = "kube-controller-manager"


class ComponentMetrics:
    """One component. `client` counts its requests and queues; a component that has more metrics
    adds them when it starts.
    """

    def __init__(self, host: str, release: Release) -> None:
        self.client = ClientMetrics(host, release)
        self._build = build_info(BUILDS[str(release)].git_version)
        self._own: Collector = tuple

    def set_own(self, collector: Collector) -> None:
        self._own = collector

    def render(self) -> str:
        own = [*self.client.collect(), *self._own(), self._build]
        return render_metrics([*own, *collect_process_metrics()])


class ClusterComponentMetrics:
    def __init__(self, host: str, release: Release) -> None:
        self.scheduler = ComponentMetrics(host, release)
        self.controllers = ComponentMetrics(host, release)
        self._paths: dict[str, Callable[[], str]] = {
            f"{METRICS_ROOT}/{SCHEDULER}": self.scheduler.render,
            f"{METRICS_ROOT}/{CONTROLLER_MANAGER}": self.controllers.render,
        }

    async def __call__(self, request: HttpRequest) -> Answer:
        return answer_metrics(request, self._paths)


def answer_metrics(request: HttpRequest, paths: dict[str, Callable[[], str]]) -> HttpResponse:
    """`paths` render the metrics of each path."""
    render = paths.get(request.path)
    plain = [(b"Content-Type", b"text/plain; charset=utf-8")]
    if render is None:
        return HttpResponse(404, plain, b"404 page not found\n")
    if request.method != "GET":
        return HttpResponse(405, plain, b"Method Not Allowed\n")
    return HttpResponse(200, [(b"Content-Type", CONTENT_TYPE.encode())], render().encode())


@asynccontextmanager
async def serving_metrics(address: str, metrics: ComponentMetrics) -> AsyncIterator[None]:
    """Serves /metrics of a component in a process of its own over HTTP; `address` "" turns it
    off.
    """
    if not address:
        yield
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"invalid --metrics-bind-address {address}: not IP:PORT", code=EXIT_USAGE)
    paths: dict[str, Callable[[], str]] = {"/metrics": metrics.render, "/healthz": lambda: "ok"}
    server = HttpServer(lambda request: answer_metrics(request, paths), None)
    try:
        await server.start(host.strip("[]"), int(port))
    except OSError as problem:
        raise UserError(f"cannot listen on {address}: {problem}") from problem
    try:
        yield
    finally:
        await server.stop(0.5)
