"""metrics.k8s.io/v1beta1: the resource usage of nodes and pods, served by this server from
collected samples.

It replaces metrics-server: an APIService without a service marks the group as local. Installing a
real metrics-server sets a service in that APIService, which then serves the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.discovery import ServedVersion
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.options import first_query_value
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.serving import responses
from transom.apiserver.serving.negotiate import negotiate, wants_pretty
from transom.http.messages import HttpRequest, HttpResponse
from transom.machinery import errors, field_selectors, selectors
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

PRIORITY = 100  # priorities of the group and its version, as metrics-server sets them
_KINDS = {"nodes": "NodeMetrics", "pods": "PodMetrics"}
_READER: Object = {
    "metadata": {
        "name": "system:aggregated-metrics-reader",
        "labels": {
            "k8s-app": "metrics-server",
            **{
                f"rbac.authorization.k8s.io/aggregate-to-{role}": "true"
                for role in ("admin", "edit", "view")
            },
        },
    },
    "rules": [
        {"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}
    ],
}


class MetricsProvider(Protocol):
    """The newest samples; None if there is none."""

    def node(self, name: str) -> NodeSample | None: ...

    def pod(self, node: str, namespace: str, name: str) -> PodSample | None: ...


class ResourceMetrics:
    def __init__(self, loopback: Loopback, provider: MetricsProvider) -> None:
        self._loopback = loopback
        self._storage = loopback.storage
        self._resources = loopback.resources
        self._provider = provider

    async def start(self) -> None:
        await self._loopback.ensure("rbac.authorization.k8s.io", "v1", "clusterroles", "", _READER)

    @staticmethod
    def api_services() -> dict[str, Object]:
        """Name -> spec."""
        spec = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": PRIORITY,
            "versionPriority": PRIORITY,
        }
        return {f"{VERSION}.{GROUP}": spec}

    def served(self) -> ServedVersion:
        resources = [
            {
                "name": name,
                "singularName": "",
                "namespaced": name == "pods",
                "kind": kind,
                "verbs": ["get", "list"],
            }
            for name, kind in _KINDS.items()
        ]
        return ServedVersion(GROUP, VERSION, PRIORITY, PRIORITY, resources)

    def answer(self, request: HttpRequest, ctx: RequestContext, info: Authorized) -> HttpResponse:
        """Handles a resource path of this group and version."""
        kind = _KINDS.get(info.resource)
        if kind is None or info.subresource or (info.resource == "nodes" and info.namespace):
            raise errors.generic_not_found()
        form = negotiate(request.header(b"accept"), transforms=False, custom=True)
        if info.verb not in ("get", "list") or request.method != "GET":
            raise errors.generic_method_not_allowed()
        form = form._replace(
            pretty=form.pretty or wants_pretty(request.query, request.header(b"user-agent"))
        )
        if info.verb == "get":
            return responses.document_response(
                {"kind": kind, "apiVersion": API_VERSION, **self._one(info, ctx.now)}, form
            )
        items = list(self._many(request, info, ctx.now))
        return responses.document_response(
            {"kind": f"{kind}List", "apiVersion": API_VERSION, "metadata": {}, "items": items}, form
        )

    def _one(self, info: Authorized, now: float) -> Object:
        res = self._resources.require("", "v1", info.resource)
        obj = self._storage.find(res, info.namespace, info.name)
        if obj is None and info.resource == "pods":
            raise errors.not_found(GroupResource("", "pods"), info.name)
        found = self._metrics(info.resource, obj, now) if obj is not None else None
        if found is None:
            name = f"{info.namespace}/{info.name}" if info.resource == "pods" else info.name
            raise errors.not_found(GroupResource(GROUP, info.resource), name)
        return found

    def _many(self, request: HttpRequest, info: Authorized, now: float) -> Iterator[Object]:
        query = request.query
        try:
            labels = selectors.parse_labels(first_query_value(query, "labelSelector"))
            fields = field_selectors.parse_fields(first_query_value(query, "fieldSelector"))
        except selectors.SelectorError as problem:
            raise errors.bad_request(str(problem)) from None
        for term in fields.terms:
            if term.field not in ("metadata.name", "metadata.namespace"):
                raise errors.bad_request(f"field label not supported: {term.field}")
        res = self._resources.require("", "v1", info.resource)
        objects = self._storage.objects(res, info.namespace)
        for obj in sorted(
            objects, key=lambda o: (o["metadata"].get("namespace", ""), o["metadata"]["name"])
        ):
            meta = obj["metadata"]
            if not labels.matches(meta.get("labels")):
                continue
            names = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
            if (
                fields.matches(names)
                and (found := self._metrics(info.resource, obj, now)) is not None
            ):
                yield found

    def _metrics(self, resource: str, obj: Object, now: float) -> Object | None:
        name = obj["metadata"]["name"]
        if resource == "nodes":
            sample = self._provider.node(name)
            return None if sample is None else node_metrics(obj, sample, now)
        if (obj.get("status") or {}).get("phase") != "Running":
            return None
        used = self._provider.pod(
            (obj.get("spec") or {}).get("nodeName", ""), obj["metadata"]["namespace"], name
        )
        return None if used is None else pod_metrics(obj, used, now)
