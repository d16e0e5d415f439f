"""LimitRanger: the limit ranges of a namespace set default resources of containers and enforce
limits.

Pods are checked on creation (their resources are immutable), claims also when they are expanded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery.objects import Object
from transom.machinery.podresources import aggregate_containers
from transom.machinery.quantity import MILLI, ZERO, Quantity, parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

ANNOTATION = "kubernetes.io/limit-ranger"
_POD, _CLAIM = "/Pod", "/PersistentVolumeClaim"
_MAX_MILLI = (2**63 - 1) // 1000  # larger values do not fit an int64 in thousandths
Amounts = dict[str, Quantity]
_MANY = 300  # amounts that take long to apply and check


class LimitRanger(MutatingPlugin, ValidatingPlugin):
    name = "LimitRanger"
    thread_safe = False

    def __init__(self, objects: ObjectStore, limit_ranges: Resource) -> None:
        self._objects = objects
        self._limit_ranges = limit_ranges

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = resource.kind.key
        if subresource:
            resizes = key == _POD and (operation, subresource) == ("UPDATE", "resize")
            return resizes and is_enabled(resource.release, "InPlacePodVerticalScaling")
        return (operation == "CREATE" and key in (_POD, _CLAIM)) or (
            operation == "UPDATE" and key == _CLAIM
        )

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        return self._each(attributes, _fill_in) if attributes.kind_key == _POD else None

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        old = attributes.old
        if old is not None and old["metadata"].get("deletionTimestamp"):
            return None
        return self._each(attributes, _check_bounds)

    def _each(
        self, attributes: Attributes, work: Callable[[Attributes, Object], None]
    ) -> Awaitable[None] | None:
        """Calls `work` for each limit range of the namespace: in the worker thread if the object is
        large.
        """
        load, is_slow = self._objects.to_load(self._limit_ranges, attributes.namespace)
        if is_slow:
            attributes.ctx.large = True
            return self._objects.compute(
                attributes.ctx, lambda: _for_each(load(), attributes, work)
            )
        limit_ranges = load()
        if not attributes.ctx.large and limit_ranges and _count_amounts(limit_ranges) > _MANY:
            attributes.ctx.large = True  # a small pod gets many resources
        if limit_ranges and attributes.ctx.large:
            return self._objects.compute(
                attributes.ctx, partial(_for_each, limit_ranges, attributes, work)
            )
        _for_each(limit_ranges, attributes, work)
        return None


def _count_amounts(limit_ranges: list[Object]) -> int:
    return sum(
        len(amounts)
        for limit_range in limit_ranges
        for limit in _limits(limit_range)
        for amounts in limit.values()
        if isinstance(amounts, dict)
    )


def _for_each(
    limit_ranges: list[Object], attributes: Attributes, work: Callable[[Attributes, Object], None]
) -> None:
    for limit_range in limit_ranges:
        work(attributes, limit_range)


def _check_bounds(attributes: Attributes, limit_range: Object) -> None:
    limits = _limits(limit_range)
    if attributes.kind_key == _POD:
        found = _pod_problems(attributes.obj, limits, attributes.resource.release)
    else:
        found = _claim_problems(attributes.obj, limits)
    problems = list(dict.fromkeys(found))
    if problems:
        raise attributes.forbidden(
            problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        )


def _limits(limit_range: Object) -> list[Object]:
    return (limit_range.get("spec") or {}).get("limits") or []


# ---- defaults ----


def _fill_in(attributes: Attributes, limit_range: Object) -> None:
    pod = attributes.obj
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for limit in _limits(limit_range):
        if limit.get("type") == "Container":
            requests.update(limit.get("defaultRequest") or {})
            limits.update(limit.get("default") or {})
    if not requests and not limits:
        return
    applied: list[str] = []
    for field, noun in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for part, defaults, word in (
                ("requests", requests, "request"),
                ("limits", limits, "limit"),
            ):
                added = _merge(resources, part, defaults)
                if added:
                    applied.append(
                        f"{', '.join(sorted(added))} {word} for {noun} {container.get('name', '')}"
                    )
    if applied:
        meta = pod["metadata"]
        text = "LimitRanger plugin set: " + "; ".join(applied)
        meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION: text}


def _merge(resources: dict[str, Any], part: str, defaults: dict[str, str]) -> list[str]:
    """Sets missing defaults; returns their names."""
    given = resources.get(part) or {}
    added = [name for name in defaults if name not in given]
    if added:
        resources[part] = {**given, **{name: defaults[name] for name in added}}
    return added


# ---- bounds ----


def _amounts(texts: dict[str, str] | None) -> Amounts:
    return {name: parse_quantity(text) for name, text in (texts or {}).items()}


def _claim_problems(claim: Object, limits: list[Object]) -> Iterator[str]:
    requests = _amounts(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for limit in limits:
        if limit.get("type") == "PersistentVolumeClaim":
            yield from _check(limit, "min", _minimum, requests, {})
            yield from _check(limit, "max", _maximum_request, requests, {})


def _pod_problems(pod: Object, limits: list[Object], release: Release) -> Iterator[str]:
    spec = pod["spec"]
    total = partial(
        _pod_total if has_behaviour(release, "PodTotalsWithSidecars") else _earlier_pod_total,
        spec,
        levels=is_enabled(release, "PodLevelResources"),
    )
    for limit in limits:
        kind = limit.get("type")
        if kind == "Container":
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                resources = container.get("resources") or {}
                yield from _bounds(
                    limit, _amounts(resources.get("requests")), _amounts(resources.get("limits"))
                )
        elif kind == "Pod":
            yield from _bounds(limit, total("requests"), total("limits"))


def _bounds(limit: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _check(limit, "min", _minimum, requests, limits)
    yield from _check(limit, "max", _maximum, requests, limits)
    yield from _check(limit, "maxLimitRequestRatio", _ratio, requests, limits)


Constraint = Callable[[str, Quantity, Quantity | None, Quantity | None], str]


def _check(
    limit: Object, bound: str, constraint: Constraint, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    for resource, text in (limit.get(bound) or {}).items():
        what = f"{resource} {{}} per {limit['type']} is {parse_quantity(text)}"
        problem = constraint(
            what, parse_quantity(text), requests.get(resource), limits.get(resource)
        )
        if problem:
            yield problem


def _comparable(*quantities: Quantity | None) -> tuple[int, ...]:
    """Comparable integers, in thousandths unless one is too large for that."""
    values = tuple((q or ZERO).value() for q in quantities)
    if all(value <= _MAX_MILLI for value in values):
        return tuple((q or ZERO).milli_value() for q in quantities)
    return values


def _minimum(what: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    requested, limited, enforced = _comparable(request, limit, bound)
    text = "minimum " + what.format("usage")
    if request is None:
        return f"{text}.  No request is specified"
    if requested < enforced:
        return f"{text}, but request is {request}"
    if limit is not None and limited < enforced:
        return f"{text}, but limit is {limit}"
    return ""


def _maximum_request(
    what: str, bound: Quantity, request: Quantity | None, _limit: Quantity | None
) -> str:
    requested, enforced = _comparable(request, bound)
    text = "maximum " + what.format("usage")
    if request is None:
        return f"{text}.  No request is specified"
    return f"{text}, but request is {request}" if requested > enforced else ""


def _maximum(what: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    requested, limited, enforced = _comparable(request, limit, bound)
    text = "maximum " + what.format("usage")
    if limit is None:
        return f"{text}.  No limit is specified"
    if limited > enforced:
        return f"{text}, but limit is {limit}"
    if request is not None and requested > enforced:
        return f"{text}, but request is {request}"
    return ""


def _ratio(what: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    requested, limited, _ = _comparable(request, limit, bound)
    text = what.format("max limit to request ratio")
    if request is None or requested == 0:
        return f"{text}, but no request is specified or request is 0"
    if limit is None or limited == 0:
        return f"{text}, but no limit is specified or limit is 0"
    given = limited / requested
    if bound.value() <= _MAX_MILLI:
        exceeded = given * 1000 > float(bound.milli_value())
    else:
        exceeded = given > float(bound.value())
    return f"{text}, but provided ratio is {given:f}" if exceeded else ""


def _pod_total(spec: Object, part: str, *, levels: bool) -> Amounts:
    """The pod's total, or what the pod itself specifies, if it may (`levels`)."""
    total = aggregate_containers(spec, part)
    own = (spec.get("resources") or {}).get(part) if levels else None
    kept = {name: text for name, text in (own or {}).items() if name in ("cpu", "memory")}
    return {**total, **_amounts(kept)}


def _earlier_pod_total(spec: Object, part: str, *, levels: bool) -> Amounts:
    """The pod's total: the sum over its containers if all specify it, or the largest init
    container.
    """
    total = _sum(
        _amounts((c.get("resources") or {}).get(part)) for c in spec.get("containers") or ()
    )
    for container in spec.get("initContainers") or ():
        for name, amount in _amounts((container.get("resources") or {}).get(part)).items():
            if name not in total or amount > total[name]:
                total[name] = amount
    return total


def _sum(inputs: Iterable[Amounts]) -> Amounts:
    parts = list(inputs)
    names = dict.fromkeys(name for part in parts for name in part)
    out: Amounts = {}
    for name in names:
        if all(name in part for part in parts):
            if name == "cpu":
                out[name] = Quantity(sum(part[name].milli_value() for part in parts), MILLI)
            else:
                out[name] = Quantity(sum(part[name].value() for part in parts))
    return out
