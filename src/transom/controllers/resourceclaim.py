"""ResourceClaims: creates the claims of pods that use a ResourceClaimTemplate, and frees claims
whose pods have ended.
"""

from __future__ import annotations

from typing import Final

from transom.client.api import APPLY_PATCH, is_not_found
from transom.client.events import WARNING
from transom.client.resources import PODS, GroupVersionResource
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.ownership import index_by_controller, owned_objects
from transom.controllers.pods import assigned_node, is_pod_terminating, pod_phase
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of

_GROUP: Final = "resource.k8s.io"
RESOURCE_CLAIMS: Final = GroupVersionResource(_GROUP, "v1", "resourceclaims", True, "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES: Final = GroupVersionResource(
    _GROUP, "v1", "resourceclaimtemplates", True, "ResourceClaimTemplate"
)
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
_FIELD_MANAGER: Final = "ResourceClaimController"
_LONGEST_BASE: Final = 57  # a hyphen and five random characters follow
_MAX_RESERVED: Final = 256
_WORKERS: Final = 10


class _ClaimFailed(Exception):
    """Why the claim of a pod cannot be created."""


def is_pod_done(pod: Object) -> bool:
    """Whether the pod does not use its claims any more."""
    return pod_phase(pod) in ("Failed", "Succeeded") or (
        is_pod_terminating(pod) and not assigned_node(pod)
    )


def _reservations(claim: Object) -> list[Object]:
    found: list[Object] = (claim.get("status") or {}).get("reservedFor") or []
    return found


