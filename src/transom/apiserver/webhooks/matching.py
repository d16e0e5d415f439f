"""Which webhooks match a request: rules, selectors, and the version in which each expects the
object.

Configurations are compiled when they change. Rules depend only on the kind of request and are
evaluated once for each kind; selectors are evaluated for each request. Without configurations this
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.webhooks.conditions import WebhookConditions
from transom.apiserver.webhooks.review import namespace_of
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors, selectors
from transom.machinery.objects import Object
from transom.machinery.releases.features import is_enabled
from transom.machinery.selectors import LabelSelector, SelectorError
from transom.store.api import StoreEvent, Subscription

GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = (
    f"{GROUP}/MutatingWebhookConfiguration",
    f"{GROUP}/ValidatingWebhookConfiguration",
)
_NAMESPACE = "/Namespace"
_REMEMBERED = 4096


class WebhookRule(NamedTuple):
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]  # resource and subresource, "*" for any
    scope: str

    def matches(self, resource: Resource, operation: str, subresource: str) -> bool:
        if (
            self.scope not in ("", "*")
            and (self.scope == "Namespaced") is not resource.kind.namespaced
        ):
            return False
        return (
            ("*" in self.operations or operation in self.operations)
            and ("*" in self.groups or resource.group in self.groups)
            and ("*" in self.versions or resource.version in self.versions)
            and any(
                r in ("*", resource.kind.plural) and s in ("*", subresource)
                for r, s in self.resources
            )
        )


class CompiledSelector:
    """A selector that is compiled when it is first used."""

    __slots__ = ("_compiled", "_given")

    def __init__(self, given: Object | None) -> None:
        self._given = given
        self._compiled: LabelSelector | SelectorError | None = None

    @property
    def takes_long(self) -> bool:
        """Whether `compile` should be called in a thread."""
        return self._compiled is None and selectors.takes_long_to_compile(self._given)

    def compile(self) -> LabelSelector | SelectorError:
        if self._compiled is None:
            try:
                self._compiled = selectors.from_object(self._given)
            except SelectorError as problem:
                self._compiled = problem
        return self._compiled

    def get(self) -> LabelSelector:
        """Raises SelectorError."""
        found = self.compile()
        if isinstance(found, SelectorError):
            raise SelectorError(str(found), found.newer)  # a new one: tracebacks grow
        return found


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    configuration: str
    name: str
    uid: str  # distinguishes hooks with the same name
    index: int  # among all hooks of its type
    client: Object
    rules: tuple[WebhookRule, ...]
    ignore_failure: bool
    equivalent: bool
    namespaces: CompiledSelector
    objects: CompiledSelector
    no_side_effects: bool
    reinvocable: bool
    seconds: float
    review_versions: tuple[str, ...]
    conditions: WebhookConditions


class Invocation(NamedTuple):
    hook: RegisteredWebhook
    target: Resource  # the resource that matches the hook's rule


def compile_hooks(
    configurations: Sequence[Object], *, conditions: bool = False
) -> tuple[RegisteredWebhook, ...]:
    """All hooks in call order: by the name of the configuration, then in their order there.
    `conditions`: whether the release evaluates match conditions.
    """
    hooks: list[RegisteredWebhook] = []
    for configuration in sorted(configurations, key=lambda c: c["metadata"]["name"]):
        name = configuration["metadata"]["name"]
        seen: dict[str, int] = {}
        for given in configuration.get("webhooks") or ():
            number = seen[given["name"]] = seen.get(given["name"], -1) + 1
            uid = f"{name}/{given['name']}/{number}"
            hooks.append(_hook(name, uid, len(hooks), given, conditions))
    return tuple(hooks)


def _hook(
    configuration: str, uid: str, index: int, given: Object, conditions: bool
) -> RegisteredWebhook:
    return RegisteredWebhook(
        configuration,
        given["name"],
        uid,
        index,
        given.get("clientConfig") or {},
        tuple(compile_rule(r) for r in given.get("rules") or ()),
        given.get("failurePolicy") == "Ignore",
        given.get("matchPolicy") == "Equivalent",
        CompiledSelector(given.get("namespaceSelector")),
        CompiledSelector(given.get("objectSelector")),
        given.get("sideEffects") in ("None", "NoneOnDryRun"),
        given.get("reinvocationPolicy") == "IfNeeded",
        float(given.get("timeoutSeconds") or 30),
        tuple(given.get("admissionReviewVersions") or ()),
        WebhookConditions(
            (given.get("matchConditions") or ()) if conditions else (),
            ignore_failure=given.get("failurePolicy") == "Ignore",
        ),
    )


def compile_rule(rule: Object) -> WebhookRule:
    """The rule of a webhook or a policy."""
    split = (text.partition("/") for text in rule.get("resources") or ())
    return WebhookRule(
        frozenset(rule.get("operations") or ()),
        frozenset(rule.get("apiGroups") or ()),
        frozenset(rule.get("apiVersions") or ()),
        tuple((r, s) for r, _, s in split),
        rule.get("scope") or "",
    )


class WebhookConfigurations:
    """The stored hooks of one type of configuration."""

    def __init__(
        self,
        objects: ObjectStore,
        resources: ResourceRegistry,
        configurations: Resource,
        namespaces: Resource,
    ) -> None:
        self._objects = objects
        self._resources = resources
        self._configurations = configurations
        self._namespaces = namespaces
        self._hooks: tuple[RegisteredWebhook, ...] = ()
        self._plans: dict[tuple[Resource, str, str], tuple[Invocation, ...]] = {}
        self._generation = 0
        self._subscription: Subscription | None = None

    def start(self) -> None:
        store = self._objects.store
        self._subscription = store.watch(
            self._configurations.key_prefix(""), store.revision, self._changed
        )
        self._changed(())

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        self._hooks = ()
        self._plans.clear()

    def _changed(self, _events: Sequence[StoreEvent]) -> None:
        self._hooks = compile_hooks(
            self._objects.objects(self._configurations),
            conditions=is_enabled(self._resources.release, "AdmissionWebhookMatchConditions"),
        )
        self._plans.clear()

    @property
    def any(self) -> bool:
        return bool(self._hooks)

    def has(self, name: str) -> bool:
        """Whether a webhook of this name exists in any configuration."""
        return any(hook.name == name for hook in self._hooks)

    def plan(self, attributes: Attributes) -> tuple[Invocation, ...]:
        """The hooks whose rules match this kind of request. Selectors are not evaluated yet."""
        if self._generation != self._resources.generation or len(self._plans) >= _REMEMBERED:
            self._plans.clear()
            self._generation = self._resources.generation
        key = (attributes.resource, attributes.operation, attributes.subresource)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = tuple(self._invocations(*key))
        return found

    def _invocations(
        self, resource: Resource, operation: str, subresource: str
    ) -> Iterator[Invocation]:
        others = [r for r in equivalents(self._resources, resource) if r is not resource]
        for hook in self._hooks:
            if any(rule.matches(resource, operation, subresource) for rule in hook.rules):
                yield Invocation(hook, resource)
            elif hook.equivalent:
                pairs = ((rule, other) for rule in hook.rules for other in others)
                target = next(
                    (o for rule, o in pairs if rule.matches(o, operation, subresource)), None
                )
                if target is not None:
                    yield Invocation(hook, target)

    async def selected(self, hook: RegisteredWebhook, attributes: Attributes) -> bool:
        """Whether the selectors of a hook with matching rules match this request."""
        wanted = await self._usable(hook.namespaces, attributes)
        if not wanted.empty and not matches_namespace(
            self._objects, self._namespaces, wanted, attributes
        ):
            return False
        return matches_object(await self._usable(hook.objects, attributes), attributes)

    async def _usable(self, selector: CompiledSelector, attributes: Attributes) -> LabelSelector:
        try:
            if selector.takes_long:
                workers = self._objects.workers
                return await compute_in_worker(workers, attributes.ctx, selector.get)
            return selector.get()
        except SelectorError as problem:
            raise errors.internal(str(problem)) from None


def matches_namespace(
    objects: ObjectStore, namespaces: Resource, wanted: LabelSelector, attributes: Attributes
) -> bool:
    """Whether the namespace of the request has the wanted labels; raises 404 if it does not exist."""
    kind = attributes.resource.kind
    if kind.key != _NAMESPACE and not kind.namespaced:
        return True  # the namespace selector does not exempt cluster-scoped objects
    if (
        kind.key == _NAMESPACE
        and not attributes.subresource
        and attributes.operation in ("CREATE", "UPDATE")
    ):
        return wanted.matches(attributes.obj["metadata"].get("labels"))
    name = namespace_of(attributes)
    namespace = objects.find(namespaces, "", name)
    if namespace is None:
        raise errors.not_found(namespaces.gr, name)
    return wanted.matches(namespace["metadata"].get("labels"))


def matches_object(wanted: LabelSelector, attributes: Attributes) -> bool:
    """Whether the new or the old object has the wanted labels."""
    return (
        wanted.empty or _has_labels(attributes.obj, wanted) or _has_labels(attributes.old, wanted)
    )


def _has_labels(obj: Any, wanted: LabelSelector) -> bool:
    if not obj or "metadata" not in obj:
        return False
    return wanted.matches(obj["metadata"].get("labels"))


def equivalents(resources: ResourceRegistry, resource: Resource) -> list[Resource]:
    """All group versions that serve the same objects."""
    kind = resource.kind
    places = [(kind.group, v) for v in kind.versions] + [
        (group, v) for group, vs in kind.also for v in vs
    ]
    found = (resources.find(group, version, kind.plural) for group, version in places)
    return [r for r in found if r is not None and r.kind is kind]
