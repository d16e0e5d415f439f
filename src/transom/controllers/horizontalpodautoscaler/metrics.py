"""Clients of the metrics APIs: resource metrics of pods, custom metrics of objects, external
metrics.

The APIs are aggregated; without a server the errors have the texts of Kubernetes' client. All
values are in thousandths.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from transom.client.api import ApiClient
from transom.controllers.scales import NoMatch, Scales, group_of
from transom.kit.clock import parse_rfc3339
from transom.kit.durations import DurationError, parse_duration
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.machinery.selectors import LabelSelector
from transom.machinery.server_responses import generic_server_response

RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
_RESOURCE_VERSION = _EXTERNAL_VERSION = "v1beta1"
_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
_DEFAULT_WINDOW = 60.0


class MetricsError(Exception):
    """The metric is not available now; the text is for the user."""


class PodMetric(NamedTuple):
    value: int
    timestamp: float = 0.0
    window: float = 0.0


PodMetrics = dict[str, PodMetric]  # by the name of the pod


class HpaMetricsClient:
    def __init__(self, client: ApiClient, scales: Scales) -> None:
        self._client = client
        self._scales = scales

    async def resource(
        self, name: str, namespace: str, selector: LabelSelector, container: str
    ) -> PodMetrics:
        """The usage of a resource by each pod, or by one container of it."""
        path = f"/apis/{RESOURCE}/{_RESOURCE_VERSION}/namespaces/{namespace}/pods"
        try:
            items = (
                await self._get(path, {"labelSelector": str(selector)}, f"pods.{RESOURCE}")
            ).get("items")
        except MetricsError as problem:
            raise MetricsError(
                f"unable to fetch metrics from resource metrics API: {problem}"
            ) from problem
        if not items:
            raise MetricsError("no metrics returned from resource metrics API")
        if container:
            return _of_container(items, name, container)
        out: PodMetrics = {}
        for item in items:
            usages = [(c.get("usage") or {}).get(name) for c in item.get("containers") or ()]
            if usages and None not in usages:
                out[item["metadata"]["name"]] = _pod_metric(
                    item, sum(_milli(usage) for usage in usages)
                )
        return out

    async def of_pods(
        self, metric: str, namespace: str, selector: LabelSelector, metric_selector: LabelSelector
    ) -> PodMetrics:
        try:
            version = await self._custom_version()
            listing = await self._custom(
                version,
                f"namespaces/{namespace}/pods/*/{quote(metric)}",
                "pods",
                "*",
                {"labelSelector": str(selector), "metricLabelSelector": str(metric_selector)},
            )
        except MetricsError as problem:
            raise MetricsError(
                f"unable to fetch metrics from custom metrics API: {problem}"
            ) from problem
        if not listing:
            raise MetricsError("no metrics returned from custom metrics API")
        return {
            item["describedObject"]["name"]: PodMetric(
                _milli(item.get("value", "0")),
                _time(item.get("timestamp")),
                float(item["windowSeconds"])
                if item.get("windowSeconds") is not None
                else _DEFAULT_WINDOW,
            )
            for item in listing
        }

    async def of_object(
        self, metric: str, namespace: str, ref: Object, metric_selector: LabelSelector
    ) -> int:
        query = {"metricLabelSelector": str(metric_selector)}
        try:
            version = await self._custom_version()
            group, _ = group_of(ref.get("apiVersion", ""))
            if ref["kind"] == "Namespace" and not group:
                # A reference always stays in the autoscaler's own namespace.
                listing = await self._custom(
                    version,
                    f"namespaces/{namespace}/metrics/{quote(metric)}",
                    "metrics",
                    metric,
                    query,
                )
            else:
                resource = await self._qualified(group, ref["kind"])
                listing = await self._custom(
                    version,
                    f"namespaces/{namespace}/{resource}/{quote(ref['name'])}/{quote(metric)}",
                    resource,
                    ref["name"],
                    query,
                )
            if len(listing) != 1:
                raise MetricsError(
                    f"the custom metrics API server returned {len(listing)} results when we "
                    "asked for exactly one"
                )
        except MetricsError as problem:
            raise MetricsError(
                f"unable to fetch metrics from custom metrics API: {problem}"
            ) from problem
        return _milli(listing[0].get("value", "0"))

    async def external(
        self, metric: str, namespace: str, metric_selector: LabelSelector
    ) -> list[int]:
        path = f"/apis/{EXTERNAL}/{_EXTERNAL_VERSION}/namespaces/{namespace}/{quote(metric)}"
        try:
            document = await self._get(
                path, {"labelSelector": str(metric_selector)}, f"{metric}.{EXTERNAL}"
            )
        except MetricsError as problem:
            raise MetricsError(
                f"unable to fetch metrics from external metrics API: {problem}"
            ) from problem
        items = document.get("items")
        if not items:
            raise MetricsError("no metrics returned from external metrics API")
        return [_milli(item.get("value", "0")) for item in items]

    # ---- requests ----

    async def _get(self, path: str, query: dict[str, str], resource: str, name: str = "") -> Any:
        query = {key: value for key, value in query.items() if value}
        try:
            return await self._client.get_json(f"{path}?{urlencode(query)}" if query else path)
        except ApiError as problem:
            raise MetricsError(_text(problem, resource, name)) from problem
        except OSError as problem:
            raise MetricsError(str(problem)) from problem

    async def _custom_version(self) -> str:
        try:
            groups = (await self._client.get_json("/apis"))["groups"]
        except (ApiError, OSError) as problem:
            raise MetricsError(str(problem)) from problem
        group = next((group for group in groups if group["name"] == CUSTOM), None)
        if group is None:
            raise MetricsError(f"no custom metrics API ({CUSTOM}) registered")
        served = [
            group["preferredVersion"]["version"],
            *(version["version"] for version in group["versions"]),
        ]
        known = next((version for version in served if version in _CUSTOM_VERSIONS), None)
        if known is None:
            raise MetricsError("no known available metric versions found")
        return known

    async def _custom(
        self, version: str, path: str, resource: str, name: str, query: dict[str, str]
    ) -> list[Object]:
        document = await self._get(
            f"/apis/{CUSTOM}/{version}/{path}", query, f"{resource}.{CUSTOM}", name
        )
        return document.get("items") or []

    async def _qualified(self, group: str, kind: str) -> str:
        """The resource of a kind in paths of custom metrics: `ingresses.networking.k8s.io`."""
        try:
            found = (await self._scales.resources(group, kind))[0]
        except NoMatch as problem:
            raise MetricsError(
                f"unable to map kind {kind + '.' + group if group else kind} to resource: {problem}"
            ) from problem
        return str(found)


def _text(problem: ApiError, resource: str, name: str) -> str:
    if problem.details:  # a complete Status has its own message
        return str(problem)
    text = generic_server_response(problem.code, str(problem)).message
    return f"{text} (get {resource} {name})" if name else f"{text} (get {resource})"


def _of_container(items: list[Object], resource: str, container: str) -> PodMetrics:
    out: PodMetrics = {}
    for item in items:
        meta = item["metadata"]
        found = next((c for c in item.get("containers") or () if c["name"] == container), None)
        if found is None:
            where = f"{meta.get('namespace', '')}/{meta['name']}"
            raise MetricsError(
                f"failed to get container metrics: container {container} not present in "
                f"metrics for pod {where}"
            )
        usage = (found.get("usage") or {}).get(resource)
        if usage is not None:
            out[meta["name"]] = _pod_metric(item, _milli(usage))
    return out


def _pod_metric(item: Object, value: int) -> PodMetric:
    return PodMetric(value, _time(item.get("timestamp")), _window(item.get("window")))


def _milli(value: Any) -> int:
    return parse_quantity(value).milli_value()


def _time(text: str | None) -> float:
    return parse_rfc3339(text) if text else 0.0


def _window(text: str | None) -> float:
    """Seconds; 0 without a valid window."""
    try:
        return parse_duration(text) if text else 0.0
    except DurationError:
        return 0.0
