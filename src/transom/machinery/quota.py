"""Resource quota arithmetic: which quotas match an object, what the object uses, and what is left.

Admission charges new objects, the quota controller recounts them; both use this module, so that
they agree. Amounts are `Quantity` values by resource name. Does not read a clock: the caller passes
the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from transom.kit.caching import text_cache
from transom.kit.clock import parse_rfc3339
from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.quantity import ZERO, Quantity, parse_quantity
from transom.machinery.validation.names import is_qualified_name

Amounts = dict[str, Quantity]
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_ONE = Quantity(1)


class QuotaEvaluator(NamedTuple):
    """Computes the usage of the objects of one resource."""

    group: str
    plural: str
    # Those of the given resource names that such objects can use.
    matching: Callable[[Iterable[str]], list[str]]
    usage: Callable[[Object, float], Amounts]  # the usage of an object at this time
    updates: bool = False  # an update can increase the usage, too
    in_scope: Callable[[Object, Object], bool] | None = (
        None  # (selector, object); None: no scope ever matches
    )
    missing: Callable[[Iterable[str], Object], dict[str, list[str]]] | None = (
        None  # required resources, and the containers that do not specify them
    )


# ---- amounts
# --------------------------------------------------------------------------------------------------


def parse_amounts(texts: Mapping[str, str] | None) -> Amounts:
    return {name: parse_quantity(text) for name, text in (texts or {}).items()}


def format_amounts(values: Amounts) -> dict[str, str]:
    return {name: str(values[name]) for name in sorted(values)}


def pretty_amounts(values: Amounts) -> str:
    return ",".join(f"{name}={values[name]}" for name in sorted(values))


def add_amounts(first: Amounts, second: Amounts) -> Amounts:
    out = dict(first)
    for name, value in second.items():
        out[name] = out[name] + value if name in out else value
    return out


def largest_amounts(first: Amounts, second: Amounts) -> Amounts:
    out = dict(first)
    for name, value in second.items():
        if name not in out or out[name] <= value:
            out[name] = value
    return out


def amounts_increase(new: Amounts, old: Amounts) -> Amounts:
    """The increase from the old to the new amounts."""
    out = {}
    for name, value in new.items():
        rest = value - old[name] if name in old else value
        if rest.sign > 0:
            out[name] = rest
    return out


def equal_amounts(first: Amounts, second: Amounts) -> bool:
    return first.keys() == second.keys() and all(first[name] == second[name] for name in first)


# ---- pods
# --------------------------------------------------------------------------------------------------

_POD_COUNT = "count/pods"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_POD_RESOURCES = frozenset(
    (
        _POD_COUNT,
        "pods",
        *_COMPUTE,
        *(f"requests.{c}" for c in _COMPUTE),
        *(f"limits.{c}" for c in _COMPUTE),
    )
)
_HUGE_PAGES = "hugepages-"
# A quota of these requires every container to specify them.
_MUST_SPECIFY = frozenset(
    name for c in ("cpu", "memory") for name in (c, f"requests.{c}", f"limits.{c}")
)


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@text_cache(1024)
def _is_extended(name: str) -> bool:
    """A custom resource of a node; it can be requested, but never overcommitted."""
    return (
        not _is_native(name)
        and not name.startswith("requests.")
        and not is_qualified_name(f"requests.{name}")
    )


def _pod_matching(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name in _POD_RESOURCES
        or name.startswith((_HUGE_PAGES, "requests." + _HUGE_PAGES))
        or (name.startswith("requests.") and not _is_native(name))
    ]


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    out: Amounts = {"pods": _ONE}
    for name, value in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            out[name] = out[f"requests.{name}"] = value
        elif _is_extended(name):
            out[f"requests.{name}"] = value
    for name in _COMPUTE:
        if name in limits:
            out[f"limits.{name}"] = limits[name]
    return out


def _pod_missing(required: Iterable[str], pod: Object) -> dict[str, list[str]]:
    wanted = _MUST_SPECIFY.intersection(required)
    missing: dict[str, set[str]] = {}
    if wanted:
        for container in podutil.visit_containers(pod.get("spec") or {}, ephemeral=False):
            resources = container.get("resources") or {}
            found = _compute(
                parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
            )
            for name in wanted - found.keys():
                missing.setdefault(name, set()).add(container.get("name", ""))
    return {name: sorted(missing[name]) for name in sorted(missing)}


def count_objects(pod: Object, now: float) -> bool:
    """Whether a pod counts: it has not ended, and its deletion is not overdue."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = pod["metadata"]
    grace = meta.get("deletionGracePeriodSeconds")
    deleted = meta.get("deletionTimestamp")
    return deleted is None or grace is None or now <= parse_rfc3339(deleted) + grace


