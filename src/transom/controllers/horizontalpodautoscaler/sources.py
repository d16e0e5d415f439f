"""The five metric types of an autoscaler: each gives a proposal, its name, and its status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from transom.client.informer import Informer
from transom.controllers.horizontalpodautoscaler import calculator
from transom.controllers.horizontalpodautoscaler.metrics import HpaMetricsClient, MetricsError
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.quantity import from_milli, parse_quantity
from transom.machinery.selectors import LabelSelector, SelectorError, everything, from_object


class ScaleTarget(NamedTuple):
    """What is scaled."""

    namespace: str
    selector: LabelSelector
    wanted: int  # replicas in its spec
    present: int  # and in its status
    tolerance: calculator.Tolerance = calculator.Tolerance()


class ReplicaProposal(NamedTuple):
    replicas: int
    name: str
    status: Object


class NoProposal(Exception):
    """`reason` and `condition` (a message) are for the condition and event; the text is for the
    error as a whole.
    """

    def __init__(self, reason: str, condition: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.condition = condition


class MetricSources:
    def __init__(
        self, metrics: HpaMetricsClient, pods: Informer, *, names_metric: bool = False
    ) -> None:
        """`names_metric`: errors of resource metrics begin with the name of the metric."""
        self._names_metric = names_metric
        self._metrics = metrics
        self._pods = pods
        self._types: dict[
            str, Callable[[Object, ScaleTarget, float], Awaitable[ReplicaProposal]]
        ] = {
            "Object": self._object,
            "Pods": self._of_pods,
            "Resource": self._resource,
            "ContainerResource": self._container_resource,
            "External": self._external,
        }

    async def propose(self, metric: Object, target: ScaleTarget, now: float) -> ReplicaProposal:
        """Raises NoProposal."""
        kind = metric.get("type", "")
        source = self._types.get(kind)
        if source is None:
            text = f'unknown metric source type "{kind}"'
            raise NoProposal("InvalidMetricSourceType", text, text)
        return await source(metric, target, now)

    def _list(self, target: ScaleTarget) -> list[Object]:
        return self._pods.list(target.namespace, target.selector)

    async def _object(self, metric: Object, target: ScaleTarget, now: float) -> ReplicaProposal:
        source = metric["object"]
        wanted, identifier, described = (
            source["target"],
            source["metric"],
            source["describedObject"],
        )
        name = identifier["name"]

        def fail(problem: object, prefix: str = "") -> NoProposal:
            text = f"failed to get object metric value: {prefix}{problem}"
            return NoProposal("FailedGetObjectMetric", str(problem), text)

        try:
            selector = _metric_selector(identifier)
        except SelectorError as problem:
            raise fail(problem) from problem

        async def value() -> int:
            try:
                return await self._metrics.of_object(name, target.namespace, described, selector)
            except MetricsError as problem:
                # Kubernetes prints these in the wrong order, and users search for its text.
                raise MetricsError(
                    f"unable to get metric {name}: {described['kind']} on {target.namespace} "
                    f"{described['name']}/{problem}"
                ) from problem

        status = {"metric": _identity(identifier), "current": {}}
        if wanted.get("type") == "Value":
            try:
                found = await value()
                replicas = calculator.by_total(
                    target.wanted,
                    _milli(wanted["value"]),
                    found,
                    self._list(target),
                    target.tolerance,
                )
            except MetricsError as problem:
                raise fail(problem) from problem
            status |= {"describedObject": described, "current": {"value": _text(found)}}
            return ReplicaProposal(
                replicas, f"{described['kind']} metric {name}", {"type": "Object", "object": status}
            )
        if wanted.get("type") == "AverageValue":
            try:
                found = await value()
            except MetricsError as problem:
                raise fail(problem, f"failed to get {name} object metric: ") from problem
            replicas, average = calculator.by_total_per_pod(
                target.present, _milli(wanted["averageValue"]), found, target.tolerance
            )
            status |= {"describedObject": described, "current": {"averageValue": _text(average)}}
            return ReplicaProposal(
                replicas, _external_name(identifier), {"type": "Object", "object": status}
            )
        raise fail(
            "invalid object metric source: neither a value target nor an average value "
            "target was set"
        )

    async def _of_pods(self, metric: Object, target: ScaleTarget, now: float) -> ReplicaProposal:
        source = metric["pods"]
        identifier = source["metric"]
        name = identifier["name"]
        try:
            selector = _metric_selector(identifier)
            try:
                found = await self._metrics.of_pods(
                    name, target.namespace, target.selector, selector
                )
            except MetricsError as problem:
                raise MetricsError(f"unable to get metric {name}: {problem}") from problem
            replicas, average = calculator.by_average(
                target.wanted,
                _milli(source["target"]["averageValue"]),
                found,
                self._list(target),
                "",
                now,
                target.tolerance,
            )
        except (MetricsError, SelectorError) as problem:
            text = f"failed to get pods metric value: {problem}"
            raise NoProposal("FailedGetPodsMetric", str(problem), text) from problem
        status = {"metric": _identity(identifier), "current": {"averageValue": _text(average)}}
        return ReplicaProposal(replicas, f"pods metric {name}", {"type": "Pods", "pods": status})

    async def _resource(self, metric: Object, target: ScaleTarget, now: float) -> ReplicaProposal:
        source = metric["resource"]
        replicas, name, current = await self._usage(
            "FailedGetResourceMetric", source, "", target, now
        )
        return ReplicaProposal(
            replicas,
            name,
            {"type": "Resource", "resource": {"name": source["name"], "current": current}},
        )

    async def _container_resource(
        self, metric: Object, target: ScaleTarget, now: float
    ) -> ReplicaProposal:
        source = metric["containerResource"]
        container = source["container"]
        replicas, name, current = await self._usage(
            "FailedGetContainerResourceMetric", source, container, target, now
        )
        status = {"name": source["name"], "container": container, "current": current}
        return ReplicaProposal(
            replicas, name, {"type": "ContainerResource", "containerResource": status}
        )

    async def _usage(
        self, reason: str, source: Object, container: str, target: ScaleTarget, now: float
    ) -> tuple[int, str, Object]:
        resource, wanted = source["name"], source["target"]
        value, percent = wanted.get("averageValue"), wanted.get("averageUtilization")
        try:
            if value is None and percent is None:
                raise MetricsError(
                    "invalid resource metric source: neither a utilization target nor a "
                    "value target was set"
                )
            try:
                try:
                    found = await self._metrics.resource(
                        resource, target.namespace, target.selector, container
                    )
                except MetricsError as problem:
                    raise MetricsError(
                        f"unable to get metrics for resource {resource}: {problem}"
                    ) from problem
                if value is not None:
                    replicas, average = calculator.by_average(
                        target.wanted,
                        _milli(value),
                        found,
                        self._list(target),
                        resource,
                        now,
                        target.tolerance,
                    )
                    return replicas, f"{resource} resource", {"averageValue": _text(average)}
                got = calculator.by_utilization(
                    target.wanted,
                    percent,
                    found,
                    self._list(target),
                    resource,
                    container,
                    now,
                    target.tolerance,
                )
            except MetricsError as problem:
                raise MetricsError(f"failed to get {resource} utilization: {problem}") from problem
        except MetricsError as problem:
            what = "container" if container else "resource"
            text = f"failed to get {resource} {what} metric value: {problem}"
            whole = text if self._names_metric else str(problem)
            raise NoProposal(reason, str(problem), whole) from problem
        name = f"{resource} resource utilization (percentage of request)"
        return (
            got.replicas,
            name,
            {"averageUtilization": got.percent, "averageValue": _text(got.average)},
        )

    async def _external(self, metric: Object, target: ScaleTarget, now: float) -> ReplicaProposal:
        source = metric["external"]
        identifier, wanted = source["metric"], source["target"]
        name = identifier["name"]
        average = wanted.get("averageValue")
        if average is None and wanted.get("value") is None:
            text = (
                "invalid external metric source: neither a value target nor an average value "
                "target was set"
            )
            raise NoProposal("FailedGetExternalMetric", text, text)
        try:
            selector = _metric_selector(identifier)
            try:
                total = sum(await self._metrics.external(name, target.namespace, selector))
            except MetricsError as problem:
                raise MetricsError(
                    f"unable to get external metric {target.namespace}/{name}/"
                    f"{go_selector(identifier.get('selector'))}: {problem}"
                ) from problem
            if average is not None:
                replicas, shown = calculator.by_total_per_pod(
                    target.present, _milli(average), total, target.tolerance
                )
                current = {"averageValue": _text(shown)}
            else:
                replicas = calculator.by_total(
                    target.wanted,
                    _milli(wanted["value"]),
                    total,
                    self._list(target),
                    target.tolerance,
                )
                current = {"value": _text(total)}
        except (MetricsError, SelectorError) as problem:
            what = f"external metric {name}" if average is None else f"{name} external metric"
            raise NoProposal(
                "FailedGetExternalMetric", str(problem), f"failed to get {what}: {problem}"
            ) from problem
        status = {"metric": _identity(identifier), "current": current}
        return ReplicaProposal(
            replicas, _external_name(identifier), {"type": "External", "external": status}
        )


def _metric_selector(identifier: Object) -> LabelSelector:
    selector = identifier.get("selector")
    return from_object(selector) if selector is not None else everything()


def _identity(identifier: Object) -> Object:
    return {
        name: identifier[name] for name in ("name", "selector") if identifier.get(name) is not None
    }


def _external_name(identifier: Object) -> str:
    return f"external metric {identifier['name']}({go_selector(identifier.get('selector'))})"


def _milli(value: str | int) -> int:
    return parse_quantity(value).milli_value()


def _text(milli: int) -> str:
    return str(from_milli(milli))


def go_selector(selector: Object | None) -> str:
    """A label selector as Go prints it."""
    if selector is None:
        return "nil"
    labels = "".join(f"{k}: {v}," for k, v in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{e['key']},Operator:{e['operator']},Values:[{' '.join(e.get('values') or ())}],}},"
        for e in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
