"""Resource quota arithmetic: which quotas match an object, what the object uses, and what is left.

Admission charges new objects, the quota controller recounts them; both use this module, so that
they agree. Amounts are `Quantity` values by resource name. Does not read a clock: the caller passes
the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial

from transom.kit.caching import text_cache
from transom.kit.clock import parse_rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.quantity import ZERO, Quantity, parse_quantity
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.names import is_qualified_name

Amounts = dict[str, Quantity]
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_ONE = Quantity(1)


class QuotaRules(NamedTuple):
    """What quotas of a release count."""

    sidecars: bool  # restartable init containers run beside the containers
    pod_level: bool  # resources of a pod replace those of its containers
    optional_limits: bool  # the overhead of a pod adds to limits that it has only
    resize: bool  # the status of a pod says what its containers have
    deadlines: bool  # an update that sets a deadline moves the pod to another scope
    chosen_node_ports: bool  # load balancers may have no node ports
    expansion: bool  # the status of a claim says what it was expanded to
    attributes_classes: bool  # claims have the scope VolumeAttributesClass
    device_classes: bool  # resource claims are counted by device class


def quota_rules(features: FeatureSet) -> QuotaRules:
    release = features.release
    return QuotaRules(
        sidecars=features.enabled("SidecarContainers"),
        pod_level=features.enabled("PodLevelResources"),
        optional_limits=has_behaviour(release, "QuotaOptionalLimits"),
        resize=features.enabled("InPlacePodVerticalScaling"),
        deadlines=has_behaviour(release, "QuotaCountsDeadlines"),
        chosen_node_ports=has_behaviour(release, "AllocateLoadBalancerNodePorts"),
        expansion=features.enabled("RecoverVolumeExpansionFailure"),
        attributes_classes=features.enabled("VolumeAttributesClass"),
        device_classes=features.enabled("DynamicResourceAllocation")
        and has_behaviour(release, "QuotaOfDeviceClasses"),
    )


RULES_OF_1_20 = quota_rules(FeatureSet(DEFAULT))


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
    # Required resources that the object does not specify, and the containers that lack them.
    missing: Callable[[Iterable[str], Object], dict[str, list[str]]] | None = None
    subresources: tuple[str, ...] = ()  # whose updates can increase the usage
    # (new, old): whether this update can increase the usage; None: all that `updates` allows
    concerns: Callable[[Object, Object], bool] | None = None


# ---- amounts ----


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


# ---- pods ----

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


def _has_pod_level(spec: Object) -> bool:
    """Whether the pod itself requests or limits something."""
    resources = spec.get("resources") or {}
    return any(
        name in ("cpu", "memory") or name.startswith(_HUGE_PAGES)
        for part in ("requests", "limits")
        for name in resources.get(part) or ()
    )


def _pod_missing(rules: QuotaRules, required: Iterable[str], pod: Object) -> dict[str, list[str]]:
    wanted = _MUST_SPECIFY.intersection(required)
    missing: dict[str, set[str]] = {}
    if wanted and not (rules.pod_level and _has_pod_level(pod.get("spec") or {})):
        for container in podutil.visit_containers(pod.get("spec") or {}, ephemeral=False):
            resources = container.get("resources") or {}
            given = _compute(
                parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
            )
            for name in wanted - given.keys():
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


def _pod_usage(rules: QuotaRules, pod: Object, now: float) -> Amounts:
    out: Amounts = {_POD_COUNT: _ONE}
    if not count_objects(pod, now):
        return out
    spec = pod.get("spec") or {}
    overhead = parse_amounts(spec.get("overhead"))
    totals = []
    for part in ("requests", "limits"):
        total = _containers_total(rules, pod, part)
        if rules.pod_level:
            whole = parse_amounts((spec.get("resources") or {}).get(part))
            total |= {
                name: value
                for name, value in whole.items()
                if name in ("cpu", "memory") or name.startswith(_HUGE_PAGES)
            }
        more = overhead
        if part == "limits" and rules.optional_limits:
            more = {n: value for n, value in overhead.items() if total.get(n, ZERO).sign}
        totals.append(add_amounts(total, more) if more else total)
    out.update(_compute(*totals))
    return out


def _containers_total(rules: QuotaRules, pod: Object, part: str) -> Amounts:
    """The largest amounts that the containers of a pod use at the same time."""
    spec, held = pod.get("spec") or {}, _held_resources(pod) if rules.resize else {}
    infeasible = bool(held) and _is_resize_infeasible(pod)

    def amounts_of(container: Object) -> Amounts:
        wanted = parse_amounts((container.get("resources") or {}).get(part))
        status = held.get(container.get("name", ""))
        if status is None:
            return wanted
        has = parse_amounts((status.get("resources") or {}).get(part))
        if part == "requests":
            has = largest_amounts(has, parse_amounts(status.get("allocatedResources")))
        return has if infeasible else largest_amounts(wanted, has)

    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = add_amounts(total, amounts_of(container))
    # Init containers run in sequence, before the others; sidecars keep running.
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        during = add_amounts(sidecars, amounts_of(container))
        if rules.sidecars and podutil.is_restartable_init_container(container):
            total = add_amounts(total, amounts_of(container))
            sidecars = during
        largest = largest_amounts(largest, during)
    return largest_amounts(total, largest)


def _held_resources(pod: Object) -> dict[str, Object]:
    """The statuses of containers that say what they have."""
    status = pod.get("status") or {}
    return {
        found.get("name", ""): found
        for key in ("containerStatuses", "initContainerStatuses")
        for found in status.get(key) or ()
        if "resources" in found or "allocatedResources" in found
    }


def _is_resize_infeasible(pod: Object) -> bool:
    condition = podutil.find_condition(pod, "PodResizePending")
    return condition is not None and condition.get("reason") == "Infeasible"


def _has_deadline(pod: Object) -> bool:
    deadline = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def _changes_deadline(new: Object, old: Object) -> bool:
    return _has_deadline(new) != _has_deadline(old)


def _reaches_other_namespaces(spec: Object) -> bool:
    """Whether an affinity rule of a pod may select pods of other namespaces."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or {}).get(kind) or {}
        terms = [
            *(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
            *(
                weighted.get("podAffinityTerm") or {}
                for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            ),
        ]
        if any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms):
            return True
    return False