def _pod_usage(pod: Object, now: float) -> Amounts:
    out: Amounts = {_POD_COUNT: _ONE}
    if not count_objects(pod, now):
        return out
    spec = pod.get("spec") or {}
    overhead = parse_amounts(spec.get("overhead"))
    totals = []
    for part in ("requests", "limits"):
        total: Amounts = {}
        for container in spec.get("containers") or ():
            total = add_amounts(total, parse_amounts((container.get("resources") or {}).get(part)))
        # Init containers run in sequence, before the others.
        for container in spec.get("initContainers") or ():
            total = largest_amounts(
                total, parse_amounts((container.get("resources") or {}).get(part))
            )
        totals.append(add_amounts(total, overhead) if overhead else total)
    out.update(_compute(*totals))
    return out


def _pod_in_scope(selector: Object, pod: Object) -> bool:
    scope, spec = selector.get("scopeName"), pod.get("spec") or {}
    if scope in ("Terminating", "NotTerminating"):
        deadline = spec.get("activeDeadlineSeconds")
        return (deadline is not None and deadline >= 0) == (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return (podutil.qos_class(pod) == "BestEffort") == (scope == "BestEffort")
    if scope == "PriorityClass":
        name, operator = spec.get("priorityClassName", ""), selector.get("operator")
        listed = name in (selector.get("values") or ())
        if operator == "In":
            return bool(name) and listed
        if operator == "NotIn":
            return not name or not listed
        return bool(name) == (operator == "Exists")
    return False


# ---- services, claims, and everything that is only counted
# -----------------------------------------------------------


def _service_usage(service: Object, _now: float) -> Amounts:
    spec = service.get("spec") or {}
    kind, ports = spec.get("type"), Quantity(len(spec.get("ports") or ()))
    return {
        "count/services": _ONE,
        "services": _ONE,
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else ZERO,
        "services.nodeports": ports if kind in ("NodePort", "LoadBalancer") else ZERO,
    }


_BY_CLASS = ".storageclass.storage.k8s.io/"
_CLAIM_RESOURCES = ("persistentvolumeclaims", "requests.storage")
_OF_CLASS = tuple(_BY_CLASS + name for name in _CLAIM_RESOURCES)


def claim_storage_class(claim: Object) -> str:
    """The class of a claim; the old annotation takes precedence over the field."""
    annotations = claim["metadata"].get("annotations") or {}
    if BETA_CLASS in annotations:
        return str(annotations[BETA_CLASS])
    return (claim.get("spec") or {}).get("storageClassName") or ""


def _claim_matching(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name == "count/persistentvolumeclaims"
        or name in _CLAIM_RESOURCES
        or name.endswith(_OF_CLASS)
    ]


def _claim_usage(claim: Object, _now: float) -> Amounts:
    out = {"persistentvolumeclaims": _ONE, "count/persistentvolumeclaims": _ONE}
    request = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get(
        "storage"
    )
    if request is not None:
        out["requests.storage"] = parse_quantity(request).round_up(0)
    name = claim_storage_class(claim)
    if name:
        out.update({name + _BY_CLASS + key: out[key] for key in _CLAIM_RESOURCES if key in out})
    return out


def _among(known: frozenset[str]) -> Callable[[Iterable[str]], list[str]]:
    return lambda names: [name for name in names if name in known]


def _counter(group: str, plural: str, alias: str = "") -> QuotaEvaluator:
    names = frozenset(
        filter(None, (f"count/{plural}.{group}" if group else f"count/{plural}", alias))
    )
    cost = dict.fromkeys(names, _ONE)
    return QuotaEvaluator(group, plural, _among(names), lambda _obj, _now: cost)


_SERVICE_RESOURCES = frozenset(
    ("count/services", "services", "services.nodeports", "services.loadbalancers")
)
_ALIASED = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_EVALUATORS: dict[tuple[str, str], QuotaEvaluator | None] = {
    ("", "pods"): QuotaEvaluator(
        "", "pods", _pod_matching, _pod_usage, False, _pod_in_scope, _pod_missing
    ),
    ("", "services"): QuotaEvaluator(
        "", "services", _among(_SERVICE_RESOURCES), _service_usage, True
    ),
    ("", "persistentvolumeclaims"): QuotaEvaluator(
        "", "persistentvolumeclaims", _claim_matching, _claim_usage, True
    ),
    **{("", plural): _counter("", plural, plural) for plural in _ALIASED},
    # Resources that are not stored are not counted, and neither are events.
    **dict.fromkeys(
        (
            ("", "bindings"),
            ("", "componentstatuses"),
            ("", "events"),
            ("authentication.k8s.io", "tokenreviews"),
            *(
                ("authorization.k8s.io", plural)
                for plural in (
                    "subjectaccessreviews",
                    "selfsubjectaccessreviews",
                    "localsubjectaccessreviews",
                    "selfsubjectrulesreviews",
                )
            ),
        )
    ),
}


@lru_cache(maxsize=1024)
def evaluator_for(group: str, plural: str) -> QuotaEvaluator | None:
    """The evaluator of a resource; None for one that quotas do not support."""
    key = (group, plural)
    return _EVALUATORS[key] if key in _EVALUATORS else _counter(group, plural)


# ---- quotas
# --------------------------------------------------------------------------------------------------


def scope_selectors(spec: Object) -> list[Object]:
    """All scopes of a quota as scope selectors."""
    return [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *((spec.get("scopeSelector") or {}).get("matchExpressions") or ()),
    ]


def in_scopes(evaluator: QuotaEvaluator, selectors: Sequence[Object], obj: Object) -> bool:
    fits = evaluator.in_scope
    return not selectors or (
        fits is not None and all(fits(selector, obj) for selector in selectors)
    )


def exceeded_resources(used: Amounts, requested: Amounts, hard: Amounts) -> list[str]:
    """Resources whose usage would exceed the limit."""
    return [
        name
        for name, value in requested.items()
        if name in hard and (used[name] + value if name in used else value) > hard[name]
    ]


class QuotaTotal:
    """Adds up the usage of a namespace's objects for one quota."""

    def __init__(self, quota: Object, evaluators: Iterable[QuotaEvaluator]) -> None:
        spec = quota.get("spec") or {}
        hard = spec.get("hard") or {}
        self._selectors = scope_selectors(spec)
        self._tracked = {e: names for e in evaluators if (names := frozenset(e.matching(hard)))}
        self.used: Amounts = {name: ZERO for names in self._tracked.values() for name in names}

    @property
    def evaluators(self) -> list[QuotaEvaluator]:
        """The evaluators whose objects must be counted."""
        return list(self._tracked)

    def count(self, evaluator: QuotaEvaluator, obj: Object, now: float) -> None:
        if in_scopes(evaluator, self._selectors, obj):
            tracked, used = self._tracked[evaluator], self.used
            for name, value in evaluator.usage(obj, now).items():
                if name in tracked:
                    used[name] = used[name] + value
