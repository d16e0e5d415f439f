"""One sync of one Deployment: compare, scale, create, clean up, and update the status.

A `Rollout` holds the state from the start of the sync and updates it with the results of its own
writes, so that a second write does not conflict with the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from transom.client.api import ApiClient, is_already_exists, is_namespace_terminating, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder
from transom.client.resources import DEPLOYMENTS, REPLICA_SETS
from transom.controllers import template_hash
from transom.controllers.deployment import sets, sizes
from transom.controllers.deployment import status as statuses
from transom.controllers.deployment.sets import spec_replicas, template_without_hash
from transom.controllers.ownership import controller_ref
from transom.kit.clock import Clock
from transom.kit.large_work import compute_for_object
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of, with_metadata
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet

_GONE = frozenset(("Failed", "Succeeded"))


class Rollout:
    def __init__(
        self,
        client: ApiClient,
        events: EventRecorder,
        clock: Clock,
        known_set: Callable[[str, str], Object | None],
        deployment: Object,
        owned: Sequence[Object],
        pods_of: Mapping[str, Iterable[Object]],
        features: FeatureSet,
    ) -> None:
        """`known_set` finds any ReplicaSet by name, `pods_of` returns the pods of the owned ones by
        uid.
        """
        self._client = client
        self._events = events
        self._clock = clock
        self._known_set = known_set
        self.deployment = deployment
        self._sets = list(owned)
        self._same = sets.TemplateComparison()
        self._pods_of = pods_of
        self._ranges = has_behaviour(features.release, "ScalingEventRange")
        self._by_revision = has_behaviour(features.release, "CleanupByRevision")
        self._terminating = features.enabled("DeploymentReplicaSetTerminatingReplicas")
        self.check_after: float | None = None  # seconds until the next sync

    async def sync(self) -> None:
        deployment = self.deployment
        if "deletionTimestamp" in deployment["metadata"]:
            await self._find_new()
            await self._write_counts()
            return
        await self._report_pause()
        if deployment["spec"].get("paused"):
            await self._scale_only()
        elif self._rollback_revision() is not None:
            await self._roll_back()
        elif await self._is_scaling():
            await self._scale_only()
        elif sizes.is_rolling(deployment):
            await self._roll()
        else:
            await self._recreate()

    # ---- ReplicaSets of the Deployment ----

    @property
    def _old(self) -> list[Object]:
        return sets.find_old(self.deployment, self._sets, self._same)

    @property
    def _new(self) -> Object | None:
        return sets.find_new(self.deployment, self._sets, self._same)

    @property
    def _wanted(self) -> int:
        return spec_replicas(self.deployment)

    def _put_set(self, replica_set: Object) -> Object:
        """Stores the object that the server returned for a write."""
        uid = replica_set["metadata"]["uid"]
        for place, known in enumerate(self._sets):
            if known["metadata"]["uid"] == uid:
                self._sets[place] = replica_set
                return replica_set
        self._sets.append(replica_set)
        return replica_set

    async def _write_status(self, status: Object) -> None:
        self.deployment = await self._client.update_status(
            DEPLOYMENTS, {**self.deployment, "status": status}
        )

    def _own_status(self) -> Object:
        return dict(self.deployment.get("status") or {})

    def _condition(self, status: Object, value: str, reason: str, message: str) -> None:
        new = statuses.make_deployment_condition(
            statuses.PROGRESSING, value, reason, message, self._clock.time()
        )
        statuses.set_deployment_condition(status, new)

    # ---- pause ----

    async def _report_pause(self) -> None:
        """Records a pause, so that it does not count against the progress deadline."""
        if not statuses.has_deadline(self.deployment):
            return
        status = self._own_status()
        reason = (statuses.get_deployment_condition(status, statuses.PROGRESSING) or {}).get(
            "reason"
        )
        if reason == statuses.TIMED_OUT:
            return
        paused = bool(self.deployment["spec"].get("paused"))
        if paused == (reason == statuses.PAUSED):
            return
        if paused:
            self._condition(status, "Unknown", statuses.PAUSED, "Deployment is paused")
        else:
            self._condition(status, "Unknown", statuses.RESUMED, "Deployment is resumed")
        await self._write_status(status)

    # ---- the new ReplicaSet ----

    async def _find_new(self) -> Object | None:
        """The ReplicaSet of the current template, if it exists, with updated annotations and
        revision.
        """
        found = self._new
        if found is None:
            return None
        deployment = self.deployment
        before = sets.annotations_of(found)
        after = sets.new_set_annotations(deployment, before, sets.max_revision(self._old) + 1)
        seconds = deployment["spec"].get("minReadySeconds", 0)
        if after != before or found["spec"].get("minReadySeconds", 0) != seconds:
            changed = with_metadata(found, annotations=after)
            changed["spec"] = {**found["spec"], "minReadySeconds": seconds}
            return self._put_set(await self._client.update(REPLICA_SETS, changed))
        status = self._own_status()
        changed_revision = self._set_revision(before.get(sets.REVISION, ""))
        if (
            statuses.has_deadline(deployment)
            and statuses.get_deployment_condition(status, statuses.PROGRESSING) is None
        ):
            name = found["metadata"]["name"]
            self._condition(
                status, "True", statuses.FOUND_NEW_SET, f'Found new replica set "{name}"'
            )
            changed_revision = True
        if changed_revision:
            await self._write_status(status)
        return found

    def _set_revision(self, number: str) -> bool:
        before = sets.annotations_of(self.deployment)
        if before.get(sets.REVISION, "") == number:
            return False
        self.deployment = with_metadata(
            self.deployment, annotations={**before, sets.REVISION: number}
        )
        return True

    async def _find_or_create_new(self) -> Object:
        return await self._find_new() or await self._create_new()

    async def _create_new(self) -> Object:
        deployment = self.deployment
        old = self._old
        number = sets.max_revision(old) + 1
        template = template_without_hash(deployment)
        collisions = (deployment.get("status") or {}).get("collisionCount")
        hashed = await compute_for_object(
            template, partial(template_hash.compute_template_hash, template, collisions)
        )
        planned = self._plan_new(old, number, template, hashed)
        name, size = planned["metadata"]["name"], spec_replicas(planned)
        existed = False
        try:
            made = await self._client.create(
                REPLICA_SETS, deployment["metadata"]["namespace"], planned
            )
        except ApiError as problem:
            if is_already_exists(problem):
                made = await self._own_or_collision(name, problem)
                existed = True
            elif is_namespace_terminating(problem):
                raise
            else:
                await self._report_create_error(
                    f'Failed to create new replica set "{name}": {problem}'
                )
                raise
        self._put_set(made)
        if not existed and size > 0:
            self._record_scaling("up", name, 0, size)
        status = self._own_status()
        changed = self._set_revision(str(number))
        if not existed and statuses.has_deadline(deployment):
            self._condition(
                status, "True", statuses.NEW_SET_CREATED, f'Created new replica set "{name}"'
            )
            changed = True
        if changed:
            await self._write_status(status)
        return made

    def _plan_new(
        self, old: Sequence[Object], number: int, template: Object, template_hashed: str
    ) -> Object:
        deployment = self.deployment
        meta, spec = deployment["metadata"], deployment["spec"]
        hashed = {sets.HASH_LABEL: template_hashed}
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **hashed}
        selector = spec.get("selector") or {}
        planned: Object = {
            "kind": REPLICA_SETS.kind,
            "apiVersion": REPLICA_SETS.api_version,
            "metadata": {
                # The name is the same for a given template, so a repeated creation fails and does
                # no harm.
                "name": f"{meta['name']}-{hashed[sets.HASH_LABEL]}",
                "namespace": meta["namespace"],
                "ownerReferences": [controller_ref(deployment, DEPLOYMENTS)],
                "labels": labels,
                "annotations": {
                    **sets.new_set_annotations(deployment, {}, number),
                    **sets.size_annotations(
                        self._wanted, self._wanted + sizes.max_surge(deployment)
                    ),
                },
            },
            "spec": {
                "replicas": 0,
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": {
                    **selector,
                    "matchLabels": {**(selector.get("matchLabels") or {}), **hashed},
                },
                "template": {
                    **template,
                    "metadata": {**(template.get("metadata") or {}), "labels": labels},
                },
            },
        }
        planned["spec"]["replicas"] = sizes.new_set_replicas(deployment, [*old, planned], planned)
        return planned

    async def _own_or_collision(self, name: str, problem: ApiError) -> Object:
        """The name exists: from an earlier attempt, or another template has the same hash."""
        deployment = self.deployment
        found = self._known_set(deployment["metadata"]["namespace"], name)
        if found is None:
            raise problem
        ref = controller_of(found)
        if (
            ref is not None
            and ref["uid"] == deployment["metadata"]["uid"]
            and sets.same_template(template_without_hash(deployment), template_without_hash(found))
        ):
            return found
        status = self._own_status()
        status["collisionCount"] = (status.get("collisionCount") or 0) + 1
        await self._write_status(status)
        raise problem

    async def _report_create_error(self, message: str) -> None:
        if statuses.has_deadline(self.deployment):
            status = self._own_status()
            self._condition(status, "False", statuses.SET_CREATE_ERROR, message)
            await self._write_status(status)
        self._events.event(self.deployment, WARNING, statuses.SET_CREATE_ERROR, message)

    # ---- scaling ----

    async def _is_scaling(self) -> bool:
        """Whether the number of replicas changed since the ReplicaSets were sized."""
        await self._find_new()
        desired = (
            sets.annotated_number(s, sets.DESIRED_REPLICAS) for s in sets.active_sets(self._sets)
        )
        return any(number is not None and number != self._wanted for number in desired)

    async def _scale_only(self) -> None:
        new = await self._find_new()
        await self._scale(new)
        if self.deployment["spec"].get("paused") and self._rollback_revision() is None:
            await self._clean_up()
        await self._write_counts()

    async def _scale(self, new: Object | None) -> None:
        """Scales to the new size without advancing the rollout: every ReplicaSet gets its
        proportional share.
        """
        deployment, wanted = self.deployment, self._wanted
        single = sets.active_or_latest(new, self._old)
        if single is not None:
            await self._resize(single, wanted)
            return
        if self._is_saturated(new):
            for old in sets.active_sets(self._old):
                await self._resize(old, 0)
            return
        if not sizes.is_rolling(deployment):
            return
        everything = sets.active_sets(self._sets)
        allowed = wanted + sizes.max_surge(deployment) if wanted > 0 else 0
        to_add = allowed - sets.total_replicas(everything)
        if to_add > 0:
            everything = sets.by_size_newer(everything)
        elif to_add < 0:
            everything = sets.by_size_older(everything)
        added = 0
        planned = []
        for replica_set in everything:
            share = sizes.proportion(replica_set, deployment, to_add, added)
            added += share
            planned.append(spec_replicas(replica_set) + share)
        for place, (replica_set, size) in enumerate(zip(everything, planned, strict=True)):
            if place == 0 and to_add:
                size = max(size + to_add - added, 0)  # the largest set gets the rounding remainder
            await self._write_size(replica_set, size, "up" if to_add > 0 else "down")

    def _is_saturated(self, new: Object | None) -> bool:
        if new is None:
            return False
        return (
            spec_replicas(new)
            == sets.annotated_number(new, sets.DESIRED_REPLICAS)
            == self._wanted
            == (new.get("status") or {}).get("availableReplicas", 0)
        )

    async def _resize(self, replica_set: Object, size: int) -> Object:
        """Scales a ReplicaSet; returns the same object if it already has this size."""
        before = spec_replicas(replica_set)
        if before == size:
            return replica_set
        return await self._write_size(replica_set, size, "up" if before < size else "down")

    async def _write_size(self, replica_set: Object, size: int, direction: str) -> Object:
        deployment = self.deployment
        before, notes = spec_replicas(replica_set), sets.annotations_of(replica_set)
        wanted_notes = sets.size_annotations(
            self._wanted, self._wanted + sizes.max_surge(deployment)
        )
        if before == size and wanted_notes.items() <= notes.items():
            return replica_set
        changed = with_metadata(replica_set, annotations={**notes, **wanted_notes})
        changed["spec"] = {**replica_set["spec"], "replicas": size}
        written = self._put_set(await self._client.update(REPLICA_SETS, changed))
        if before != size:
            self._record_scaling(direction, replica_set["metadata"]["name"], before, size)
        return written

    def _record_scaling(self, direction: str, name: str, before: int, size: int) -> None:
        sizes_text = f"from {before} to {size}" if self._ranges else f"to {size}"
        message = f"Scaled {direction} replica set {name} {sizes_text}"
        self._events.event(self.deployment, NORMAL, "ScalingReplicaSet", message)

    # ---- strategies ----

    async def _roll(self) -> None:
        new = await self._find_or_create_new()
        if not await self._grow_new(new) and not await self._shrink_old():
            await self._clean_up_if_complete()
        await self._write_progress()

    async def _grow_new(self, new: Object) -> bool:
        too_large = spec_replicas(new) > self._wanted
        size = (
            self._wanted if too_large else sizes.new_set_replicas(self.deployment, self._sets, new)
        )
        return await self._resize(new, size) is not new

    async def _shrink_old(self) -> bool:
        """Scales down old ReplicaSets as far as availability allows, unhealthy pods first."""
        new = self._new
        old = sorted(sets.active_sets(self._old), key=sets.sorted_by_age)
        if new is None or not old:
            return False
        least = self._wanted - sizes.max_unavailable(self.deployment)
        # Missing pods of the new set count as unavailable.
        not_ready = spec_replicas(new) - (new.get("status") or {}).get("availableReplicas", 0)
        spare = sets.total_replicas(self._sets) - least - not_ready
        if spare <= 0:
            return False
        shrunk = 0
        for place, replica_set in enumerate(old):
            if shrunk >= spare:
                break
            unhealthy = spec_replicas(replica_set) - (replica_set.get("status") or {}).get(
                "availableReplicas", 0
            )
            if unhealthy < 0:
                return False  # it is being scaled down, so its counts are not reliable
            count = min(spare - shrunk, unhealthy)
            if count:
                old[place] = await self._resize(replica_set, spec_replicas(replica_set) - count)
            shrunk += count
        surplus = sets.total_status((*old, new), "availableReplicas") - least
        taken = 0
        for replica_set in old:
            count = min(spec_replicas(replica_set), surplus - taken)
            if count > 0:
                await self._resize(replica_set, spec_replicas(replica_set) - count)
                taken += count
        return shrunk + taken > 0

    async def _recreate(self) -> None:
        new = await self._find_new()
        stopped = False
        for replica_set in sets.active_sets(self._old):
            stopped = await self._resize(replica_set, 0) is not replica_set or stopped
        if stopped or self._has_old_pods(new):
            await self._write_progress()
            return
        if new is None:
            new = await self._create_new()
        await self._resize(new, self._wanted)
        await self._clean_up_if_complete()
        await self._write_progress()

    def _has_old_pods(self, new: Object | None) -> bool:
        if sets.total_status(self._old, "replicas") > 0:
            return True
        new_uid = new["metadata"]["uid"] if new is not None else ""
        return any(
            (pod.get("status") or {}).get("phase") not in _GONE
            for uid, found in self._pods_of.items()
            if uid != new_uid
            for pod in found
        )

    async def _clean_up_if_complete(self) -> None:
        if statuses.is_complete(self.deployment, self.deployment.get("status") or {}):
            await self._clean_up()

    async def _clean_up(self) -> None:
        """Deletes old ReplicaSets beyond the history limit."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        if limit in (None, statuses.FOREVER):
            return
        old = sorted(
            (s for s in self._old if "deletionTimestamp" not in s["metadata"]),
            key=sets.sorted_by_revision if self._by_revision else sets.sorted_by_age,
        )
        for replica_set in old[: max(len(old) - limit, 0)]:
            meta, status = replica_set["metadata"], replica_set.get("status") or {}
            unseen = meta.get("generation", 0) > status.get("observedGeneration", 0)
            if status.get("replicas") or spec_replicas(replica_set) or unseen:
                continue
            try:
                await self._client.delete(REPLICA_SETS, meta["namespace"], meta["name"])
            except ApiError as problem:
                if not is_not_found(problem):
                    raise

    # ---- rollback, as asked for by an annotation ----

    def _rollback_revision(self) -> int | None:
        text = sets.annotations_of(self.deployment).get(sets.ROLLBACK_TO, "")
        return sets.parse_annotation_number(text) if text else None

    async def _roll_back(self) -> None:
        number = self._rollback_revision()
        await self._find_or_create_new()
        deployment = self.deployment
        everything = self._sets
        if number == 0:
            number = sets.last_revision(everything)
            if not number:
                await self._refuse_rollback(
                    "DeploymentRollbackRevisionNotFound", "Unable to find last revision."
                )
                return
        target = next((s for s in everything if sets.revision(s) == number), None)
        name = deployment["metadata"]["name"]
        if target is None:
            message = "Unable to find the revision to rollback to."
            await self._refuse_rollback("DeploymentRollbackRevisionNotFound", message)
        elif sets.same_template(template_without_hash(deployment), template_without_hash(target)):
            message = (
                f'The rollback revision contains the same template as current deployment "{name}"'
            )
            await self._refuse_rollback("DeploymentRollbackTemplateUnchanged", message)
        else:
            template = template_without_hash(target)
            meta = template.get("metadata") or {}
            labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != sets.HASH_LABEL}
            notes = {**sets.own_annotations(deployment), **sets.copied_annotations(target)}
            self.deployment = with_metadata(deployment, annotations=notes)
            self.deployment["spec"] = {
                **deployment["spec"],
                "template": {**template, "metadata": {**meta, "labels": labels}},
            }
            await self._clear_rollback()
            message = f'Rolled back deployment "{name}" to revision {number}'
            self._events.event(deployment, NORMAL, "DeploymentRollback", message)

    async def _refuse_rollback(self, reason: str, message: str) -> None:
        self._events.event(self.deployment, WARNING, reason, message)
        await self._clear_rollback()

    async def _clear_rollback(self) -> None:
        notes = {
            k: v for k, v in sets.annotations_of(self.deployment).items() if k != sets.ROLLBACK_TO
        }
        self.deployment = await self._client.update(
            DEPLOYMENTS, with_metadata(self.deployment, annotations=notes)
        )

    # ---- status ----

    async def _write_counts(self) -> None:
        status = statuses.calculate_deployment_status(
            self.deployment,
            self._sets,
            self._new,
            self._clock.time(),
            terminating=self._terminating,
        )
        if status != (self.deployment.get("status") or {}):
            await self._write_status(status)

    async def _write_progress(self) -> None:
        now = self._clock.time()
        status = statuses.rollout_status(
            self.deployment, self._sets, self._new, now, terminating=self._terminating
        )
        if status != (self.deployment.get("status") or {}):
            await self._write_status(status)
        else:
            self.check_after = statuses.next_check(self.deployment, status, now)
