"""What is to be said when somebody writes an object that uses what Windows cannot do. One text for each limit.

Admission and the webhook ask this; both want short, certain answers. So only what is sure on the nodes that a pod may go to
is told, and nothing of what lint merely advises. Pods for Linux are nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from transom.windows.landscape import Group, Landscape
from transom.windows.limits import LIMITS
from transom.windows.match import Hit, Matcher, Steps, holds, path_text, pod_in
from transom.windows.podchecks import CHECKS, Subject, inner, listed
from transom.windows.policy import Policy
from transom.windows.records import ALL_NETWORKS, ALL_RUNTIMES, Limit, Target
from transom.windows.targeting import RuntimeClasses, containers, verdict

Object = Mapping[str, Any]

OLDEST_BUILD: Final = 17763  # of any node that Kubernetes supports
_RANK: Final = {"error": 3, "warning": 2, "info": 1, "none": 0}
_SURE_EFFECTS: Final = ("ignored", "rejected")


class Advice(NamedTuple):
    """A limit that an object meets, where first, and in how many places more."""

    limit: Limit
    steps: Steps
    message: str
    remedy: str
    more: int = 0
    about: str = ""  # "Service web", if it is not the object itself

    @property
    def text(self) -> str:
        where = path_text(self.steps) + (f" (and {self.more} more)" if self.more else "")
        if self.about:
            where = f"{self.about}: {where}"
        return f"{self.limit.id}: {where}: {self.message.rstrip('.')}. {self.remedy}"


class Judgement(NamedTuple):
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


NOTHING: Final = Judgement()


@lru_cache(maxsize=256)
def matcher(target: Target) -> Matcher:
    """Of the limits that hold on such a node and that fields of objects show."""
    return Matcher(limit for limit in LIMITS.values() if limit.severity != "none" and limit.fields and holds(limit, target))


def condition(limit: Limit, target: Target) -> str:
    """On which nodes a limit holds, where the target leaves it open; empty if it holds in any case."""
    parts = []
    if target.runtime is None and limit.runtimes != ALL_RUNTIMES:
        parts.append(f"with {' or '.join(limit.runtimes)}")
    if target.network is None and limit.networks != ALL_NETWORKS:
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


def excused(hit: Hit, spec: Object, at: Steps = ()) -> bool:
    """What the fields of a record cannot say, of a hit in a pod that stands at a place of its object."""
    if hit.limit.id == _TOKEN:
        return _added(spec, hit.steps[len(at) + 2])
    excuse = _EXCUSES.get(hit.limit.id)
    if excuse is None or not isinstance(hit.value, str):
        return False
    for steps, container in containers(spec):
        place = (*at, *steps)
        if hit.steps[: len(place)] == place:
            return excuse(hit.value, container)
    return False


def _added(spec: Object, index: str | int) -> bool:
    """Whether a token is in the volume that admission adds to every pod: that has a record of its own."""
    volumes = listed(spec.get("volumes"))
    return isinstance(index, int) and str(inner(volumes[index], "name")).startswith("kube-api-access-")


def _below_a_mount(path: str, container: Object) -> bool:
    """Then the path exists: Windows takes /etc/app for C:\\etc\\app."""
    mounts = [inner(mount, "mountPath") for mount in listed(container.get("volumeMounts"))]
    return any(isinstance(mount, str) and path.startswith(mount) for mount in mounts)


def _pings_itself(_: str, container: Object) -> bool:
    """`ping -t localhost` is how a Windows container waits."""
    words = " ".join(str(word) for key in ("command", "args") for word in listed(container.get(key)))
    return "localhost" in words or "127.0.0.1" in words


_TOKEN: Final = "WIN-SEC-023"
_EXCUSES: Final[Mapping[str, Callable[[str, Object], bool]]] = {
    "WIN-CTR-004": _below_a_mount,
    "WIN-NET-001": _pings_itself,
}


def seen_in_objects(limit: Limit) -> bool:
    """Whether an object shows a limit to those who write it, without a look at others."""
    return limit.severity != "none" and bool(limit.fields or limit.check in CHECKS)


def _worth_telling(limit: Limit) -> bool:
    """Hints about what may be meant well are lint's; that something has no effect is always worth a line."""
    return _RANK[limit.severity] >= _RANK["warning"] or (limit.severity == "info" and limit.effect in _SURE_EFFECTS)


