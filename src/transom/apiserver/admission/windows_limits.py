"""WindowsLimits: warns of pods for Windows that use what Windows cannot do, and refuses what the cluster's owner chose.

No plugin of Kubernetes. It changes nothing, and yet looks where others change objects: later, fields are gone that say what
a pod is for, but that its release does not know (`spec.os`).

What the limits are and what they concern is known to `transom.windows`; here are the requests that are looked at, and the
cluster's nodes, RuntimeClasses, Services and workloads as they are stored now. The registry is read with the first pod for
Windows: a cluster that has none does not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.machinery.objects import Object
from transom.store.api import Event, Subscription
from transom.windows.policy import Policy
from transom.windows.targeting import possible

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer
    from transom.windows.advice import Advisor, Judgement

# Kinds with a template, and the keys that lead to the spec of its pods.
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
# Where the pods behind a Service come from: (group, plural), pods that belong to nobody last.
_WORKLOADS: Final = (("apps", "deployments"), ("apps", "statefulsets"), ("apps", "daemonsets"), ("apps", "replicasets"),
                     ("", "replicationcontrollers"), ("", "pods"))


class WindowsLimits:
    name = "WindowsLimits"

    def __init__(self, server: ApiServer, policy: Policy) -> None:
        self._server = server
        self._storage = server.storage
        self._policy = policy
        self._nodes = _Nodes(server)
        self._advisor: Advisor | None = None

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = resource.kind.key
        if subresource:
            return key == "/Pod" and subresource == _DEBUGGING
        return operation in ("CREATE", "UPDATE") and (key in _TEMPLATES or key == _SERVICE)

    def admit(self, attributes: Attributes) -> None:
        rounds = attributes.rounds
        if rounds is not None and rounds.wanted and not rounds.second:
            return  # there will be another look at what webhooks have made of it
        key = attributes.resource.kind.key
        if key == _SERVICE:
            judgement = self._service(attributes)
        else:
            spec = attributes.obj
            for step in _TEMPLATES[key]:
                spec = spec.get(step)
                if not spec:
                    return
            if not possible(spec):
                return
            judgement = self._debugging(attributes) if attributes.subresource else self._pods(attributes)
        if judgement is None:
            return
        for text in judgement.warnings:
            attributes.ctx.warn(text)
        if judgement.refusals:
            raise attributes.forbidden("; ".join(judgement.refusals))

    def _pods(self, attributes: Attributes) -> Judgement:
        services = self._server.resource("", "v1", "services")
        return self._current().judge(
            attributes.resource.kind.kind, attributes.obj, attributes.old,
            self._storage.objects(services, attributes.namespace) if self._nodes.any else (),
        )

    def _debugging(self, attributes: Attributes) -> Judgement:
        """Who adds a container to a running pod hears of that container, whoever made the pod."""
        new, old = ({**pod, "metadata": {}} for pod in (attributes.obj, attributes.old or {}))
        advisor = self._current()
        judgement, known = advisor.judge("Pod", new, old), advisor.judge("Pod", old).warnings
        return judgement._replace(warnings=tuple(text for text in judgement.warnings if text not in known))

    def _service(self, attributes: Attributes) -> Judgement | None:
        """Only where Windows nodes are, and only for pods of the namespace that are surely for them."""
        if not attributes.obj["spec"].get("selector") or not self._nodes.any:
            return None
        return self._current().judge_service(attributes.obj, self._workloads(attributes.namespace), attributes.old)

    def _workloads(self, namespace: str) -> Iterator[tuple[str, Object]]:
        for group, plural in _WORKLOADS:
            resource = self._server.resource(group, "v1", plural)
            for obj in self._storage.objects(resource, namespace):
                if not obj["metadata"].get("ownerReferences"):
                    yield resource.kind.kind, obj

    def _runtime_class(self, name: str) -> Object | None:
        return self._storage.find(self._server.resource("node.k8s.io", "v1", "runtimeclasses"), "", name)

    def _current(self) -> Advisor:
        """For the nodes that there are now; if none is of Windows, for such as the release may have."""
        if self._advisor is None or self._nodes.changed():
            from transom.windows.advice import Advisor
            from transom.windows.landscape import described, of_nodes
            from transom.windows.releases import parse

            landscape = of_nodes(self._nodes.all())
            if not landscape.nodes:
                landscape = described(parse(self._server.release))
            self._advisor = Advisor(landscape, self._policy, self._runtime_class)
        return self._advisor


class _Nodes:
    """The stored nodes, and whether anything has changed that limits depend on: heartbeats have not."""

    def __init__(self, server: ApiServer) -> None:
        self._storage = server.storage
        self._resource = server.resource("", "v1", "nodes")
        self._subscription: Subscription | None = None
        self._nature: dict[str, tuple[object, ...]] = {}  # by key
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
        return self._storage.objects(self._resource)

    def changed(self) -> bool:
        return self._changed

    def _follow(self) -> None:
        if self._subscription is not None:
            return
        store = self._storage.store
        prefix = self._resource.key_prefix("")
        self._subscription = store.watch(prefix, store.revision, self._on_events)
        for node in self._storage.objects(self._resource):
            self._note(self._resource.key("", node["metadata"]["name"]), node)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.record is None:
                self._changed = self._nature.pop(event.key, None) is not None or self._changed
                self._windows.discard(event.key)
            else:
                self._note(event.key, self._storage.decode(self._resource, event.record))

    def _note(self, key: str, node: Object) -> None:
        meta, info = node["metadata"], (node.get("status") or {}).get("nodeInfo") or {}
        nature = (meta.get("labels"), meta.get("annotations"), (node.get("spec") or {}).get("taints"), info)
        if self._nature.get(key) != nature:
            self._nature[key] = nature
            self._changed = True
            (self._windows.add if info.get("operatingSystem") == "windows" else self._windows.discard)(key)
