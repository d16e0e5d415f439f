"""metrics.k8s.io/v1beta1: what nodes and pods use, served by this server itself from samples somebody collects.

It stands where metrics-server would: an APIService without a service says that the group is here. Whoever installs a real
metrics-server gives that APIService a service, and from then on the group is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from transom.apiserver import respond
from transom.apiserver.bootstrap import ensure
from transom.apiserver.context import Context
from transom.apiserver.discovery import ServedVersion
from transom.apiserver.negotiate import negotiate, wants_pretty
from transom.apiserver.options import first
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Request, Response
from transom.machinery import errors, selectors
from transom.machinery.errors import GroupResource
from transom.machinery.objects import Object
from transom.machinery.resource_metrics import (
    API_VERSION,
    GROUP,
    VERSION,
    NodeSample,
    PodSample,
    node_metrics,
    pod_metrics,
)

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

PRIORITY = 100  # of the group and of its version, as metrics-server asks for
_KINDS = {"nodes": "NodeMetrics", "pods": "PodMetrics"}
_READER: Object = {
    "metadata": {
        "name": "system:aggregated-metrics-reader",
        "labels": {
            "k8s-app": "metrics-server",
            **{f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")},
        },
    },
    "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
}


class MetricsProvider(Protocol):
    """The newest samples; None where there is none."""

    def node(self, name: str) -> NodeSample | None: ...

    def pod(self, node: str, namespace: str, name: str) -> PodSample | None: ...


class ResourceMetrics:
    def __init__(self, server: ApiServer, provider: MetricsProvider) -> None:
        self._server = server
        self._provider = provider

    async def start(self) -> None:
        await ensure(self._server, "rbac.authorization.k8s.io", "v1", "clusterroles", "", _READER)

    def api_services(self) -> dict[str, Object]:
        """Name -> spec."""
        spec = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": PRIORITY, "versionPriority": PRIORITY}
        return {f"{VERSION}.{GROUP}": spec}

    def served(self) -> ServedVersion:
        resources = [
            {"name": name, "singularName": "", "namespaced": name == "pods", "kind": kind, "verbs": ["get", "list"]}
            for name, kind in _KINDS.items()
        ]
        return ServedVersion(GROUP, VERSION, PRIORITY, PRIORITY, resources)

    def answer(self, request: Request, ctx: Context, info: RequestInfo) -> Response:
        """For a path of a resource below this group and version."""
        kind = _KINDS.get(info.resource)
        if kind is None or info.subresource or (info.resource == "nodes" and info.namespace):
            raise errors.generic_not_found()
        form = negotiate(request.header(b"accept"), transforms=False, custom=True)
        if info.verb not in ("get", "list") or request.method != "GET":
            raise errors.generic_method_not_allowed()
        form = form._replace(pretty=form.pretty or wants_pretty(request.query, request.header(b"user-agent")))
        if info.verb == "get":
            return respond.document({"kind": kind, "apiVersion": API_VERSION, **self._one(info, ctx.now)}, form)
        items = list(self._many(request, info, ctx.now))
        return respond.document(
            {"kind": f"{kind}List", "apiVersion": API_VERSION, "metadata": {}, "items": items}, form
        )

    def _one(self, info: RequestInfo, now: float) -> Object:
        obj = self._server.find_core(info.resource, info.namespace, info.name)
        if obj is None and info.resource == "pods":
            raise errors.not_found(GroupResource("", "pods"), info.name)
        found = self._metrics(info.resource, obj, now) if obj is not None else None
        if found is None:
            name = f"{info.namespace}/{info.name}" if info.resource == "pods" else info.name
            raise errors.not_found(GroupResource(GROUP, info.resource), name)
        return found

    def _many(self, request: Request, info: RequestInfo, now: float) -> Iterator[Object]:
        query = request.query
        try:
            labels = selectors.parse_labels(first(query, "labelSelector"))
            fields = selectors.parse_fields(first(query, "fieldSelector"))
        except selectors.SelectorError as problem:
            raise errors.bad_request(str(problem)) from None
        for term in fields.terms:
            if term.field not in ("metadata.name", "metadata.namespace"):
                raise errors.bad_request(f"field label not supported: {term.field}")
        server = self._server
        objects = server.storage.objects(server.resource("", "v1", info.resource), info.namespace)
        for obj in sorted(objects, key=lambda o: (o["metadata"].get("namespace", ""), o["metadata"]["name"])):
            meta = obj["metadata"]
            if not labels.matches(meta.get("labels")):
                continue
            names = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
            if fields.matches(names) and (found := self._metrics(info.resource, obj, now)) is not None:
                yield found

    def _metrics(self, resource: str, obj: Object, now: float) -> Object | None:
        name = obj["metadata"]["name"]
        if resource == "nodes":
            sample = self._provider.node(name)
            return None if sample is None else node_metrics(obj, sample, now)
        if (obj.get("status") or {}).get("phase") != "Running":
            return None
        used = self._provider.pod((obj.get("spec") or {}).get("nodeName", ""), obj["metadata"]["namespace"], name)
        return None if used is None else pod_metrics(obj, used, now)
