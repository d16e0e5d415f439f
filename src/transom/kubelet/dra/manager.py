"""Prepares the resource claims of pods with their drivers, and releases them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.client.resources import GroupVersionResource
from transom.kit.rpc import RpcError
from transom.kubelet.base import KubeletContext
from transom.kubelet.dra.claims import ClaimCache, ClaimInfo, Device
from transom.kubelet.dra.drivers import (
    DraDriverRegistry,
    DriverNotRegistered,
    ObserveCall,
    RegisteredDraDriver,
)
from transom.kubelet.dra.references import (
    PodClaimError,
    check_owner,
    check_reserved,
    container_requests,
    pod_claims,
)
from transom.kubelet.failures import ClaimFailure
from transom.kubelet.podstate import uid_of
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

if TYPE_CHECKING:  # the tables are first needed by a pod with a claim
    from transom.machinery.protobuf.table import Message

log = logging.getLogger("transom.kubelet")

STATE_FILE: Final = "dra_manager_state"
RESOURCE_CLAIMS: Final = GroupVersionResource(
    "resource.k8s.io", "v1", "resourceclaims", True, "ResourceClaim"
)
_RECONCILE_SECONDS: Final = 60.0
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0

ObserveOperation = Callable[[str, bool, float], None]
"""`observe(operation, failed, seconds)`."""


class DynamicResourceManager:
    """`active` returns the pods that have not ended. Raises ValueError if the state is damaged."""

    def __init__(
        self,
        env: KubeletContext,
        active: Callable[[], Sequence[Object]],
        ready: Callable[[], bool],
        observe_operation: ObserveOperation,
        observe_call: ObserveCall,
    ) -> None:
        self._env = env
        self._active = active
        self._ready = ready
        self._observe = observe_operation
        self._in_use = asyncio.Event()
        self._lock = asyncio.Lock()
        self._wipes: asyncio.Queue[str] = asyncio.Queue()
        self.drivers = DraDriverRegistry(env, self._wipes.put_nowait, observe_call)
        self._cache = ClaimCache(env.host.files, env.os.join(env.config.root_dir, STATE_FILE))

    # ---- claims of pods ----

    async def prepare(self, pod: Object) -> None:
        """Raises ClaimFailure."""
        if not _uses_claims(pod):
            return
        begin, failed = self._env.clock.monotonic(), True
        try:
            await self._prepare(pod)
            failed = False
        except (ApiError, PodClaimError, DriverNotRegistered, OSError, RpcError) as problem:
            raise ClaimFailure(f"prepare dynamic resources: {problem}") from problem
        finally:
            self._observe("PrepareResources", failed, self._env.clock.monotonic() - begin)

    async def _prepare(self, pod: Object) -> None:
        found: list[ClaimInfo] = []
        drivers: dict[str, RegisteredDraDriver] = {}
        for _, name, owned in pod_claims(pod):
            claim = await self._claim(pod, name, owned)
            found.append(claim)
            for driver in claim.drivers:
                drivers[driver] = self.drivers.get(driver)
        async with self._lock:
            batches: dict[str, list[ClaimInfo]] = {}
            for claim in found:
                known = self._add(claim, uid_of(pod))
                if not known.prepared:
                    for driver in known.drivers:
                        batches.setdefault(driver, []).append(known)
            self._save("checkpoint ResourceClaim cache")
            for driver, claims in batches.items():
                await self._prepare_batch(drivers[driver], claims)
            for claims in batches.values():
                for claim in claims:
                    claim.prepared = True
            self._save("checkpoint ResourceClaim state")

    async def _claim(self, pod: Object, name: str, owned: bool) -> ClaimInfo:
        try:
            claim = await self._env.client.get(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name)
        except (ApiError, OSError) as problem:
            raise PodClaimError(f"fetch ResourceClaim {name}: {problem}") from problem
        if owned:
            check_owner(pod, claim)
        check_reserved(pod, claim)
        meta, allocation = claim["metadata"], (claim.get("status") or {}).get("allocation")
        if allocation is None:
            raise PodClaimError(f"ResourceClaim {name}: not allocated")
        results = (allocation.get("devices") or {}).get("results") or ()
        drivers: dict[str, list[Device]] = {result["driver"]: [] for result in results}
        return ClaimInfo(meta["uid"], meta["namespace"], name, drivers)

    def _add(self, claim: ClaimInfo, pod: str) -> ClaimInfo:
        known = self._cache.get(claim.namespace, claim.name)
        if known is None:
            known = claim
            self._cache.add(known)
            self._in_use.set()
        elif known.uid != claim.uid:
            raise PodClaimError(
                f"old ResourceClaim with same name {claim.name} and different UID {known.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        known.pods.add(pod)
        return known

    async def _prepare_batch(
        self, driver: RegisteredDraDriver, claims: Sequence[ClaimInfo]
    ) -> None:
        results = await self._call(driver, "NodePrepareResources", claims)
        for claim in claims:
            claim.drivers[driver.name] = [
                Device(
                    row.get("pool_name") or "",
                    row.get("device_name") or "",
                    tuple(row.get("request_names") or ()),
                    tuple(row.get("cdi_device_ids") or ()),
                    row.get("share_id") or "",
                )
                for row in results[claim.uid].get("devices") or ()
            ]

    async def _call(
        self, driver: RegisteredDraDriver, method: str, claims: Sequence[ClaimInfo]
    ) -> dict[str, Message]:
        """A result for each of the claims. Raises RpcError, ClaimProblem."""
        rows = [{"namespace": c.namespace, "uid": c.uid, "name": c.name} for c in claims]
        try:
            results = await self.drivers.call(driver, method, rows)
        except RpcError as problem:
            raise PodClaimError(f"{method}: {problem}") from problem
        names = {claim.uid: claim.name for claim in claims}
        for uid, result in results.items():
            if uid not in names:
                raise PodClaimError(f"{method} returned result for unknown claim UID {uid}")
            if error := result.get("error"):
                raise PodClaimError(f"{method} failed for ResourceClaim {names[uid]}: {error}")
        if missing := len(claims) - len(results):
            raise PodClaimError(f"{method} skipped {missing} ResourceClaims")
        return results

    def cdi_devices(self, pod: Object, container: Object) -> tuple[str, ...]:
        """The CDI names of the container's devices. Raises ClaimFailure."""
        out: dict[str, None] = {}
        namespace = pod["metadata"]["namespace"]
        try:
            for name, request in container_requests(pod, container):
                claim = self._cache.get(namespace, name)
                if claim is None:
                    raise ClaimFailure(
                        f"internal error: unable to get claim info for ResourceClaim {name} in "
                        f"namespace {namespace}"
                    )
                out.update(dict.fromkeys(claim.cdi_names(request)))
        except PodClaimError as problem:
            raise ClaimFailure(str(problem)) from problem
        return tuple(out)

    def resource_health(self, pod: Object, container: Object) -> list[Object]:
        """Of the devices of the container's claims. Drivers are not asked for the health of their
        devices, which is therefore unknown.
        """
        try:
            names = {entry: name for entry, name, _ in pod_claims(pod)}
        except PodClaimError:
            return []
        out: list[Object] = []
        for used in container["resources"]["claims"]:
            claim = self._cache.get(pod["metadata"]["namespace"], names.get(used["name"], ""))
            if claim is None:
                continue
            request = used.get("request") or ""
            ids = [
                device.cdi_names[0] if device.cdi_names else f"{driver}/{device.pool}/{device.name}"
                for driver, device in claim.devices(request.partition("/")[0])
            ]
            if ids:
                resources = [{"resourceID": one, "health": "Unknown"} for one in dict.fromkeys(ids)]
                name = f"claim:{used['name']}/{request}" if request else f"claim:{used['name']}"
                out.append({"name": name, "resources": resources})
        return out

    def claimed_devices(self, pod: Object, container: Object) -> list[dict[str, Any]]:
        """As messages of the pod resources API."""
        out: list[dict[str, Any]] = []
        for name, request in container_requests(pod, container):
            claim = self._cache.get(pod["metadata"]["namespace"], name)
            if claim is None:
                continue
            devices = [
                {
                    "cdi_devices": [{"name": one} for one in device.cdi_names],
                    "driver_name": driver,
                    "pool_name": device.pool,
                    "device_name": device.name,
                    "share_id": device.share,
                }
                for driver, device in claim.devices(request)
            ]
            out.append(
                {
                    "claim_name": claim.name,
                    "claim_namespace": claim.namespace,
                    "claim_resources": devices,
                }
            )
        return out

    async def unprepare(self, uid: str) -> None:
        """After the pod's containers have ended. Raises ClaimFailure."""
        if not len(self._cache) or not self._cache.of_pod(uid):
            return
        begin, failed = self._env.clock.monotonic(), True
        try:
            await self._unprepare(uid)
            failed = False
        except (PodClaimError, DriverNotRegistered, OSError, RpcError) as problem:
            raise ClaimFailure(f"unprepare dynamic resources: {problem}") from problem
        finally:
            self._observe("UnprepareResources", failed, self._env.clock.monotonic() - begin)

    async def _unprepare(self, uid: str) -> None:
        async with self._lock:
            batches: dict[str, list[ClaimInfo]] = {}
            last = []
            for claim in self._cache.of_pod(uid):
                if len(claim.pods) > 1:
                    claim.pods.discard(uid)
                    continue
                last.append(claim)
                for driver in claim.drivers:
                    batches.setdefault(driver, []).append(claim)
            for driver, claims in batches.items():
                await self._call(self.drivers.get(driver), "NodeUnprepareResources", claims)
            for claim in last:
                self._cache.delete(claim)
            self._save("checkpoint ResourceClaim state")

    def _save(self, what: str) -> None:
        try:
            self._cache.save()
        except OSError as problem:
            raise PodClaimError(f"{what}: {problem.strerror}") from problem

    # ---- in the background ----

    async def run(self) -> None:
        """Runs until cancelled. Drivers publish their ResourceSlices again after the kubelet has
        started.
        """
        if len(self._cache):
            self._in_use.set()
        self._wipes.put_nowait("")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._delete_slices())
                group.create_task(self._reconcile())
        finally:
            self.drivers.stop()

    async def _delete_slices(self) -> None:
        while True:
            name = await self._wipes.get()
            wait = _FIRST_WAIT
            while not await self.drivers.delete_slices(name):
                await self._env.clock.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)

    async def _reconcile(self) -> None:
        """Releases claims of pods that ended without this kubelet."""
        while True:
            await self._in_use.wait()
            await self._env.clock.sleep(_RECONCILE_SECONDS)
            if not self._ready():
                continue
            active = {uid_of(pod) for pod in self._active()}
            gone = {uid for claim in self._cache for uid in claim.pods if uid not in active}
            for uid in sorted(gone):
                try:
                    await self.unprepare(uid)
                except ClaimFailure as failure:
                    log.info("pod %s, which has ended: %s", uid, failure)
            if not len(self._cache):
                self._in_use.clear()


def _uses_claims(pod: Object) -> bool:
    return bool(
        pod["spec"].get("resourceClaims")
        or (pod.get("status") or {}).get("extendedResourceClaimStatus")
    )