def _pod_in_scope(rules: QuotaRules, selector: Object, pod: Object) -> bool:
    scope, spec = selector.get("scopeName"), pod.get("spec") or {}
    if scope in ("Terminating", "NotTerminating"):
        return _has_deadline(pod) == (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        quality = podutil.qos_class(pod, rules.pod_level)
        return (quality == "BestEffort") == (scope == "BestEffort")
    if scope == "CrossNamespacePodAffinity":
        return _reaches_other_namespaces(spec) == (selector.get("operator") == "Exists")
    if scope == "PriorityClass":
        return _names_match(selector, {spec.get("priorityClassName") or ""} - {""})
    return False


def _names_match(selector: Object, names: set[str]) -> bool:
    """Whether the class that an object names, or one of them, is selected."""
    operator, values = selector.get("operator"), set(selector.get("values") or ())
    if operator == "In":
        return bool(names & values)
    if operator == "NotIn":
        return not names or bool(names - values)
    return bool(names) == (operator == "Exists")


# ---- services, claims, and everything that is only counted ----


def _service_usage(rules: QuotaRules, service: Object, _now: float) -> Amounts:
    spec = service.get("spec") or {}
    kind, given = spec.get("type"), spec.get("ports") or ()
    allocates = spec.get("allocateLoadBalancerNodePorts") is not False
    if kind == "LoadBalancer" and rules.chosen_node_ports and not allocates:
        given = [port for port in given if port.get("nodePort")]
    ports = Quantity(len(given))
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


def _claim_usage(rules: QuotaRules, claim: Object, _now: float) -> Amounts:
    out = {"persistentvolumeclaims": _ONE, "count/persistentvolumeclaims": _ONE}
    request = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get(
        "storage"
    )
    if request is not None:
        out["requests.storage"] = parse_quantity(request).round_up(0)
        grown = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
        if rules.expansion and grown is not None:
            out["requests.storage"] = max(
                out["requests.storage"], parse_quantity(grown).round_up(0)
            )
    name = claim_storage_class(claim)
    if name:
        out.update({name + _BY_CLASS + key: out[key] for key in _CLAIM_RESOURCES if key in out})
    return out


def _attributes_classes(claim: Object) -> set[str]:
    """All classes that a claim has, wants or is being moved to."""
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    return {
        spec.get("volumeAttributesClassName") or "",
        status.get("currentVolumeAttributesClassName") or "",
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName") or "",
    } - {""}


def _claim_in_scope(selector: Object, claim: Object) -> bool:
    return selector.get("scopeName") == "VolumeAttributesClass" and _names_match(
        selector, _attributes_classes(claim)
    )


_DEVICE_CLAIMS = "count/resourceclaims.resource.k8s.io"
_BY_DEVICE_CLASS = ".deviceclass.resource.k8s.io/devices"
_MOST_DEVICES = 32  # of one claim, which all devices of a class may be


def _device_claim_matching(names: Iterable[str]) -> list[str]:
    return [name for name in names if name == _DEVICE_CLAIMS or name.endswith(_BY_DEVICE_CLASS)]


def _device_count(request: Object) -> Quantity:
    mode = request.get("allocationMode") or "ExactCount"
    counts = {"ExactCount": request.get("count") or 1, "All": _MOST_DEVICES}
    return Quantity(counts.get(mode, 0))


def _device_claim_usage(claim: Object, _now: float) -> Amounts:
    """Devices by class. Of alternatives, the most that each class may be asked for is counted."""
    out: Amounts = {_DEVICE_CLAIMS: _ONE}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        wanted: Amounts = {}
        # Older versions of the API have no `exactly`: the fields are those of the request.
        for choice in request.get("firstAvailable") or (request.get("exactly") or request,):
            if choice.get("deviceClassName"):
                name = choice["deviceClassName"] + _BY_DEVICE_CLASS
                wanted = largest_amounts(wanted, {name: _device_count(choice)})
        out = add_amounts(out, wanted)
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
_COUNTED: dict[tuple[str, str], QuotaEvaluator | None] = {
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


def _pod_evaluator(rules: QuotaRules) -> QuotaEvaluator:
    return QuotaEvaluator(
        "",
        "pods",
        _pod_matching,
        partial(_pod_usage, rules),
        rules.deadlines,
        partial(_pod_in_scope, rules),
        partial(_pod_missing, rules),
        ("resize",) if rules.resize else (),
        _changes_deadline,
    )


def _service_evaluator(rules: QuotaRules) -> QuotaEvaluator:
    usage = partial(_service_usage, rules)
    return QuotaEvaluator("", "services", _among(_SERVICE_RESOURCES), usage, True)


def _claim_evaluator(rules: QuotaRules) -> QuotaEvaluator:
    return QuotaEvaluator(
        "",
        "persistentvolumeclaims",
        _claim_matching,
        partial(_claim_usage, rules),
        True,
        _claim_in_scope if rules.attributes_classes else None,
    )


def _device_claim_evaluator(rules: QuotaRules) -> QuotaEvaluator:
    group, plural = "resource.k8s.io", "resourceclaims"
    if not rules.device_classes:
        return _counter(group, plural)
    return QuotaEvaluator(group, plural, _device_claim_matching, _device_claim_usage, True)


_MEASURED: dict[tuple[str, str], Callable[[QuotaRules], QuotaEvaluator]] = {
    ("", "pods"): _pod_evaluator,
    ("", "services"): _service_evaluator,
    ("", "persistentvolumeclaims"): _claim_evaluator,
    ("resource.k8s.io", "resourceclaims"): _device_claim_evaluator,
}


@lru_cache(maxsize=1024)
def evaluator_for(
    group: str, plural: str, rules: QuotaRules = RULES_OF_1_20
) -> QuotaEvaluator | None:
    """The evaluator of a resource; None for one that quotas do not support."""
    key = (group, plural)
    if key in _MEASURED:
        return _MEASURED[key](rules)
    return _COUNTED[key] if key in _COUNTED else _counter(group, plural)


# ---- quotas ----


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
