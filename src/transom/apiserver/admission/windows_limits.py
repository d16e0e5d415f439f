"""WindowsLimits: warns about Windows pods that use unsupported features, and rejects those that the
administrator configured.

Not a plugin of Kubernetes. It changes nothing but runs in the mutating phase, because fields
unknown to the release that identify a pod as a Windows pod (`spec.os`) are dropped later.

`transom.windows` defines the limitations; this module selects the requests to check, and supplies
the stored nodes, RuntimeClasses, Services and workloads. The registry is loaded with the first
Windows pod, so clusters without any do not pay for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object
from transom.store.api import StoreEvent, Subscription
from transom.windows.policy import WarningPolicy

# The registry of limitations is loaded with the first Windows pod.
if TYPE_CHECKING:
    from transom.windows import advice, releases, target_nodes, targeting
else:
    advice = lazy_import("transom.windows.advice")
    target_nodes = lazy_import("transom.windows.target_nodes")
    releases = lazy_import("transom.windows.releases")
    targeting = lazy_import("transom.windows.targeting")

# Kinds with a pod template, and the path to its pod spec.
_TEMPLATES: Final = {
    "/Pod": ("spec",),
    "/PodTemplate": ("template", "spec"),
    "/ReplicationController": ("spec", "template", "spec"),
    "apps/ReplicaSet": ("spec", "template", "spec"),
    "apps/Deployment": ("spec", "template", "spec"),
    "apps/StatefulSet": ("spec", "template", "spec"),
    "apps/DaemonSet": ("spec", "template", "spec"),
    "batch/Job": ("spec", "template", "spec"),
    "batch/CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
_SERVICE: Final = "/Service"
_DEBUGGING: Final = "ephemeralcontainers"
# The owners of the pods behind a Service: (group, plural); pods without an owner are last.
_WORKLOADS: Final = (
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
    ("", "pods"),
)
# The number of objects of each kind in the namespace that are examined for a warning about a
# Service.
_MOST_NEIGHBOURS: Final = 300


class WindowsLimits(MutatingPlugin):
    name = "WindowsLimits"
    thread_safe = False

    def __init__(
        self, objects: ObjectStore, resources: ResourceRegistry, release: str, policy: WarningPolicy
    ) -> None:
        self._objects = objects
        self._resources = resources
        self._release = release
        self._policy = policy
        self._nodes = _Nodes(objects, resources)
        self._advisor: advice.Advisor | None = None

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = resource.kind.key
        if subresource:
            return key == "/Pod" and subresource == _DEBUGGING
        return operation in ("CREATE", "UPDATE") and (key in _TEMPLATES or key == _SERVICE)

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        rounds = attributes.rounds
        if rounds is not None and rounds.wanted and not rounds.second:
            return None  # the object is checked again after webhooks changed it
        key = attributes.resource.kind.key
        if key == _SERVICE:
            review = self._service(attributes)
        else:
            spec = attributes.obj
            for step in _TEMPLATES[key]:
                spec = spec.get(step)
                if not spec:
                    return None
            if not targeting.possible_systems(spec):
                return None
            review = (
                self._debugging(attributes) if attributes.subresource else self._pods(attributes)
            )
        if review is None:
            return None
        if attributes.ctx.large:
            return self._report_later(attributes, review)
        self._report(attributes, review())
        return None

    async def _report_later(
        self, attributes: Attributes, review: Callable[[], advice.AdvisorDecision]
    ) -> None:
        self._report(attributes, await self._objects.compute(attributes.ctx, review))

    def _report(self, attributes: Attributes, decision: advice.AdvisorDecision) -> None:
        for text in decision.warnings:
            attributes.ctx.warn(text)
        if decision.refusals:
            raise attributes.forbidden("; ".join(decision.refusals))

    def _pods(self, attributes: Attributes) -> Callable[[], advice.AdvisorDecision]:
        advisor, kind = self._current(), attributes.resource.kind.kind
        if not self._nodes.any:
            return partial(advisor.review, kind, attributes.obj, attributes.old, ())
        services = self._resources.require("", "v1", "services")
        load, is_slow = self._objects.to_load(services, attributes.namespace, _MOST_NEIGHBOURS)
        attributes.ctx.large = attributes.ctx.large or is_slow
        return lambda: advisor.review(kind, attributes.obj, attributes.old, load())

    def _debugging(self, attributes: Attributes) -> Callable[[], advice.AdvisorDecision]:
        """A user who adds a container to a running pod gets warnings about that container only."""
        new, old = ({**pod, "metadata": {}} for pod in (attributes.obj, attributes.old or {}))
        advisor = self._current()

        def review() -> advice.AdvisorDecision:
            decision, known = (
                advisor.review("Pod", new, old),
                frozenset(advisor.review("Pod", old).warnings),
            )
            return decision._replace(
                warnings=tuple(text for text in decision.warnings if text not in known)
            )

        return review

    def _service(self, attributes: Attributes) -> Callable[[], advice.AdvisorDecision] | None:
        """Only if there are Windows nodes, and only for pods of the namespace that are definitely
        Windows pods.
        """
        if not attributes.obj["spec"].get("selector") or not self._nodes.any:
            return None
        # The store may be read on the event loop only; decoding what it returns may take long.
        found = []
        for group, plural in _WORKLOADS:
            resource = self._resources.require(group, "v1", plural)
            load, is_slow = self._objects.to_load(resource, attributes.namespace, _MOST_NEIGHBOURS)
            attributes.ctx.large = attributes.ctx.large or is_slow
            found.append((resource.kind.kind, load))
        workloads = _workloads(found)
        return partial(self._current().review_service, attributes.obj, workloads, attributes.old)

    def _runtime_class(self, name: str) -> Object | None:
        return self._objects.find(
            self._resources.require("node.k8s.io", "v1", "runtimeclasses"), "", name
        )

    def _current(self) -> advice.Advisor:
        """Checks against the current Windows nodes; if there are none, against those that the
        release supports.
        """
        if self._advisor is None or self._nodes.changed():
            found = target_nodes.target_nodes_of_cluster(self._nodes.all())
            if not found.nodes:
                found = target_nodes.target_nodes_from_options(
                    releases.parse_release_version(self._release)
                )
            self._advisor = advice.Advisor(found, self._policy, self._runtime_class)
        return self._advisor


def _workloads(
    found: Sequence[tuple[str, Callable[[], list[Object]]]],
) -> Iterator[tuple[str, Object]]:
    for kind, load in found:
        for obj in load():
            if not obj["metadata"].get("ownerReferences"):
                yield kind, obj


class _Nodes:
    """The stored nodes, and whether a property that limitations depend on has changed; heartbeats
    do not count.
    """

    def __init__(self, objects: ObjectStore, resources: ResourceRegistry) -> None:
        self._objects = objects
        self._resource = resources.require("", "v1", "nodes")
        self._subscription: Subscription | None = None
        self._node_facts: dict[str, tuple[object, ...]] = {}  # by key
        self._windows: set[str] = set()
        self._changed = False

    @property
    def any(self) -> bool:
        """Whether there are Windows nodes."""
        self._follow()
        return bool(self._windows)

    def all(self) -> list[Object]:
        self._follow()
        self._changed = False
        return self._objects.objects(self._resource)

    def changed(self) -> bool:
        return self._changed

    def _follow(self) -> None:
        if self._subscription is not None:
            return
        store = self._objects.store
        prefix = self._resource.key_prefix("")
        self._subscription = store.watch(prefix, store.revision, self._on_events)
        for node in self._objects.objects(self._resource):
            self._note(self._resource.key("", node["metadata"]["name"]), node)

    def _on_events(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            if event.record is None:
                self._changed = self._node_facts.pop(event.key, None) is not None or self._changed
                self._windows.discard(event.key)
            else:
                self._note(event.key, self._objects.decode(self._resource, event.record))

    def _note(self, key: str, node: Object) -> None:
        meta, info = node["metadata"], (node.get("status") or {}).get("nodeInfo") or {}
        facts = (
            meta.get("labels"),
            meta.get("annotations"),
            (node.get("spec") or {}).get("taints"),
            info,
        )
        if self._node_facts.get(key) != facts:
            self._node_facts[key] = facts
            self._changed = True
            (
                self._windows.add
                if info.get("operatingSystem") == "windows"
                else self._windows.discard
            )(key)
