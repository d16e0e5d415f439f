"""RBAC: roles and bindings, indexed by subject and updated from the store.

Rules are additive, so the decision for a user, a namespace and a resource is a short list of names
with reasons. These lists are cached until a role or binding changes; a cached decision is one dict
lookup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from transom.apiserver.authorization.chain import Decision
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.kit.goquote import go_quote
from transom.machinery.errors import ApiError, GroupResource, not_found
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object
from transom.machinery.rbac import GROUP, IndexedRules, Rule, matches_path
from transom.store.api import Store, StoreEvent

_CACHE_LIMIT = 100_000
# characters of a request's attributes; longer ones are unusual and not cached
_LONGEST_KEY = 1024
_REPEATED_RULES = 1000  # rules of roles with several bindings
_ROLES, _CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
_BINDINGS, _CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
_BUCKETS = (_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS)

# In evaluation order: the names that the decision applies to, None for every name. The last one
# always applies to every name.
_Answers = tuple[tuple[frozenset[str] | None, Decision], ...]


def account_name(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _user_key(name: str) -> str:
    return "u:" + name


def _group_key(name: str) -> str:
    return "g:" + name


def _keys(user: UserInfo) -> set[str]:
    return {_user_key(user.name), *map(_group_key, user.groups)}


class _Binding:
    __slots__ = ("by_key", "name", "namespace", "reference")

    def __init__(self, namespace: str, name: str, obj: Object) -> None:
        self.namespace = namespace
        self.name = name
        self.reference: Object = obj.get("roleRef") or {}
        # the first subject of each key, and its index in the list
        self.by_key: dict[str, tuple[int, Object]] = {}
        for number, (key, subject) in enumerate(self._indexed(obj.get("subjects") or [])):
            self.by_key.setdefault(key, (number, subject))

    def _indexed(self, subjects: list[Object]) -> Iterator[tuple[str, Object]]:
        """The index key of a subject, and the subject itself."""
        for subject in subjects:
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
        """The description in a review: this binding and the first matching subject."""
        _, subject = min(
            (self.by_key[key] for key in wanted if key in self.by_key), key=lambda found: found[0]
        )
        kind, name = subject["kind"], subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{name}/{subject.get('namespace') or self.namespace}"
        which = (
            f"RoleBinding {go_quote(f'{self.name}/{self.namespace}')}"
            if self.namespace
            else (f"ClusterRoleBinding {go_quote(self.name)}")
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
        for key in binding.by_key:
            self.by_subject.setdefault(key, set()).add(binding.name)

    def drop(self, name: str) -> None:
        old = self.bindings.pop(name, None)
        for key in old.by_key if old is not None else ():
            names = self.by_subject.get(key)
            if names is not None:
                names.discard(name)
                if not names:
                    del self.by_subject[key]

    def binds(self, key: str) -> bool:
        return key in self.by_subject

    def of(self, wanted: set[str]) -> list[_Binding]:
        names: set[str] = set()
        for key in wanted:
            names |= self.by_subject.get(key, frozenset())
        return [self.bindings[name] for name in sorted(names)]


class Rbac:
    """The authorizer. It reads the store on first use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._started = False
        # namespace/name, or the name of a cluster role
        self._roles: dict[str, IndexedRules] = {}
        self._cluster = _Scope()
        self._scopes: dict[str, _Scope] = {}
        self._cache: dict[object, _Answers] = {}

    def __call__(self, user: UserInfo, info: RequestInfo) -> Decision:
        if info.is_resource:
            key: object = (
                user.name,
                user.groups,
                info.namespace,
                info.verb,
                info.group,
                info.resource,
                info.subresource,
            )
        else:
            key = (user.name, user.groups, info.verb, info.path)
        answers = self._cache.get(key)
        if answers is None:
            answers = self._answers(user, info)
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            if _key_length(user, info) < _LONGEST_KEY:
                self._cache[key] = answers
        names, decision = answers[0]
        if names is None:
            return decision
        name = info.name
        return next(decision for names, decision in answers if names is None or name in names)

    def _answers(self, user: UserInfo, info: RequestInfo) -> _Answers:
        out: list[tuple[frozenset[str] | None, Decision]] = []
        problems: list[str] = []
        wanted = _keys(user)
        seen: set[str] = set()  # another binding to the same role allows nothing more
        for binding in self._bindings(wanted, info.namespace if info.is_resource else ""):
            role = _role_key(binding.reference, binding.namespace)
            if role in seen:
                continue
            seen.add(role)
            rules = self._roles.get(role)
            if rules is None:
                problems.append(absent(binding.reference, plural=False).message)
                continue
            if info.is_resource:
                matching = rules.about(info.verb, info.group, info.resource, info.subresource)
            else:
                matching = (
                    rule for rule in rules.rules if matches_path(rule, info.verb, info.path)
                )
            for rule in matching:
                names = (
                    frozenset(rule.get("resourceNames") or ()) if info.is_resource else frozenset()
                )
                out.append(
                    (names or None, Decision(True, f"RBAC: allowed by {binding.source(wanted)}"))
                )
                if not names:
                    return tuple(out)
        out.append((None, Decision(None, f"RBAC: {aggregate_text(problems)}" if problems else "")))
        return tuple(out)

    # ---- rules of a user ----

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[Object]]:
        """All rules of the user in a namespace, and the references of the user's bindings to
        missing roles. Rules of a role with several bindings are repeated, unless they are many.
        """
        rules: list[Rule] = []
        dangling: list[Object] = []
        seen: set[str] = set()
        for binding in self._bindings(_keys(user), namespace):
            role = _role_key(binding.reference, binding.namespace)
            repeated = role in seen
            seen.add(role)
            found = self._roles.get(role)
            if found is None:
                if not repeated or len(dangling) < _REPEATED_RULES:
                    dangling.append(binding.reference)
            elif not repeated or len(rules) + len(found.rules) < _REPEATED_RULES:
                rules += found.rules
        return rules, dangling

    def bound_groups(self, groups: Sequence[str], namespace: str) -> tuple[str, ...]:
        """The groups that any binding for the namespace refers to. Thread-safe."""
        self._start()
        scopes = [self._cluster]
        if namespace in self._scopes:
            scopes.append(self._scopes[namespace])
        return tuple(
            group
            for group in dict.fromkeys(groups)
            if any(scope.binds(_group_key(group)) for scope in scopes)
        )

    def referenced_rules(
        self, reference: Object, namespace: str, requested: GroupResource | None = None
    ) -> Sequence[Rule]:
        """The rules of the role that a binding in `namespace` refers to; raises 404, which names
        the resource that the request asked for, if given.
        """
        self._start()
        found = self._roles.get(_role_key(reference, namespace))
        if found is not None:
            return found.rules
        if requested is not None and reference.get("kind") in ("Role", "ClusterRole"):
            raise not_found(requested, reference.get("name", ""))
        raise absent(reference, plural=True)

    def _bindings(self, wanted: set[str], namespace: str) -> Iterator[_Binding]:
        self._start()
        scopes = [self._cluster]
        if namespace and namespace in self._scopes:
            scopes.append(self._scopes[namespace])
        for scope in scopes:
            yield from scope.of(wanted)

    # ---- keeping current ----

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

    def _changed(self, events: Sequence[StoreEvent]) -> None:
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
                self._roles[rest] = IndexedRules(obj.get("rules") or [])
            return
        namespace, _, name = rest.rpartition("/")
        scope = self._scopes.setdefault(namespace, _Scope()) if namespace else self._cluster
        if obj is not None:
            scope.put(_Binding(namespace, name, obj))
            return
        scope.drop(name)
        if namespace and not scope.bindings:
            del self._scopes[namespace]


def _key_length(user: UserInfo, info: RequestInfo) -> int:
    """The memory size of a cached decision."""
    groups = user.groups
    if len(groups) > _LONGEST_KEY:
        return _LONGEST_KEY
    texts = (user.name, info.path, info.verb, info.resource, info.subresource)
    return sum(map(len, (*texts, info.namespace, info.group, *groups)))


def _role_key(reference: Object, namespace: str) -> str:
    """The key of a Role contains a slash, that of a ClusterRole does not; anything else is not a
    key of a role.
    """
    name = reference.get("name", "")
    kind = reference.get("kind")
    return f"{namespace}/{name}" if kind == "Role" else name if kind == "ClusterRole" else "/"


def absent(reference: Object, plural: bool) -> ApiError:
    """The authorizer reads from a cache whose errors name the resource in the singular; the
    registry's errors use the plural.
    """
    kind = reference.get("kind", "")
    if kind not in ("Role", "ClusterRole"):
        return ApiError(500, "", f"unsupported role reference kind: {go_quote(kind)}")
    return not_found(
        GroupResource(GROUP, kind.lower() + ("s" if plural else "")), reference.get("name", "")
    )