class Advisor:
    """Judges for the nodes of one cluster, at least one of Windows among them. Made anew when they change."""

    __slots__ = ("_classes", "_landscape", "_policy")

    def __init__(self, landscape: Landscape, policy: Policy, runtime_classes: RuntimeClasses) -> None:
        self._landscape = landscape
        self._policy = policy
        self._classes = runtime_classes

    def judge(self, kind: str, obj: Object, old: Object | None = None, services: Iterable[Object] = ()) -> Judgement:
        """Of a pod, or of something with a template of pods; `services` are those of its namespace.

        A controller's own objects give no warnings: its owner's template has given them. What was refused once is refused
        again, but what an object already had stays allowed, so that it can be changed and deleted.
        """
        meta = obj.get("metadata") or {}
        owned = any(inner(owner, "controller") for owner in listed(meta.get("ownerReferences")))
        going = meta.get("deletionTimestamp") or inner(old, "metadata", "deletionTimestamp")
        if going or (owned and not self._policy.reject):
            return NOTHING
        found = self.about_pods(kind, obj)
        refused = self._refused(found, [] if old is None else self.about_pods(kind, old))
        if owned or not self._policy.warn:
            return Judgement((), tuple(one.text for one in refused))
        if services:
            found += self._of_services(kind, obj, services)
        return self._judgement(found, refused)

    def judge_service(
        self, service: Object, workloads: Iterable[tuple[str, Object]], old: Object | None = None
    ) -> Judgement:
        """Of a Service, for the sake of the first pods for Windows that it sends to among the workloads of its namespace.

        They are looked for only if there is anything to say.
        """
        if not _of_fields("Service", service, self._landscape.groups({})):
            return NOTHING
        chosen = (self._windows(kind, obj) for kind, obj in workloads if _selects(service, _template(kind, obj)))
        groups = next(filter(None, chosen), ())
        found = _once_each(_settled(_of_fields("Service", service, groups)))
        refused = self._refused(found, [] if old is None else _settled(_of_fields("Service", old, groups)))
        return self._judgement(found, refused) if self._policy.warn else Judgement((), tuple(one.text for one in refused))

    def _refused(self, found: list[Advice], before: list[Advice]) -> list[Advice]:
        if not self._policy.reject:
            return []
        had = {one.limit.id for one in before}
        return [one for one in found if one.limit.id not in had and self._policy.rejects(one.limit.id)]

    def _judgement(self, found: list[Advice], refused: list[Advice]) -> Judgement:
        worst: dict[tuple[str, Steps], int] = {}
        for one in found:
            place = one.about, one.steps
            worst[place] = max(worst.get(place, 0), _RANK[one.limit.severity])
        warned = (
            one.text for one in found
            if _worth_telling(one.limit) and one not in refused and _RANK[one.limit.severity] == worst[one.about, one.steps]
        )
        return Judgement(tuple(warned), tuple(one.text for one in refused))

    def about_pods(self, kind: str, obj: Object) -> list[Advice]:
        """What is sure of the pods that an object is or has; nothing if they are not for Windows."""
        held = pod_in(kind, obj)
        if held is None:
            return []
        at, template = held
        spec = template.get("spec")
        said = verdict(template, self._classes)
        if not said.windows or not isinstance(spec, Mapping):
            return []
        groups = self._groups(spec)
        told = [hit for hit in _of_fields("Pod", template, groups) if not excused(hit[0], spec)]
        found = [one._replace(steps=at + one.steps) for one in _settled(told)]
        subject = Subject(spec, said, groups, self._classes, self._landscape.linux)
        found += (one._replace(steps=at + one.steps) for one in _of_checks(subject))
        for i, claim in enumerate(listed(inner(obj, "spec", "volumeClaimTemplates"))):
            place = ("spec", "volumeClaimTemplates", i)
            found += (
                one._replace(steps=place + one.steps)
                for one in _settled(_of_fields("PersistentVolumeClaim", claim, groups))
            )
        return _once_each(found)

    def _groups(self, spec: Object) -> Sequence[Group]:
        """The nodes a pod may go to; all of Windows if its selector leaves none."""
        return self._landscape.groups(spec) or self._landscape.groups({})

    def _windows(self, kind: str, obj: Object) -> Sequence[Group]:
        template = _template(kind, obj)
        spec = inner(template, "spec")
        if not isinstance(template, Mapping) or not isinstance(spec, Mapping) or not verdict(template, self._classes).windows:
            return ()
        return self._groups(spec)

    def _of_services(self, kind: str, obj: Object, services: Iterable[Object]) -> list[Advice]:
        """Services are often written before the pods they send to; then the pods are the first to show what it means."""
        groups = self._windows(kind, obj)
        template = _template(kind, obj)
        return [
            one._replace(about=f"Service {service['metadata'].get('name', '')}")
            for service in services if groups and _selects(service, template)
            for one in _once_each(_settled(_of_fields("Service", service, groups)))
        ]


