"""The stored admission policies of one type with their bindings, and which of them apply to a
request: rules, selectors, parameters.

Policies are indexed when they change and compiled when they first apply. Rules depend mostly on the
kind of request, so candidates are found once for each kind. Without policies this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.webhooks.matching import (
    CompiledSelector,
    WebhookRule,
    compile_rule,
    equivalents,
    matches_namespace,
    matches_object,
)
from transom.apiserver.webhooks.review import admission_request, namespace_of
from transom.apiserver.webhooks.versioned_object import VersionedObject, own_kind
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors, selectors
from transom.machinery.objects import Object
from transom.machinery.selectors import SelectorError
from transom.store.api import StoreEvent, Subscription

GROUP = "admissionregistration.k8s.io"
_REMEMBERED = 4096
# Policies do not apply to policies, and not to reviews, without which a cluster cannot work.
EXCLUDED = frozenset(
    (
        f"{GROUP}/MutatingAdmissionPolicy",
        f"{GROUP}/MutatingAdmissionPolicyBinding",
        f"{GROUP}/ValidatingAdmissionPolicy",
        f"{GROUP}/ValidatingAdmissionPolicyBinding",
        "authentication.k8s.io/SelfSubjectReview",
        "authentication.k8s.io/TokenReview",
        "authorization.k8s.io/LocalSubjectAccessReview",
        "authorization.k8s.io/SelfSubjectAccessReview",
        "authorization.k8s.io/SelfSubjectRulesReview",
        "authorization.k8s.io/SubjectAccessReview",
    )
)
C = TypeVar("C")
T = TypeVar("T")


class PolicyConfigError(Exception):
    """A policy or a binding cannot be applied; its failure policy decides what that means."""


class _NamedRule(NamedTuple):
    rule: WebhookRule
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class MatchResources:
    """The `matchConstraints` of a policy, the `matchResources` of a binding."""

    namespaces: CompiledSelector
    objects: CompiledSelector
    rules: tuple[_NamedRule, ...]
    excluded: tuple[_NamedRule, ...]
    equivalent: bool

    @classmethod
    def compile(cls, given: Object) -> MatchResources:
        return cls(
            CompiledSelector(given.get("namespaceSelector")),
            CompiledSelector(given.get("objectSelector")),
            _named_rules(given.get("resourceRules")),
            _named_rules(given.get("excludeResourceRules")),
            given.get("matchPolicy") != "Exact",
        )


def _named_rules(given: Sequence[Object] | None) -> tuple[_NamedRule, ...]:
    return tuple(
        _NamedRule(compile_rule(rule), frozenset(rule.get("resourceNames") or ()))
        for rule in given or ()
    )


class PolicyBinding(NamedTuple):
    name: str
    spec: Object
    resources: MatchResources | None


def _binding(obj: Object, known: PolicyBinding | None) -> PolicyBinding:
    spec = obj.get("spec") or {}
    if known is not None and known.spec == spec:
        return known
    given = spec.get("matchResources")
    return PolicyBinding(
        obj["metadata"]["name"], spec, None if given is None else MatchResources.compile(given)
    )


class PolicyHook(Generic[C]):
    """A policy with its bindings."""

    __slots__ = ("bindings", "compiled", "constraints", "name", "policy")

    def __init__(self, policy: Object, bindings: Sequence[PolicyBinding]) -> None:
        self.policy = policy
        self.name: str = policy["metadata"]["name"]
        self.bindings = bindings
        self.constraints = MatchResources.compile(policy["spec"].get("matchConstraints") or {})
        self.compiled: C | None = None

    @property
    def ignore_failure(self) -> bool:
        return bool(self.policy["spec"].get("failurePolicy") == "Ignore")


class PolicySource(Generic[C]):
    def __init__(
        self,
        objects: ObjectStore,
        resources: ResourceRegistry,
        policies: Resource,
        bindings: Resource,
        compile_policy: Callable[[Object], C],
    ) -> None:
        self.objects = objects
        self.resources = resources
        self._policies, self._bindings = policies, bindings
        self._namespaces = resources.require("", "v1", "namespaces")
        self._compile = compile_policy
        self._hooks: dict[str, PolicyHook[C]] = {}
        self._plans: dict[tuple[Resource, str, str], tuple[PolicyHook[C], ...]] = {}
        self._generation = 0
        self._stale = True
        self._subscriptions: list[Subscription] = []

    def start(self) -> None:
        store = self.objects.store
        self._subscriptions = [
            store.watch(res.key_prefix(""), store.revision, self._changed)
            for res in (self._policies, self._bindings)
        ]
        self._stale = True

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        self._stale = False
        self._hooks.clear()
        self._plans.clear()

    def _changed(self, _events: Sequence[StoreEvent]) -> None:
        self._stale = True

    def _update(self) -> None:
        """Policies without bindings have no effect. What was compiled stays if its spec is the
        same.
        """
        self._stale = False
        before, self._hooks = self._hooks, {}
        self._plans.clear()
        known = {one.name: one for hook in before.values() for one in hook.bindings}
        bound: dict[str, list[PolicyBinding]] = {}
        for binding in self.objects.objects(self._bindings):
            found = _binding(binding, known.get(binding["metadata"]["name"]))
            bound.setdefault(found.spec.get("policyName", ""), []).append(found)
        for name in sorted(bound):
            policy = self.objects.find(self._policies, "", name)
            if policy is None:
                continue
            old = before.get(name)
            hook = self._hooks[name] = PolicyHook(policy, bound[name])
            if old is not None and old.policy["spec"] == policy["spec"]:
                hook.compiled, hook.constraints = old.compiled, old.constraints

    @property
    def any(self) -> bool:
        if self._stale:
            self._update()
        return bool(self._hooks)

    def plan(self, attributes: Attributes) -> tuple[PolicyHook[C], ...]:
        """The policies whose rules may match this kind of request."""
        if self._generation != self.resources.generation or len(self._plans) >= _REMEMBERED:
            self._plans.clear()
            self._generation = self.resources.generation
        key = (attributes.resource, attributes.operation, attributes.subresource)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = tuple(
                hook
                for hook in self._hooks.values()
                if next(self._targets(hook.constraints.rules, hook.constraints, *key), None)
            )
        return found

    def _targets(
        self,
        rules: tuple[_NamedRule, ...],
        given: MatchResources,
        resource: Resource,
        operation: str,
        subresource: str,
    ) -> Iterator[tuple[_NamedRule, Resource]]:
        """The rules that match a kind of request, and the resource that each matches."""
        for named in rules:
            if named.rule.matches(resource, operation, subresource):
                yield named, resource
        if given.equivalent:
            others = [r for r in equivalents(self.resources, resource) if r is not resource]
            for named in rules:
                for other in others:
                    if named.rule.matches(other, operation, subresource):
                        yield named, other

    async def match(self, given: MatchResources, attributes: Attributes) -> Resource | None:
        """The resource that matches, None if none does. Raises PolicyConfigError."""
        for selector in (given.namespaces, given.objects):
            if selector.takes_long:
                await compute_in_worker(self.objects.workers, attributes.ctx, selector.compile)
        problem: PolicyConfigError | None = None
        try:
            wanted = given.namespaces.get()
            if not wanted.empty and not matches_namespace(
                self.objects, self._namespaces, wanted, attributes
            ):
                return None
            if not matches_object(given.objects.get(), attributes):
                return None
        except (SelectorError, errors.ApiError) as error:
            problem = PolicyConfigError(str(error))
        key = (attributes.resource, attributes.operation, attributes.subresource)
        if self._first(given.excluded, given, attributes.name, *key) is not None:
            return None
        target: Resource | None = attributes.resource
        if given.rules:
            target = self._first(given.rules, given, attributes.name, *key)
        if target is not None and problem is not None:
            raise problem
        return target

    def _first(
        self,
        rules: tuple[_NamedRule, ...],
        given: MatchResources,
        name: str,
        resource: Resource,
        operation: str,
        subresource: str,
    ) -> Resource | None:
        found = self._targets(rules, given, resource, operation, subresource)
        return next((r for named, r in found if not named.names or name in named.names), None)

    def param_resource(self, policy: Object) -> Resource | None:
        """The resource of the policy's parameters, None if it has none. Raises PolicyConfigError."""
        kind = policy["spec"].get("paramKind")
        if kind is None:
            return None
        found = self.resources.by_kind(kind.get("apiVersion", ""), kind.get("kind", ""))
        if found is None:
            group, _, version = kind.get("apiVersion", "").rpartition("/")
            raise PolicyConfigError(
                "failed to find resource referenced by paramKind: "
                f"'{group}/{version}, Kind={kind.get('kind', '')}'"
            )
        return found

    async def params(
        self, resource: Resource | None, binding: PolicyBinding, attributes: Attributes
    ) -> list[Object | None]:
        """The parameters of a binding; one None if it has none. Raises PolicyConfigError."""
        ref = binding.spec.get("paramRef")
        if resource is None or ref is None:
            return [None]
        namespace = ref.get("namespace", "")
        if resource.kind.namespaced:
            namespace = namespace or namespace_of(attributes)
            if not namespace:
                raise PolicyConfigError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                    "resources"
                )
        elif namespace:
            raise PolicyConfigError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        found = await self._find_params(resource, ref, namespace, attributes.ctx)
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise PolicyConfigError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return [await _in_version(resource, obj) for obj in found]

    async def _find_params(
        self, resource: Resource, ref: Object, namespace: str, ctx: RequestContext
    ) -> list[Object]:
        if ref.get("name"):
            obj = self.objects.find(resource, namespace, ref["name"])
            return [] if obj is None else [obj]
        try:
            wanted = selectors.from_object(ref.get("selector"))
        except SelectorError as problem:
            raise PolicyConfigError(str(problem)) from None
        return await self.objects.load_objects(ctx, resource, namespace, wanted)

    def namespace_object(self, attributes: Attributes) -> Object | None:
        """The namespace of the request as expressions see it; raises 404 if it does not exist."""
        name = attributes.namespace
        if not name or attributes.kind_key == "/Namespace":
            return None
        namespace = self.objects.find(self._namespaces, "", name)
        if namespace is None:
            raise errors.not_found(self._namespaces.gr, name)
        meta = {k: v for k, v in namespace["metadata"].items() if k in _SHOWN_METADATA}
        return {
            "metadata": meta,
            "spec": namespace.get("spec") or {},
            "status": namespace.get("status") or {},
        }

    async def compiled(self, hook: PolicyHook[C], attributes: Attributes) -> C:
        if hook.compiled is None:
            hook.compiled = await compute_in_worker(
                self.objects.workers, attributes.ctx, lambda: self._compile(hook.policy)
            )
        return hook.compiled


_SHOWN_METADATA = frozenset(
    (
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    )
)


async def _in_version(resource: Resource, obj: Object) -> Object:
    """A stored parameter in the version of the policy's paramKind."""
    if not resource.custom:
        obj = resource.ops.from_storage(obj)
    elif obj.get("apiVersion") != resource.api_version and resource.ops.converter is not None:
        obj = await resource.ops.converter.convert_one(obj, resource.version)
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind.kind}


def request_value(attributes: Attributes, target: Resource, shown: VersionedObject) -> Object:
    """The variable `request`."""
    return admission_request(
        attributes, shown.kind, own_kind(attributes, attributes.resource), target
    )
