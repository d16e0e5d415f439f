"""One sync of one StatefulSet: which pods to create, wait for or delete, and the resulting status.

The order matters: a pod is created when all its predecessors are running and ready, and deleted
when all its successors are gone, unless the set allows parallel management.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from transom.client.api import ApiClient, is_already_exists, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder
from transom.client.informer import Informer
from transom.client.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from transom.client.workqueue import RetryLater
from transom.controllers import history, pods
from transom.controllers.percent import scaled_value
from transom.controllers.statefulset import identity, retention
from transom.controllers.statefulset.features import StatefulSetFeatures
from transom.controllers.statefulset.identity import ordinal_of, revision_of
from transom.kit.large_work import compute_for_object
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_MOST_CREATED = 500  # pods per sync, like the burst size of other controllers
_COUNTS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas")
_COMPARED = (*_COUNTS, "availableReplicas", "currentRevision", "updateRevision")
_ROLLING, _ON_DELETE = "RollingUpdate", "OnDelete"


class ClaimsFailed(RetryLater):
    """The storage of a pod cannot be created."""


def _runs(pod: Object) -> bool:
    return pods.pod_phase(pod) == "Running" and pods.is_pod_ready(pod)


def _is_healthy(pod: Object) -> bool:
    return _runs(pod) and not pods.is_pod_terminating(pod)


def _is_created(pod: Object) -> bool:
    return bool(pods.pod_phase(pod))


class StatefulSetUpdate:
    def __init__(
        self,
        client: ApiClient,
        events: EventRecorder,
        claims: Informer,
        stateful_set: Object,
        mine: Sequence[Object],
        revisions: Sequence[Object],
        features: StatefulSetFeatures,
        now: float,
    ) -> None:
        self._features = features
        self._now = now
        self._client = client
        self._events = events
        self._claims = claims
        self._set = stateful_set
        self._pods = mine
        self._revisions = history.sorted_revisions(revisions)
        self._collisions: int = (stateful_set.get("status") or {}).get("collisionCount") or 0

    async def sync(self) -> None:
        current, update = await self._current_and_update()
        try:
            status = await self._manage(current, update)
            await self._write_status(status)
        except Exception:
            await self._truncate_history(current, update)
            raise
        await self._truncate_history(current, update)

    # ---- revisions ----

    async def _current_and_update(self) -> tuple[Object, Object]:
        revisions = self._revisions
        following = history.revision_number(revisions[-1]) + 1 if revisions else 1
        update = await compute_for_object(
            self._set,
            partial(
                history.planned_revision, self._set, STATEFUL_SETS, following, self._collisions
            ),
        )
        equal = [revision for revision in revisions if history.same_revision_data(revision, update)]
        if not equal:
            update, self._collisions = await history.create_revision(
                self._client, self._set, update, self._collisions
            )
        elif history.same_revision_data(revisions[-1], equal[-1]):
            update = revisions[-1]
        else:
            update = await history.renumber_revision(self._client, equal[-1], following)
        name = (self._set.get("status") or {}).get("currentRevision")
        current = next(
            (revision for revision in revisions if revision["metadata"]["name"] == name), update
        )
        return current, update

    async def _truncate_history(self, current: Object, update: Object) -> None:
        live = {
            current["metadata"]["name"],
            update["metadata"]["name"],
            *(revision_of(pod) for pod in self._pods),
        }
        past = [
            revision for revision in self._revisions if revision["metadata"]["name"] not in live
        ]
        limit = self._set["spec"].get("revisionHistoryLimit", 10)
        for revision in past[: max(len(past) - limit, 0)]:
            meta = revision["metadata"]
            try:
                await self._client.delete(CONTROLLER_REVISIONS, meta["namespace"], meta["name"])
            except ApiError as problem:
                if not is_not_found(problem):
                    raise

    # ---- pods ----

    async def _manage(self, current: Object, update: Object) -> Object:
        """Performs all steps that are possible now; returns the new status."""
        stateful_set, spec = self._set, self._set["spec"]
        names = current["metadata"]["name"], update["metadata"]["name"]
        count = spec.get("replicas", 0)
        status: Object = {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "currentRevision": names[0],
            "updateRevision": names[1],
            "collisionCount": self._collisions,
            **dict.fromkeys(_COUNTS, 0),
        }
        if self._features.available:
            status["availableReplicas"] = 0
        found, condemned = self._count_pods(status, count)
        if "deletionTimestamp" in stateful_set["metadata"]:
            return status
        healthy = len(found) == count and all(map(_is_healthy, found.values()))
        first_unhealthy = next((pod for pod in condemned if not _is_healthy(pod)), None)
        if not healthy:
            first_unhealthy = None  # it is within the desired replicas
        ordered = spec.get("podManagementPolicy") != "Parallel"
        replicas: list[Object] = []
        await self._apply_retention(condemned)
        if await self._sync_replicas(
            current, update, found, replicas, status, ordered
        ) and await self._scale_down(condemned, first_unhealthy, status, ordered):
            await self._move_to_update(replicas, status)
        return status

    def _count_pods(self, status: Object, count: int) -> tuple[dict[int, Object], list[Object]]:
        """Counts the existing pods in `status`; returns the replicas by ordinal, and the pods
        beyond `count` in the order of their ordinals.
        """
        found: dict[int, Object] = {}
        condemned = []
        for pod in self._pods:
            status["replicas"] += 1
            if _runs(pod):
                status["readyReplicas"] += 1
                if self._features.available and self._is_available(pod):
                    status["availableReplicas"] += 1
            if _is_created(pod) and not pods.is_pod_terminating(pod):
                _count_revision(status, revision_of(pod), 1)
            ordinal = ordinal_of(pod) - self._start
            if 0 <= ordinal < count:
                found[ordinal] = pod
            elif ordinal_of(pod) >= 0:
                condemned.append(pod)
        condemned.sort(key=ordinal_of)
        return found, condemned

    @property
    def _start(self) -> int:
        return identity.start_ordinal(self._set) if self._features.ordinals else 0

    @property
    def _min_ready(self) -> int:
        return (self._set["spec"].get("minReadySeconds") or 0) if self._features.available else 0

    def _is_available(self, pod: Object) -> bool:
        return _runs(pod) and pods.is_pod_available(pod, self._min_ready, self._now)

    async def _apply_retention(self, condemned: Sequence[Object]) -> None:
        """The owners of claims, which decide when the claims are deleted."""
        if not self._features.retention:
            return
        for pod in (*self._pods, *condemned):
            for claim in identity.claims_of_ordinal(self._set, ordinal_of(pod)).values():
                meta = claim["metadata"]
                known = self._claims.get(meta["namespace"], meta["name"])
                if known is None:
                    continue
                changed = retention.with_owners(known, self._set, pod)
                if changed is not None:
                    await self._client.update(PERSISTENT_VOLUME_CLAIMS, changed)

    async def _sync_replicas(
        self,
        current: Object,
        update: Object,
        found: dict[int, Object],
        replicas: list[Object],
        status: Object,
        ordered: bool,
    ) -> bool:
        """Creates missing replicas, replaces failed ones and repairs the others, and adds them
        to `replicas`. False if the rest of the sync must wait for them.
        """
        stateful_set = self._set

        def planned(ordinal: int) -> Object:
            revision = current if self._stays_current(ordinal) else update
            return identity.new_pod(
                history.restored_object(stateful_set, revision),
                revision["metadata"]["name"],
                self._start + ordinal,
                index_label=self._features.index_label,
            )

        created = 0
        # Plan pods one by one: `replicas` may be far larger than the number that will ever exist.
        for ordinal in range(stateful_set["spec"].get("replicas", 0)):
            pod = found.get(ordinal) or planned(ordinal)
            replicas.append(pod)
            if pods.pod_phase(pod) == "Failed":
                await self._recreate_failed(pod)
                _count_revision(status, revision_of(pod), -1)
                status["replicas"] -= 1
                pod = replicas[ordinal] = planned(ordinal)
            if not _is_created(pod):
                await self._create(pod)
                status["replicas"] += 1
                _count_revision(status, revision_of(pod), 1)
                created += 1
                if ordered or created == _MOST_CREATED:
                    return False  # the new pods trigger the next sync
                continue
            if ordered and not (_is_healthy(pod) and self._is_available(pod)):
                return False
            if not (
                identity.identity_matches(stateful_set, pod, index_label=self._features.index_label)
                and identity.storage_matches(stateful_set, pod)
            ):
                await self._repair(history.restored_object(stateful_set, update), pod)
        return True

    async def _scale_down(
        self,
        condemned: list[Object],
        first_unhealthy: Object | None,
        status: Object,
        ordered: bool,
    ) -> bool:
        """Deletes pods beyond the desired replicas, highest ordinal first. False if the rest of
        the sync must wait for them.
        """
        for pod in reversed(condemned):
            if pods.is_pod_terminating(pod):
                if ordered:
                    return False
                continue
            if ordered and not self._is_available(pod) and pod is not first_unhealthy:
                return False
            await self._delete(pod)
            _count_revision(status, revision_of(pod), -1)
            if ordered:
                return False
        return True

    def _stays_current(self, ordinal: int) -> bool:
        """Whether a new pod with this ordinal still uses the current revision."""
        strategy = self._set["spec"].get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate")
        if rolling is not None:
            return bool(self._start + ordinal < (rolling.get("partition") or 0))
        done = (self._set.get("status") or {}).get("currentReplicas", 0)
        return bool(strategy.get("type") == _ROLLING and ordinal < done)

    async def _move_to_update(self, replicas: Sequence[Object], status: Object) -> None:
        """Deletes the last pod that does not have the update revision, if all its successors are
        healthy.
        """
        strategy = self._set["spec"].get("updateStrategy") or {}
        if strategy.get("type") == _ON_DELETE:
            return
        rolling = strategy.get("rollingUpdate") or {}
        lowest = max((rolling.get("partition") or 0) - self._start, 0)
        if self._features.max_unavailable and rolling.get("maxUnavailable") is not None:
            await self._move_some(replicas, lowest, rolling["maxUnavailable"], status)
            return
        for pod in reversed(replicas[lowest:]):
            if revision_of(pod) != status["updateRevision"] and not pods.is_pod_terminating(pod):
                await self._delete(pod)
                status["currentReplicas"] -= 1
                return
            if not (_is_healthy(pod) and self._is_available(pod)):
                return

    async def _move_some(
        self, replicas: Sequence[Object], lowest: int, limit: int | str, status: Object
    ) -> None:
        """Deletes outdated pods while no more than `limit` are unavailable."""
        allowed = max(scaled_value(limit, self._set["spec"].get("replicas", 0), up=False), 1)
        allowed -= sum(not (_is_healthy(p) and self._is_available(p)) for p in replicas)
        for pod in reversed(replicas[lowest:]):
            if allowed <= 0:
                return
            if revision_of(pod) != status["updateRevision"] and not pods.is_pod_terminating(pod):
                await self._delete(pod)
                status["currentReplicas"] -= 1
                allowed -= 1

    # ---- writes ----

    async def _create(self, pod: Object) -> None:
        namespace = self._set["metadata"]["namespace"]
        try:
            await self._create_claims(self._set, pod)
        except ClaimsFailed as problem:
            self._record_event("create", pod, problem)
            raise
        try:
            await self._client.create(PODS, namespace, pod)
        except ApiError as problem:
            if not is_already_exists(problem):
                self._record_event("create", pod, problem)
            raise
        self._record_event("create", pod)

    async def _recreate_failed(self, pod: Object) -> None:
        meta = self._set["metadata"]
        message = (
            f"StatefulSet {meta['namespace']}/{meta['name']} is recreating failed Pod "
            f"{pod['metadata']['name']}"
        )
        self._events.event(self._set, WARNING, "RecreatingFailedPod", message)
        await self._delete(pod)

    async def _delete(self, pod: Object) -> None:
        meta = pod["metadata"]
        try:
            # Never delete another pod that has this name by now.
            await self._client.delete(
                PODS, meta["namespace"], meta["name"], uid=meta.get("uid", "")
            )
        except ApiError as problem:
            if not is_not_found(problem):
                self._record_event("delete", pod, problem)
                raise
        else:
            self._record_event("delete", pod)

    async def _repair(self, stateful_set: Object, pod: Object) -> None:
        """Restores the labels and volumes of a pod."""
        repaired = identity.with_identity(stateful_set, pod, index_label=self._features.index_label)
        try:
            if not identity.storage_matches(stateful_set, pod):
                await self._create_claims(stateful_set, pod)
            await self._client.update(PODS, repaired)
        except (ApiError, ClaimsFailed) as problem:
            self._record_event("update", pod, problem)
            raise
        self._record_event("update", pod)

    async def _create_claims(self, stateful_set: Object, pod: Object) -> None:
        namespace = stateful_set["metadata"]["namespace"]
        problems = []
        for claim in identity.claims_of_ordinal(stateful_set, ordinal_of(pod)).values():
            name = claim["metadata"]["name"]
            known = self._claims.get(namespace, name)
            if known is not None:
                if "deletionTimestamp" in known["metadata"]:
                    problems.append(f"pvc {name} is being deleted")
                continue
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, namespace, claim)
            except ApiError as problem:
                problems.append(f"failed to create PVC {name}: {problem}")
                if not is_already_exists(problem):
                    self._record_claim_event(name, pod, problem)
            else:
                self._record_claim_event(name, pod)
        if problems:
            raise ClaimsFailed(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")

    async def _write_status(self, status: Object) -> None:
        stateful_set = self._set
        old = stateful_set.get("status") or {}
        rolling = (stateful_set["spec"].get("updateStrategy") or {}).get("type") == _ROLLING
        if rolling and status["updatedReplicas"] == status["readyReplicas"] == status["replicas"]:
            status["currentReplicas"] = status["updatedReplicas"]
            status["currentRevision"] = status["updateRevision"]
        behind = status["observedGeneration"] > old.get("observedGeneration", 0)
        if not behind and all(
            (old.get(field) or 0) == (status.get(field) or 0) for field in _COMPARED
        ):
            return
        await self._client.update_status(STATEFUL_SETS, {**stateful_set, "status": status})

    # ---- events ----

    def _record_event(self, verb: str, pod: Object, problem: Exception | None = None) -> None:
        name, pod_name = self._set["metadata"]["name"], pod["metadata"]["name"]
        if self._features.title_events:
            verb = verb.title()
        if problem is None:
            message = f"{verb} Pod {pod_name} in StatefulSet {name} successful"
            self._events.event(self._set, NORMAL, f"Successful{verb.title()}", message)
        else:
            message = f"{verb} Pod {pod_name} in StatefulSet {name} failed error: {problem}"
            self._events.event(self._set, WARNING, f"Failed{verb.title()}", message)

    def _record_claim_event(
        self, claim: str, pod: Object, problem: Exception | None = None
    ) -> None:
        name, pod_name = self._set["metadata"]["name"], pod["metadata"]["name"]
        verb = "Create" if self._features.title_events else "create"
        if problem is None:
            message = f"{verb} Claim {claim} Pod {pod_name} in StatefulSet {name} success"
            self._events.event(self._set, NORMAL, "SuccessfulCreate", message)
        else:
            message = (
                f"{verb} Claim {claim} for Pod {pod_name} in StatefulSet {name} failed error: "
                f"{problem}"
            )
            self._events.event(self._set, WARNING, "FailedCreate", message)


def _count_revision(status: Object, revision: str, step: int) -> None:
    if revision == status["currentRevision"]:
        status["currentReplicas"] += step
    if revision == status["updateRevision"]:
        status["updatedReplicas"] += step