def _template(kind: str, obj: Object) -> Object | None:
    held = pod_in(kind, obj)
    return held[1] if held is not None else None


def _selects(service: Object, template: Object | None) -> bool:
    selector, labels = inner(service, "spec", "selector"), inner(template, "metadata", "labels")
    if not isinstance(selector, Mapping) or not selector or not isinstance(labels, Mapping):
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def _of_fields(kind: str, obj: Object, groups: Sequence[Group]) -> list[tuple[Hit, bool]]:
    """What fields of an object meet, and whether that is sure on the nodes it was found for."""
    found: dict[tuple[str, Steps], tuple[Hit, bool]] = {}
    for target, _ in groups:
        for hit in matcher(target).find(kind, obj):
            key = (hit.limit.id, hit.steps)
            sure = not condition(hit.limit, target)
            if key not in found or (sure and not found[key][1]):
                found[key] = (hit, sure)
    return list(found.values())


def _settled(told: list[tuple[Hit, bool]]) -> list[Advice]:
    """What is sure; and where each runtime has a limit of its own and nobody knows the runtime, the worst of them."""
    perhaps: dict[Steps, list[Hit]] = {}
    for hit, sure in told:
        if not sure:
            perhaps.setdefault(hit.steps, []).append(hit)
    chosen = {id(hit) for hit, sure in told if sure}
    for hits in perhaps.values():
        runtimes = {runtime for hit in hits for runtime in hit.limit.runtimes}
        if runtimes == set(ALL_RUNTIMES) and all(hit.limit.runtimes != ALL_RUNTIMES for hit in hits):
            chosen.add(id(max(hits, key=lambda hit: _RANK[hit.limit.severity])))
    return [Advice(hit.limit, hit.steps, hit.limit.title, hit.limit.remedy) for hit, _ in told if id(hit) in chosen]


def _of_checks(pod: Subject) -> Iterator[Advice]:
    for name, check in CHECKS.items():
        limits = _BY_CHECK[name]
        for shown in check(pod):
            for limit in limits:
                if shown.limit not in ("", limit.id):
                    continue
                if any(holds(limit, target) and not condition(limit, target) for target, _ in pod.groups):
                    yield Advice(limit, shown.steps, shown.message, shown.remedy or limit.remedy)
                    break


_BY_CHECK: Final[Mapping[str, tuple[Limit, ...]]] = {
    name: tuple(limit for limit in LIMITS.values() if limit.check == name) for name in CHECKS
}


def _once_each(found: list[Advice]) -> list[Advice]:
    """Each limit once, at its first place."""
    first: dict[str, Advice] = {}
    for one in found:
        known = first.get(one.limit.id)
        first[one.limit.id] = one if known is None else known._replace(more=known.more + 1)
    return list(first.values())
