"""Reconciles the bootstrap policy: restores missing roles, bindings, rules and subjects at each
start.

Additions by an administrator are kept; the annotation `rbac.authorization.kubernetes.io/autoupdate:
"false"` excludes an object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from transom.apiserver.authorization import bootstrap_policy as policy
from transom.apiserver.core.bodies import own_fields
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.resources import Resource
from transom.machinery import rbac
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, copy_object
from transom.machinery.releases import Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.bootstrap import PolicyObject, monitoring_rules, policy_objects
from transom.machinery.releases.features import FeatureSet

_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AT_ONCE = 64  # the number of writes in one batch


async def reconcile_bootstrap_roles(loopback: Loopback) -> None:
    """ClusterRoles first: a client that sees a binding also finds its role."""
    for plural, objects in bootstrap_objects(loopback.resources.types.features):
        res = loopback.resources.require(rbac.GROUP, "v1", plural)
        for start in range(0, len(objects), _AT_ONCE):
            await asyncio.gather(
                *(_reconcile_one(loopback, res, obj) for obj in objects[start : start + _AT_ONCE])
            )


def bootstrap_objects(features: FeatureSet) -> Iterator[tuple[str, list[Object]]]:
    """The objects of the release, by resource."""
    if has_tables(features.release):
        found = list(_release_objects(features))
        for plural, kind in (
            ("clusterroles", "ClusterRole"),
            ("clusterrolebindings", "ClusterRoleBinding"),
            ("roles", "Role"),
            ("rolebindings", "RoleBinding"),
        ):
            yield plural, [obj for of, obj in found if of == kind]
        return
    yield "clusterroles", list(bootstrap_cluster_roles())
    yield "clusterrolebindings", list(bootstrap_cluster_bindings())
    yield "roles", list(bootstrap_namespace_roles())
    yield "rolebindings", list(bootstrap_namespace_bindings())


def _release_objects(features: FeatureSet) -> Iterator[tuple[str, Object]]:
    known: dict[str, Object] = {}
    aggregated: list[PolicyObject] = []
    for found in policy_objects(features.release):
        obj = _object(found.name, found.namespace)
        obj["metadata"]["labels"].update(dict.fromkeys(found.labels, "true"))
        if found.role:
            kind = "Role" if found.namespace else "ClusterRole"
            yield found.kind, _binding(obj, kind, found.role, found.subjects)
            continue
        obj["rules"] = [dict(rule) for rule in found.rules]
        if found.name == "system:monitoring":
            obj["rules"] = monitoring_rules(obj["rules"], features)
        if found.aggregates:
            selectors = [{"matchLabels": {label: "true"}} for label in found.aggregates]
            obj["aggregationRule"] = {"clusterRoleSelectors": selectors}
            aggregated.append(found)
        if found.kind == "ClusterRole":
            known[found.name] = obj
        else:
            yield found.kind, obj
    # A role that others aggregate comes before them: view, then edit, then admin.
    for found in sorted(aggregated, key=lambda o: o.name, reverse=True):
        role = known[found.name]
        others = [obj for name, obj in known.items() if name != found.name]
        role["rules"] = rbac.aggregated_rules(role, others)
    for obj in known.values():
        yield "ClusterRole", obj


# ---- the objects ----


def bootstrap_cluster_roles() -> Iterator[Object]:
    plain = [_object(name, rules=list(rules)) for name, rules in policy.CLUSTER_ROLES.items()]
    plain += [
        _object(f"system:controller:{name}", rules=list(r))
        for name, r in policy.CONTROLLER_ROLES.items()
    ]
    known = {obj["metadata"]["name"]: obj for obj in plain}
    # A role that others aggregate comes before them: view, then edit, then admin.
    for name, label in reversed(policy.AGGREGATED_ROLES.items()):
        selector = {"matchLabels": {f"{rbac.GROUP}/{label}": "true"}}
        role = _object(name, aggregationRule={"clusterRoleSelectors": [selector]})
        role["rules"] = rbac.aggregated_rules(role, known.values())
        known[name] = role
    yield from known.values()
    for name, rules in policy.LATER_ROLES.items():
        yield {
            "metadata": {"name": name, "annotations": {_AUTO_UPDATE: "true"}},
            "rules": list(rules),
        }


def bootstrap_cluster_bindings() -> Iterator[Object]:
    for name, subjects in policy.CLUSTER_BINDINGS.items():
        yield _binding(_object(name), "ClusterRole", name, subjects)
    for name in policy.CONTROLLER_ROLES:
        full = f"system:controller:{name}"
        yield _binding(_object(full), "ClusterRole", full, f"ServiceAccount:{name}")
    for name, subjects in policy.LATER_BINDINGS.items():
        meta = {"name": name, "annotations": {_AUTO_UPDATE: "true"}}
        yield _binding({"metadata": meta}, "ClusterRole", name, subjects)


def bootstrap_namespace_roles() -> Iterator[Object]:
    for (namespace, name), rules in policy.NAMESPACE_ROLES.items():
        yield _object(name, namespace, rules=list(rules))


def bootstrap_namespace_bindings() -> Iterator[Object]:
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


# ---- reconciliation with stored roles ----


async def _reconcile_one(loopback: Loopback, res: Resource, wanted: Object) -> None:
    meta = wanted["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    ctx = loopback.context()
    existing = loopback.storage.find(res, namespace, name)
    if (
        existing is not None
        and (existing["metadata"].get("annotations") or {}).get(_AUTO_UPDATE) == "false"
    ):
        return
    if (
        existing is not None
        and "roleRef" in wanted
        and existing.get("roleRef") != wanted["roleRef"]
    ):
        # A role reference is immutable, so recreate the binding.
        await loopback.storage.delete(ctx, res, namespace, name, {})
        existing = None
    if existing is None:
        obj = res.ops.normalise(wanted)
        res.ops.default(obj)
        own_fields(ctx, res, obj, None)
        if obj.get("aggregationRule") and obj["metadata"].get("managedFields"):
            _give_rules_to_controller(obj, res.release)
        try:
            await loopback.storage.create(ctx, res, namespace, res.ops.to_storage(obj))
        except ApiError as problem:  # another server of the cluster starts at the same time
            if problem.reason != "AlreadyExists":
                raise
        return
    if completed_role(existing, wanted) is None:
        return

    def transform(old: Object | None) -> Object:
        assert old is not None
        new = completed_role(old, wanted) or copy_object(old)
        own_fields(ctx, res, new, copy_object(old))
        return new

    await loopback.storage.update(ctx, res, namespace, name, transform, reread=True)


def _give_rules_to_controller(role: Object, release: Release) -> None:
    """The rules of an aggregated role are there from the start, as if the controller had written
    them.
    """
    fields = dict(role["metadata"]["managedFields"][0]["fieldsV1"])
    rules = {"f:rules": fields.pop("f:rules", {})}
    own = {**role["metadata"]["managedFields"][0], "fieldsV1": fields}
    if has_behaviour(release, "AppliedRoleRules"):
        theirs = {**own, "manager": rbac.AGGREGATION_MANAGER, "operation": "Apply"}
        entries = [{**theirs, "fieldsV1": rules}, own]
    else:
        entries = [own, {**own, "manager": "kube-controller-manager", "fieldsV1": rules}]
    role["metadata"]["managedFields"] = entries


def completed_role(existing: Object, wanted: Object) -> Object | None:
    """The stored object with the policy's missing parts added, or None if it is complete."""
    new = copy_object(existing)
    meta = new["metadata"]
    for field in ("annotations", "labels"):
        merged = {**(wanted["metadata"].get(field) or {}), **(meta.get(field) or {})}
        if merged:
            meta[field] = merged
    lacking = rbac.uncovered_rules(existing.get("rules") or [], wanted.get("rules") or [])
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
