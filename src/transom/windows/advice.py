"""Warnings for objects that use features that Windows does not support. One message for each limit.

Admission and the webhook use this module; both need short, certain results. So it reports only
limits that are certain on the possible nodes of a pod, and no hints of lint. Pods for Linux are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from transom.windows.limits import LIMITS
from transom.windows.match import LimitMatch, LimitMatcher, Steps, pod_in, record_holds, steps_text
from transom.windows.podchecks import CHECKS, CheckedPod, inner_pod, list_or_empty
from transom.windows.policy import WarningPolicy
from transom.windows.records import ALL_RUNTIMES, NodeTarget, Release, WindowsLimit
from transom.windows.target_nodes import NodeGroup, TargetNodes
from transom.windows.targeting import RuntimeClasses, find_target_os, pod_containers
from transom.windows.wording import documentation_page

Object = Mapping[str, Any]

OLDEST_BUILD: Final = 17763  # the minimum of all supported nodes
_RANK: Final = {"error": 3, "warning": 2, "info": 1, "none": 0}
_SURE_EFFECTS: Final = ("ignored", "rejected")


class Advice(NamedTuple):
    """A limit that applies to an object, its first place, and the number of further places."""

    limit: WindowsLimit
    steps: Steps
    message: str
    remedy: str
    more: int = 0
    about: str = ""  # "Service web", if it is another object

    def text(self, release: Release) -> str:
        """With a link to the documentation of this release."""
        where = steps_text(self.steps) + (f" (and {self.more} more)" if self.more else "")
        if self.about:
            where = f"{self.about}: {where}"
        return (
            f"{self.limit.id}: {where}: {self.message.rstrip('.')}. {self.remedy} "
            f"See {documentation_page(self.limit, release)}"
        )


class AdvisorDecision(NamedTuple):
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


NOTHING: Final = AdvisorDecision()


@lru_cache(maxsize=256)
def limit_matcher(target: NodeTarget) -> LimitMatcher:
    """The matcher for limits that apply to such a node and are visible in fields of objects."""
    return LimitMatcher(
        limit
        for limit in LIMITS.values()
        if limit.severity != "none" and limit.fields and record_holds(limit, target)
    )


# The networks of most Windows nodes: a limit that applies to all of them needs no condition.
_COMMON_NETWORKS: Final = frozenset(("l2bridge", "l2tunnel", "overlay"))


def limit_condition(limit: WindowsLimit, target: NodeTarget) -> str:
    """The nodes on which a limit applies, if the target leaves it open; empty if it always applies."""
    parts = []
    if target.runtime is None and limit.runtimes != ALL_RUNTIMES:
        parts.append(f"with {' or '.join(limit.runtimes)}")
    if target.network is None and not _COMMON_NETWORKS.issubset(limit.networks):
        parts.append(f"in {' or '.join(limit.networks)} networks")
    first, last = limit.builds
    if target.build is None and (first > OLDEST_BUILD or last is not None):
        if last is None:
            parts.append(f"of build {first} or later")
        elif first == 0:
            parts.append(f"of builds up to {last}")
        else:
            parts.append(f"of builds {first} to {last}" if first != last else f"of build {first}")
    return " ".join(parts)


def is_exempt(hit: LimitMatch, spec: Object, at: Steps = ()) -> bool:
    """Exceptions that the fields of a record cannot express, for a match in a pod at a place of its
    object.
    """
    if hit.limit.id == _TOKEN:
        return _added(spec, hit.steps[len(at) + 2])
    exempt = _EXCUSES.get(hit.limit.id)
    if exempt is None or not isinstance(hit.value, str):
        return False
    for steps, container in pod_containers(spec):
        place = (*at, *steps)
        if hit.steps[: len(place)] == place:
            return exempt(hit.value, container)
    return False


def _added(spec: Object, index: str | int) -> bool:
    """Whether a token is in the volume that admission adds to every pod: that has a separate
    record.
    """
    volumes = list_or_empty(spec.get("volumes"))
    return isinstance(index, int) and str(inner_pod(volumes[index], "name")).startswith(
        "kube-api-access-"
    )


def _below_a_mount(path: str, container: Object) -> bool:
    """Whether the path exists because of a mount: Windows resolves /etc/app to C:\\etc\\app."""
    mounts = [
        inner_pod(mount, "mountPath") for mount in list_or_empty(container.get("volumeMounts"))
    ]
    return any(isinstance(mount, str) and path.startswith(mount) for mount in mounts)


def _pings_itself(_: str, container: Object) -> bool:
    """`ping -t localhost` is a common way to wait in a Windows container."""
    words = " ".join(
        str(word) for key in ("command", "args") for word in list_or_empty(container.get(key))
    )
    return "localhost" in words or "127.0.0.1" in words


_TOKEN: Final = "WIN-SEC-023"
_EXCUSES: Final[Mapping[str, Callable[[str, Object], bool]]] = {
    "WIN-CTR-004": _below_a_mount,
    "WIN-NET-001": _pings_itself,
}


def _is_relevant(limit: WindowsLimit) -> bool:
    """Whether to report it: lint reports hints about possibly intended settings, but settings
    without effect are always reported.
    """
    return _RANK[limit.severity] >= _RANK["warning"] or (
        limit.severity == "info" and limit.effect in _SURE_EFFECTS
    )


class Advisor:
    """Checks objects for the nodes of one cluster with at least one Windows node. Rebuilt when the
    nodes change.
    """

    __slots__ = ("_classes", "_policy", "_target_nodes")

    def __init__(
        self, target_nodes: TargetNodes, policy: WarningPolicy, runtime_classes: RuntimeClasses
    ) -> None:
        self._target_nodes = target_nodes
        self._policy = policy
        self._classes = runtime_classes

    def review(
        self, kind: str, obj: Object, old: Object | None = None, services: Iterable[Object] = ()
    ) -> AdvisorDecision:
        """Checks a pod, or an object with a pod template; `services` are those of its namespace.

        Objects of a controller cause no warnings: the template of the owner has caused them. They
        are still rejected, but existing settings of an object stay allowed, so that it can be
        changed and deleted.
        """
        meta = obj.get("metadata") or {}
        owned = any(
            inner_pod(owner, "controller") for owner in list_or_empty(meta.get("ownerReferences"))
        )
        going = meta.get("deletionTimestamp") or inner_pod(old, "metadata", "deletionTimestamp")
        if going or (owned and not self._policy.reject):
            return NOTHING
        found = self.about_pods(kind, obj)
        refused = self._refused(found, [] if old is None else self.about_pods(kind, old))
        if owned or not self._policy.warn:
            return AdvisorDecision((), self._texts(refused))
        if services:
            found += self._of_services(kind, obj, services)
        return self._decision(found, refused)

    def review_service(
        self, service: Object, workloads: Iterable[tuple[str, Object]], old: Object | None = None
    ) -> AdvisorDecision:
        """Checks a Service for the first Windows pods that it selects among the workloads of its
        namespace.

        The pods are searched only if there is anything to report.
        """
        if not _of_fields("Service", service, self._target_nodes.groups({})):
            return NOTHING
        chosen = (
            self._windows(kind, obj)
            for kind, obj in workloads
            if _selects(service, _template(kind, obj))
        )
        groups = next(filter(None, chosen), ())
        found = _once_each(_settled(_of_fields("Service", service, groups)))
        refused = self._refused(
            found, [] if old is None else _settled(_of_fields("Service", old, groups))
        )
        return (
            self._decision(found, refused)
            if self._policy.warn
            else AdvisorDecision((), self._texts(refused))
        )

    def _refused(self, found: list[Advice], before: list[Advice]) -> list[Advice]:
        if not self._policy.reject:
            return []
        had = {one.limit.id for one in before}
        return [
            one for one in found if one.limit.id not in had and self._policy.rejects(one.limit.id)
        ]

    def _decision(self, found: list[Advice], refused: list[Advice]) -> AdvisorDecision:
        worst: dict[tuple[str, Steps], int] = {}
        for one in found:
            place = one.about, one.steps
            worst[place] = max(worst.get(place, 0), _RANK[one.limit.severity])
        warned = (
            one
            for one in found
            if _is_relevant(one.limit)
            and one not in refused
            and _RANK[one.limit.severity] == worst[one.about, one.steps]
        )
        return AdvisorDecision(self._texts(warned), self._texts(refused))

    def _texts(self, found: Iterable[Advice]) -> tuple[str, ...]:
        release = self._target_nodes.release
        return tuple(one.text(release) for one in found)

    def about_pods(self, kind: str, obj: Object) -> list[Advice]:
        """The certain limits of the pods of an object; none if they are not for Windows."""
        held = pod_in(kind, obj)
        if held is None:
            return []
        at, template = held
        spec = template.get("spec")
        target = find_target_os(template, self._classes)
        if not target.windows or not isinstance(spec, Mapping):
            return []
        groups = self._groups(spec)
        hits = [hit for hit in _of_fields("Pod", template, groups) if not is_exempt(hit[0], spec)]
        found = [one._replace(steps=at + one.steps) for one in _settled(hits)]
        subject = CheckedPod(spec, target, groups, self._classes, self._target_nodes.linux)
        found += (one._replace(steps=at + one.steps) for one in _of_checks(subject))
        for i, claim in enumerate(list_or_empty(inner_pod(obj, "spec", "volumeClaimTemplates"))):
            place = ("spec", "volumeClaimTemplates", i)
            found += (
                one._replace(steps=place + one.steps)
                for one in _settled(_of_fields("PersistentVolumeClaim", claim, groups))
            )
        return _once_each(found)

    def _groups(self, spec: Object) -> Sequence[NodeGroup]:
        """The possible nodes of a pod; all Windows nodes if its selector matches none."""
        return self._target_nodes.groups(spec) or self._target_nodes.groups({})

    def _windows(self, kind: str, obj: Object) -> Sequence[NodeGroup]:
        template = _template(kind, obj)
        spec = inner_pod(template, "spec")
        if (
            not isinstance(template, Mapping)
            or not isinstance(spec, Mapping)
            or not find_target_os(template, self._classes).windows
        ):
            return ()
        return self._groups(spec)

    def _of_services(self, kind: str, obj: Object, services: Iterable[Object]) -> list[Advice]:
        """Services are often created before their pods; then the limits are reported for the pods."""
        groups = self._windows(kind, obj)
        template = _template(kind, obj)
        return [
            one._replace(about=f"Service {service['metadata'].get('name', '')}")
            for service in services
            if groups and _selects(service, template)
            for one in _once_each(_settled(_of_fields("Service", service, groups)))
        ]


def _template(kind: str, obj: Object) -> Object | None:
    held = pod_in(kind, obj)
    return held[1] if held is not None else None


def _selects(service: Object, template: Object | None) -> bool:
    selector, labels = (
        inner_pod(service, "spec", "selector"),
        inner_pod(template, "metadata", "labels"),
    )
    if not isinstance(selector, Mapping) or not selector or not isinstance(labels, Mapping):
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def _of_fields(
    kind: str, obj: Object, groups: Sequence[NodeGroup]
) -> list[tuple[LimitMatch, bool]]:
    """The limits that fields of an object match, and whether that is certain on the given nodes."""
    found: dict[tuple[str, Steps], tuple[LimitMatch, bool]] = {}
    for target, _ in groups:
        for hit in limit_matcher(target).find(kind, obj):
            key = (hit.limit.id, hit.steps)
            sure = not limit_condition(hit.limit, target)
            if key not in found or (sure and not found[key][1]):
                found[key] = (hit, sure)
    return list(found.values())


def _settled(hits: list[tuple[LimitMatch, bool]]) -> list[Advice]:
    """The certain limits; if each runtime has a different limit and the runtime is unknown, the
    most severe one.
    """
    perhaps: dict[Steps, list[LimitMatch]] = {}
    for hit, sure in hits:
        if not sure:
            perhaps.setdefault(hit.steps, []).append(hit)
    chosen = {id(hit) for hit, sure in hits if sure}
    for unsure in perhaps.values():
        runtimes = {runtime for hit in unsure for runtime in hit.limit.runtimes}
        if runtimes == set(ALL_RUNTIMES) and all(
            hit.limit.runtimes != ALL_RUNTIMES for hit in unsure
        ):
            chosen.add(id(max(unsure, key=lambda hit: _RANK[hit.limit.severity])))
    return [
        Advice(hit.limit, hit.steps, hit.limit.title, hit.limit.remedy)
        for hit, _ in hits
        if id(hit) in chosen
    ]


def _of_checks(pod: CheckedPod) -> Iterator[Advice]:
    for name, check in CHECKS.items():
        limits = _BY_CHECK[name]
        for shown in check(pod):
            for limit in limits:
                if shown.limit not in ("", limit.id):
                    continue
                if any(
                    record_holds(limit, target) and not limit_condition(limit, target)
                    for target, _ in pod.groups
                ):
                    yield Advice(limit, shown.steps, shown.message, shown.remedy or limit.remedy)
                    break


_BY_CHECK: Final[Mapping[str, tuple[WindowsLimit, ...]]] = {
    name: tuple(limit for limit in LIMITS.values() if limit.check == name) for name in CHECKS
}


def _once_each(found: list[Advice]) -> list[Advice]:
    """Each limit once, at its first place."""
    first: dict[str, Advice] = {}
    for one in found:
        known = first.get(one.limit.id)
        first[one.limit.id] = one if known is None else known._replace(more=known.more + 1)
    return list(first.values())
