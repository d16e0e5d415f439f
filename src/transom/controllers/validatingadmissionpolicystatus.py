"""Type checking of validating admission policies: the status warns about expressions that do not
fit the types that the policy matches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from transom.client.api import APPLY_PATCH, is_not_found
from transom.client.resources import GroupVersionResource
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.lazy import lazy_import
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object

# The CEL engine, which clusters without policies do not need.
if TYPE_CHECKING:
    from transom.machinery.cel import typechecking
else:
    typechecking = lazy_import("transom.machinery.cel.typechecking")

_GROUP: Final = "admissionregistration.k8s.io"
_KIND: Final = "ValidatingAdmissionPolicy"
_MANAGER: Final = "validatingadmissionpolicy-status"
POLICIES: Final = GroupVersionResource(_GROUP, "v1", "validatingadmissionpolicies", False, _KIND)


class ValidatingAdmissionPolicyStatus:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._release = env.settings.release
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="validatingadmissionpolicy-status", metrics=env.queues
        )
        self._policies = env.informers(POLICIES)
        self._policies.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=lambda _: None
        )

    def _changed(self, policy: Object) -> None:
        self._queue.add(policy["metadata"]["name"])

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._policies,), 1)

    async def _sync(self, name: str) -> None:
        policy = self._policies.get("", name)
        if policy is None:
            return
        generation = policy["metadata"].get("generation", 0)
        if generation <= (policy.get("status") or {}).get("observedGeneration", 0):
            return
        kinds = await self._kinds(policy)
        params = await self._params(policy)
        warnings = await asyncio.to_thread(
            typechecking.check_policy_types, self._release, policy, kinds, params
        )
        checked: Object = {"expressionWarnings": warnings} if warnings else {}
        body = {
            "apiVersion": POLICIES.api_version,
            "kind": _KIND,
            "metadata": {"name": name},
            "status": {"observedGeneration": generation, "typeChecking": checked},
        }
        await self._client.patch(
            POLICIES,
            "",
            name,
            body,
            APPLY_PATCH,
            subresource="status",
            field_manager=_MANAGER,
            force=True,
        )

    async def _kinds(self, policy: Object) -> list[typechecking.CheckedType]:
        """The kinds that the rules name; rules with wildcards are not checked."""
        found: dict[GVK, typechecking.CheckedType] = {}
        rules = (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ()
        for rule in rules:
            groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
            if any("*" in text for text in (*groups, *versions)):
                continue
            count = 0
            resources = [r for r in rule.get("resources") or () if "*" not in r and "/" not in r]
            for group in sorted(groups):
                for version in sorted(versions):
                    listed = await self._listed(group, version)
                    for resource in sorted(resources):
                        kind = listed.get(resource)
                        if kind is None:
                            continue
                        found[kind] = await self._checked(kind)
                        count += 1
                        if count == typechecking.MOST_TYPES:
                            return [found[key] for key in sorted(found)]
        return [found[key] for key in sorted(found)]

    async def _listed(self, group: str, version: str) -> dict[str, GVK]:
        """The kinds of a group version by resource, empty if it is not served."""
        document = await self._document(f"/apis/{group}/{version}" if group else f"/api/{version}")
        return {
            row["name"]: GVK(group, version, row["kind"])
            for row in listed_resources(document)
            if "/" not in row["name"]
        }

    async def _checked(self, kind: GVK) -> typechecking.CheckedType:
        """The kind with its schema, if it is a custom one."""
        if "." not in kind.group or kind.group.endswith(".k8s.io"):
            return typechecking.CheckedType(kind)
        document = await self._document(f"/openapi/v3/apis/{kind.group}/{kind.version}")
        schemas = (document.get("components") or {}).get("schemas") or {}
        named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        for schema in schemas.values():
            if named in (schema.get("x-kubernetes-group-version-kind") or ()):
                return typechecking.CheckedType(kind, schema)
        return typechecking.CheckedType(kind)

    async def _params(self, policy: Object) -> typechecking.CheckedType | None:
        kind = policy["spec"].get("paramKind")
        if kind is None:
            return None
        group, _, version = kind.get("apiVersion", "").rpartition("/")
        return await self._checked(GVK(group, version, kind.get("kind", "")))

    async def _document(self, path: str) -> Any:
        try:
            return await self._client.get_json(path)
        except ApiError as problem:
            if is_not_found(problem):
                return {}
            raise
