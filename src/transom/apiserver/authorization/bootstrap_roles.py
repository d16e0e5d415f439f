"""Keeps the bootstrap policy in line: missing roles, bindings, rules and subjects are put back at each start.

What an administrator added stays; who sets the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` keeps
the object as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transom.apiserver import writes
from transom.apiserver.authorization import bootstrap_policy as policy
from transom.apiserver.resources import Resource
from transom.machinery import rbac
from transom.machinery.objects import Object, copy_object

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AT_ONCE = 64  # so many writes go to the disk together


async def reconcile(server: ApiServer) -> None:
    """Cluster roles first: whoever sees a binding finds its role."""
    for plural, objects in (
        ("clusterroles", list(cluster_roles())), ("clusterrolebindings", list(cluster_bindings())),
        ("roles", list(roles())), ("rolebindings", list(bindings())),
    ):
        res = server.resource(rbac.GROUP, "v1", plural)
        for start in range(0, len(objects), _AT_ONCE):
            await asyncio.gather(*(_reconcile_one(server, res, obj) for obj in objects[start : start + _AT_ONCE]))


# ---- the objects -----------------------------------------------------------------------------------------------------


def cluster_roles() -> Iterator[Object]:
    plain = [_object(name, rules=list(rules)) for name, rules in policy.CLUSTER_ROLES.items()]
    plain += [_object(f"system:controller:{name}", rules=list(r)) for name, r in policy.CONTROLLER_ROLES.items()]
    known = {obj["metadata"]["name"]: obj for obj in plain}
    # A role that others gather from comes before them: view, then edit, then admin.
    for name, label in reversed(policy.AGGREGATED_ROLES.items()):
        selector = {"matchLabels": {f"{rbac.GROUP}/{label}": "true"}}
        role = _object(name, aggregationRule={"clusterRoleSelectors": [selector]})
        role["rules"] = rbac.aggregated(role, known.values())
        known[name] = role
    yield from known.values()
    for name, rules in policy.LATER_ROLES.items():
        yield {"metadata": {"name": name, "annotations": {_AUTO_UPDATE: "true"}}, "rules": list(rules)}


def cluster_bindings() -> Iterator[Object]:
    for name, subjects in policy.CLUSTER_BINDINGS.items():
        yield _binding(_object(name), "ClusterRole", name, subjects)
    for name in policy.CONTROLLER_ROLES:
        full = f"system:controller:{name}"
        yield _binding(_object(full), "ClusterRole", full, f"ServiceAccount:{name}")
    for name, subjects in policy.LATER_BINDINGS.items():
        meta = {"name": name, "annotations": {_AUTO_UPDATE: "true"}}
        yield _binding({"metadata": meta}, "ClusterRole", name, subjects)


def roles() -> Iterator[Object]:
    for (namespace, name), rules in policy.NAMESPACE_ROLES.items():
        yield _object(name, namespace, rules=list(rules))


def bindings() -> Iterator[Object]:
    for (namespace, name), (role, subjects) in policy.NAMESPACE_BINDINGS.items():
        yield _binding(_object(name, namespace), "Role", role, subjects)


def _object(name: str, namespace: str = "", **content: object) -> Object:
    labels = dict(_LABEL)
    label = policy.AGGREGATION_LABELS.get(name)
    if label and not namespace:
        labels[f"{rbac.GROUP}/{label}"] = "true"
    meta: Object = {"name": name, "labels": labels, "annotations": {_AUTO_UPDATE: "true"}}
    if namespace:
        meta["namespace"] = namespace
    return {"metadata": meta, **content}


def _binding(obj: Object, kind: str, role: str, subjects: str) -> Object:
    obj["roleRef"] = {"apiGroup": rbac.GROUP, "kind": kind, "name": role}
    if subjects:
        obj["subjects"] = [_subject(text) for text in subjects.split()]
    return obj


def _subject(text: str) -> Object:
    kind, _, name = text.partition(":")
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": "kube-system"}
    return {"kind": kind, "apiGroup": rbac.GROUP, "name": name}


# ---- in line with what is stored -------------------------------------------------------------------------------------


async def _reconcile_one(server: ApiServer, res: Resource, wanted: Object) -> None:
    meta = wanted["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    ctx = server.context()
    existing = server.storage.find(res, namespace, name)
    if existing is not None and (existing["metadata"].get("annotations") or {}).get(_AUTO_UPDATE) == "false":
        return
    if existing is not None and "roleRef" in wanted and existing.get("roleRef") != wanted["roleRef"]:
        # A role reference cannot change; the binding is made anew.
        await server.storage.delete(ctx, res, namespace, name, {})
        existing = None
    if existing is None:
        obj = res.ops.normalise(wanted)
        res.ops.default(obj)
        writes.own_fields(ctx, res, obj, None)
        await server.storage.create(ctx, res, namespace, res.ops.to_storage(obj))
        return
    if completed(existing, wanted) is None:
        return

    def transform(old: Object | None) -> Object:
        assert old is not None
        new = completed(old, wanted) or copy_object(old)
        writes.own_fields(ctx, res, new, copy_object(old))
        return new

    await server.storage.update(ctx, res, namespace, name, transform, reread=True)


def completed(existing: Object, wanted: Object) -> Object | None:
    """The stored object with what the policy wants added, or None when nothing is missing."""
    new = copy_object(existing)
    meta = new["metadata"]
    for field in ("annotations", "labels"):
        merged = {**(wanted["metadata"].get(field) or {}), **(meta.get(field) or {})}
        if merged:
            meta[field] = merged
    lacking = rbac.missing(existing.get("rules") or [], wanted.get("rules") or [])
    if lacking:
        new["rules"] = [*(existing.get("rules") or []), *lacking]
    if "aggregationRule" in wanted or "aggregationRule" in existing:
        _complete_aggregation(new, wanted)
    subjects = existing.get("subjects") or []
    absent = [s for s in wanted.get("subjects") or [] if s not in subjects]
    if absent:
        new["subjects"] = [*subjects, *absent]
    return None if new == existing else new


def _complete_aggregation(new: Object, wanted: Object) -> None:
    if "aggregationRule" not in wanted:
        del new["aggregationRule"]
        return
    chosen = (new.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    lacking = [s for s in wanted["aggregationRule"]["clusterRoleSelectors"] if s not in chosen]
    if lacking or "aggregationRule" not in new:
        new["aggregationRule"] = {"clusterRoleSelectors": [*chosen, *lacking]}