def _generate_name(pod: str, claim: str) -> str:
    full = f"{pod}-{claim}-"
    if len(full) <= _LONGEST_BASE:
        return full
    return (
        pod[: len(pod) * _LONGEST_BASE // len(full)]
        + "-"
        + claim[: len(claim) * _LONGEST_BASE // len(full)]
    )


class ResourceClaims:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._events = env.recorder("resource_claim")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="resource_claim", metrics=env.queues
        )
        self._pods = env.informers(PODS)
        self._claims = env.informers(RESOURCE_CLAIMS)
        self._templates = env.informers(RESOURCE_CLAIM_TEMPLATES)
        index_by_controller(self._claims)
        self._pods.add_handler(
            add=self._pod_changed,
            update=lambda _, new: self._pod_changed(new),
            delete=self._pod_changed,
        )
        self._claims.add_handler(
            add=self._claim_changed,
            update=lambda _, new: self._claim_changed(new),
            delete=self._claim_changed,
        )
        self._templates.add_handler(add=self._template_added)

    async def run(self) -> None:
        needs = (self._pods, self._claims, self._templates)
        await run_worker(self._queue, self._sync, needs, _WORKERS)

    # ---- event handlers ----

    def _pod_changed(self, pod: Object) -> None:
        for claim in owned_objects(self._claims, pod["metadata"]["uid"]):
            self._queue.add(f"claim:{object_key(claim)}")
        entries = pod["spec"].get("resourceClaims")
        if not entries:
            return
        for entry in entries:
            if entry.get("resourceClaimName"):
                where = f"{pod['metadata']['namespace']}/{entry['resourceClaimName']}"
                self._queue.add(f"claim:{where}")
        self._queue.add(f"pod:{object_key(pod)}")

    def _claim_changed(self, claim: Object) -> None:
        self._queue.add(f"claim:{object_key(claim)}")
        owner = controller_of(claim)
        if owner is not None and owner.get("kind") == "Pod":
            self._queue.add(f"pod:{claim['metadata']['namespace']}/{owner['name']}")

    def _template_added(self, template: Object) -> None:
        meta = template["metadata"]
        for pod in self._pods.list(meta["namespace"]):
            if any(
                entry.get("resourceClaimTemplateName") == meta["name"]
                for entry in pod["spec"].get("resourceClaims") or ()
            ):
                self._queue.add(f"pod:{object_key(pod)}")

    async def _sync(self, item: str) -> None:
        kind, _, key = item.partition(":")
        if kind == "pod":
            await self._sync_pod(key)
        else:
            await self._sync_claim(key)

    # ---- pods ----

    async def _sync_pod(self, key: str) -> None:
        pod = self._pods.by_key(key)
        if pod is None or is_pod_terminating(pod) or not pod["spec"].get("resourceClaims"):
            return
        made: dict[str, str] = {}
        for entry in pod["spec"]["resourceClaims"]:
            try:
                name = await self._ensure_claim(pod, entry)
            except (_ClaimFailed, ApiError) as problem:
                message = f"PodResourceClaim {entry['name']}: {problem}"
                self._events.event(pod, WARNING, "FailedResourceClaimCreation", message)
                raise RetryLater(f"pod {key}, {message}") from problem
            if name:
                made[entry["name"]] = name
        if made:
            await self._write_names(pod, made)
        if assigned_node(pod):
            await self._reserve(pod)

    def _status_of(self, pod: Object, entry: Object) -> Object | None:
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
            if status["name"] == entry["name"]:
                found: Object = status
                return found
        return None

    async def _ensure_claim(self, pod: Object, entry: Object) -> str:
        """The name of the claim of a template, if the pod's status does not have it yet."""
        template_name = entry.get("resourceClaimTemplateName")
        if template_name is None:
            return ""
        meta = pod["metadata"]
        status = self._status_of(pod, entry)
        if status is not None:
            name = status.get("resourceClaimName")
            claim = self._claims.get(meta["namespace"], name) if name else None
            if name is None or (claim is not None and self._is_of_pod(claim, pod)):
                return ""
        for claim in owned_objects(self._claims, meta["uid"]):
            annotations = claim["metadata"].get("annotations") or {}
            if annotations.get(POD_CLAIM_NAME) == entry["name"]:
                return str(claim["metadata"]["name"])
        template = self._templates.get(meta["namespace"], template_name)
        if template is None:
            raise _ClaimFailed(
                f'resource claim template "{template_name}": '
                f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
        claim = await self._client.create(
            RESOURCE_CLAIMS, meta["namespace"], _claim_of_template(pod, entry, template)
        )
        return str(claim["metadata"]["name"])

    def _is_of_pod(self, claim: Object, pod: Object) -> bool:
        owner = controller_of(claim)
        return owner is not None and owner.get("uid") == pod["metadata"]["uid"]

    async def _write_names(self, pod: Object, made: dict[str, str]) -> None:
        meta = pod["metadata"]
        statuses = [
            {"name": name, "resourceClaimName": claim} for name, claim in sorted(made.items())
        ]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "status": {"resourceClaimStatuses": statuses},
        }
        await self._client.patch(
            PODS,
            meta["namespace"],
            meta["name"],
            body,
            APPLY_PATCH,
            subresource="status",
            field_manager=_FIELD_MANAGER,
            force=True,
        )

    async def _reserve(self, pod: Object) -> None:
        """Reserves allocated claims for a pod that was assigned without the scheduler."""
        meta = pod["metadata"]
        for entry in pod["spec"]["resourceClaims"]:
            name = entry.get("resourceClaimName")
            if name is None:
                name = (self._status_of(pod, entry) or {}).get("resourceClaimName")
            claim = self._claims.get(meta["namespace"], name) if name else None
            if claim is None or (claim.get("status") or {}).get("allocation") is None:
                continue
            users = _reservations(claim)
            if any(user.get("uid") == meta["uid"] for user in users) or is_pod_done(pod):
                continue
            if len(users) < _MAX_RESERVED:
                user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
                status = {**claim["status"], "reservedFor": [*users, user]}
                await self._client.update_status(RESOURCE_CLAIMS, {**claim, "status": status})

    # ---- claims ----

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.by_key(key)
        if claim is None:
            return
        users = _reservations(claim)
        remaining = [user for user in users if await self._still_uses(claim, user)]
        protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(remaining) < len(users):
            claim = await self._release(claim, remaining, protected)
        elif protected and is_pod_terminating(claim) and not remaining:
            claim = await self._release(claim, [], True)
        if not remaining:
            await self._delete_unused(claim)

    async def _still_uses(self, claim: Object, user: Object) -> bool:
        if user.get("apiGroup") or user.get("resource") != "pods":
            return True
        namespace = claim["metadata"]["namespace"]
        pod = self._pods.get(namespace, user["name"])
        if pod is None:
            try:
                pod = await self._client.get(PODS, namespace, user["name"])
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
                return False
        return bool(pod["metadata"]["uid"] == user.get("uid")) and not is_pod_done(pod)

    async def _release(self, claim: Object, remaining: list[Object], protected: bool) -> Object:
        status = {
            name: value
            for name, value in (claim.get("status") or {}).items()
            if name != "reservedFor"
        }
        if remaining:
            status["reservedFor"] = remaining
        elif protected:
            status.pop("allocation", None)
        if status != (claim.get("status") or {}):
            claim = await self._client.update_status(RESOURCE_CLAIMS, {**claim, "status": status})
        meta = claim["metadata"]
        if protected and (claim.get("status") or {}).get("allocation") is None:
            finalizers = [name for name in meta.get("finalizers") or () if name != FINALIZER]
            rest = {k: v for k, v in meta.items() if k != "finalizers"}
            if finalizers:
                rest["finalizers"] = finalizers
            claim = await self._client.update(RESOURCE_CLAIMS, {**claim, "metadata": rest})
        return claim

    async def _delete_unused(self, claim: Object) -> None:
        """Deletes a generated claim whose pod has ended; if the pod is gone, the garbage collector
        does it.
        """
        meta, owner = claim["metadata"], controller_of(claim)
        if owner is None or owner.get("kind") != "Pod" or is_pod_terminating(claim):
            return
        pod = self._pods.get(meta["namespace"], owner["name"])
        if pod is None or (pod["metadata"]["uid"] == owner["uid"] and not is_pod_done(pod)):
            return
        try:
            await self._client.delete(RESOURCE_CLAIMS, meta["namespace"], meta["name"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise


def _claim_of_template(pod: Object, entry: Object, template: Object) -> Object:
    meta, given = pod["metadata"], template["spec"].get("metadata") or {}
    claim_meta: Object = {
        "generateName": _generate_name(meta["name"], entry["name"]),
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ],
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: entry["name"]},
    }
    if given.get("labels"):
        claim_meta["labels"] = given["labels"]
    return {"metadata": claim_meta, "spec": template["spec"]["spec"]}
