"""RBAC: roles and bindings, indexed by subject and kept current from the store.

Rules are additive, so the answer for a user, a namespace and a resource is a short list: which names, and why. These
lists are cached until any role or binding changes; a cached decision is one dict lookup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from transom.apiserver.authorization.chain import Decision
from transom.apiserver.context import User
from transom.apiserver.requestinfo import RequestInfo
from transom.machinery.errors import ApiError, GroupResource, not_found
from transom.machinery.field import aggregate_text, go_quote
from transom.machinery.objects import Object
from transom.machinery.rbac import GROUP, Rule, matches_path, matches_resource
from transom.store.api import Event, Store

_CACHE_LIMIT = 100_000
_ROLES, _CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
_BINDINGS, _CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
_BUCKETS = (_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS)

# In which order to try: names for which the decision holds, None for every name. The last one is always for every name.
_Answers = tuple[tuple[frozenset[str] | None, Decision], ...]


def account_name(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _user_key(name: str) -> str:
    return "u:" + name


def _group_key(name: str) -> str:
    return "g:" + name


class _Binding:
    __slots__ = ("name", "namespace", "reference", "subjects")

    def __init__(self, namespace: str, name: str, obj: Object) -> None:
        self.namespace = namespace
        self.name = name
        self.reference: Object = obj.get("roleRef") or {}
        self.subjects: list[Object] = obj.get("subjects") or []

    def indexed(self) -> Iterator[tuple[str, Object]]:
        """What to look for in the index, and the subject it stands for."""
        for subject in self.subjects:
            kind, name = subject.get("kind"), subject.get("name", "")
            if kind == "User":
                yield _user_key(name), subject
            elif kind == "Group":
                yield _group_key(name), subject
            elif kind == "ServiceAccount":
                namespace = subject.get("namespace") or self.namespace
                if namespace:
                    yield _user_key(account_name(namespace, name)), subject

    def source(self, wanted: set[str]) -> str:
        """How a review names this binding and the first of its subjects that is meant."""
        subject = next(s for key, s in self.indexed() if key in wanted)
        kind, name = subject["kind"], subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{name}/{subject.get('namespace') or self.namespace}"
        which = f"RoleBinding {go_quote(f'{self.name}/{self.namespace}')}" if self.namespace else (
            f"ClusterRoleBinding {go_quote(self.name)}"
        )
        role = f"{self.reference.get('kind', '')} {go_quote(self.reference.get('name', ''))}"
        return f"{which} of {role} to {kind} {go_quote(name)}"


class _Scope:
    """The bindings of a namespace, or of the cluster."""

    __slots__ = ("bindings", "by_subject")

    def __init__(self) -> None:
        self.bindings: dict[str, _Binding] = {}
        self.by_subject: dict[str, set[str]] = {}

    def put(self, binding: _Binding) -> None:
        self.drop(binding.name)
        self.bindings[binding.name] = binding
        for key, _ in binding.indexed():
            self.by_subject.setdefault(key, set()).add(binding.name)

    def drop(self, name: str) -> None:
        old = self.bindings.pop(name, None)
        for key, _ in old.indexed() if old is not None else ():
            names = self.by_subject.get(key)
            if names is not None:
                names.discard(name)
                if not names:
                    del self.by_subject[key]

    def of(self, wanted: set[str]) -> list[_Binding]:
        names: set[str] = set()
        for key in wanted:
            names |= self.by_subject.get(key, frozenset())
        return [self.bindings[name] for name in sorted(names)]


class Rbac:
    """The authorizer. It reads the store when it is first asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._started = False
        self._roles: dict[str, list[Rule]] = {}  # namespace/name, or the name of a cluster role
        self._cluster = _Scope()
        self._scopes: dict[str, _Scope] = {}
        self._cache: dict[object, _Answers] = {}

    def __call__(self, user: User, info: RequestInfo) -> Decision:
        if info.is_resource:
            key: object = (
                user.name, user.groups, info.namespace, info.verb, info.group, info.resource, info.subresource
            )
        else:
            key = (user.name, user.groups, info.verb, info.path)
        answers = self._cache.get(key)
        if answers is None:
            answers = self._answers(user, info)
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[key] = answers
        names, decision = answers[0]
        if names is None:
            return decision
        name = info.name or info.selected_name
        return next(decision for names, decision in answers if names is None or name in names)

    def _answers(self, user: User, info: RequestInfo) -> _Answers:
        out: list[tuple[frozenset[str] | None, Decision]] = []
        problems: list[str] = []
        for binding, source in self._bindings(user, info.namespace if info.is_resource else ""):
            rules = self._referenced(binding)
            if rules is None:
                problems.append(absent(binding.reference, plural=False).message)
                continue
            for rule in rules:
                if info.is_resource:
                    if not matches_resource(rule, info.verb, info.group, info.resource, info.subresource):
                        continue
                elif not matches_path(rule, info.verb, info.path):
                    continue
                names = frozenset(rule.get("resourceNames") or ()) if info.is_resource else frozenset()
                out.append((names or None, Decision(True, f"RBAC: allowed by {source}")))
                if not names:
                    return tuple(out)
        out.append((None, Decision(None, f"RBAC: {aggregate_text(problems)}" if problems else "")))
        return tuple(out)

    # ---- rules of a user -----------------------------------------------------------------------------------------

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[Object]]:
        """Everything the user may do in a namespace, and the references of his bindings to roles that do not exist."""
        rules: list[Rule] = []
        dangling: list[Object] = []
        for binding, _ in self._bindings(user, namespace):
            found = self._referenced(binding)
            if found is None:
                dangling.append(binding.reference)
            else:
                rules += found
        return rules, dangling

    def referenced_rules(self, reference: Object, namespace: str) -> list[Rule]:
        """The rules of the role that a binding in `namespace` refers to; raises 404."""
        self._start()
        found = self._roles.get(_role_key(reference, namespace))
        if found is None:
            raise absent(reference, plural=True)
        return found

    def _bindings(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        self._start()
        wanted = {_user_key(user.name), *map(_group_key, user.groups)}
        scopes = [self._cluster]
        if namespace and namespace in self._scopes:
            scopes.append(self._scopes[namespace])
        for scope in scopes:
            for binding in scope.of(wanted):
                yield binding, binding.source(wanted)

    def _referenced(self, binding: _Binding) -> list[Rule] | None:
        return self._roles.get(_role_key(binding.reference, binding.namespace))

    # ---- keeping current -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        since = self._store.revision
        for bucket in _BUCKETS:
            for record in self._store.list(bucket + "/").records:
                self._apply(record.key, record.value)
        for bucket in _BUCKETS:
            self._store.watch(bucket + "/", since, self._changed)

    def _changed(self, events: Sequence[Event]) -> None:
        for event in events:
            self._apply(event.key, None if event.record is None else event.record.value)
        self._cache.clear()

    def _apply(self, key: str, value: bytes | None) -> None:
        bucket, _, rest = key.partition("/")
        obj = None if value is None else orjson.loads(value)
        if bucket in (_ROLES, _CLUSTER_ROLES):
            if obj is None:
                self._roles.pop(rest, None)
            else:
                self._roles[rest] = obj.get("rules") or []
            return
        namespace, _, name = rest.rpartition("/")
        scope = self._scopes.setdefault(namespace, _Scope()) if namespace else self._cluster
        if obj is not None:
            scope.put(_Binding(namespace, name, obj))
            return
        scope.drop(name)
        if namespace and not scope.bindings:
            del self._scopes[namespace]


def _role_key(reference: Object, namespace: str) -> str:
    """A Role's key has a slash, a ClusterRole's has none; anything else is nobody's key."""
    name = reference.get("name", "")
    kind = reference.get("kind")
    return f"{namespace}/{name}" if kind == "Role" else name if kind == "ClusterRole" else "/"


def absent(reference: Object, plural: bool) -> ApiError:
    """The authorizer reads from a cache whose errors name the resource in the singular, the registry's are plural."""
    kind = reference.get("kind", "")
    if kind not in ("Role", "ClusterRole"):
        return ApiError(500, "", f"unsupported role reference kind: {go_quote(kind)}")
    return not_found(GroupResource(GROUP, kind.lower() + ("s" if plural else "")), reference.get("name", ""))

