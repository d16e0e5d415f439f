"""VolumeBinding: the node must have access to the pod's volumes; claims with delayed binding are
bound with the pod.
"""

from __future__ import annotations

from transom.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.client.store import object_key
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object, with_metadata
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreBindPlugin,
    PreFilterPlugin,
    ReservePlugin,
    StateKey,
    Status,
    check_args,
    unresolvable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.volume_matching import MatchedVolumes, VolumeMatcher, nodes_of_volume
from transom.scheduler.volumes import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    claim_names,
    is_ephemeral_claim_of,
    is_volume_bound,
    is_volume_bound_to_claim,
    resource_version,
)

ERR_REASON_BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
ERR_REASON_UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
_DEFAULT_TIMEOUT = 600
_POLL_SECONDS = 1.0


class _Claims(NamedTuple):
    bound: list[Object]
    to_bind: list[Object]


class _Decisions:
    """Claims to bind to volumes, and claims to provision volumes for, when the pod is bound."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Object, Object]] = []  # volume, claim
        self.provisions: list[Object] = []


_POD_CLAIMS = StateKey[_Claims]("VolumeBinding/claims")
_POD_DECISIONS = StateKey[_Decisions]("VolumeBinding/decisions")


class VolumeBinding(PreFilterPlugin, BatchFilterPlugin, ReservePlugin, PreBindPlugin):
    name = "VolumeBinding"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("bindTimeoutSeconds",), self.name)
        self._timeout: int = args.get("bindTimeoutSeconds", _DEFAULT_TIMEOUT)
        if self._timeout <= 0:
            raise SchedulerConfigError(
                f'initializing plugin "{self.name}": invalid BindTimeoutSeconds: {self._timeout}, '
                "must be positive integer"
            )
        self._snapshot = handle.snapshot
        self._rules = handle.rules
        self._volumes = handle.volumes
        self._client, self._clock = handle.client, handle.clock
        self._nodes, self._pods = handle.informers(NODES), handle.pods

    # ---- filter ----

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        names = [*claim_names(pod.volumes, pod.name)] if pod.pod["spec"].get("volumes") else []
        ephemeral = {f"{pod.name}-{v['name']}" for v in pod.volumes if "ephemeral" in v}
        if not names:
            return None
        bound, to_bind, immediate = [], [], False
        for name in names:
            claim = self._volumes.claims.get(f"{pod.namespace}/{name}")
            if claim is None and name in ephemeral:
                return unresolvable(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                    f'"{name}"'
                )
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
            if self._rules.checks_lost_claims and claim.get("status", {}).get("phase") == "Lost":
                return unresolvable(
                    f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                    f'"{claim["spec"].get("volumeName", "")}"'
                )
            if claim["metadata"].get("deletionTimestamp"):
                return unresolvable(f'persistentvolumeclaim "{name}" is being deleted')
            if name in ephemeral and not is_ephemeral_claim_of(pod.pod, claim):
                return unresolvable(
                    f"PVC {pod.namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
                )
            if is_volume_bound(claim):
                bound.append(claim)
            elif self._volumes.is_delayed_binding(claim) and not claim["spec"].get("volumeName"):
                to_bind.append(claim)
            else:
                immediate = True
        if immediate:
            return unresolvable(ERR_REASON_UNBOUND_IMMEDIATE)
        state.write(_POD_CLAIMS, _Claims(bound, to_bind))
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        claims = state.get(_POD_CLAIMS)
        if claims is None:
            return None
        reached, known = self._bound_volumes_reachable(claims.bound, rows)
        return reached & known & self._find_matching_volumes(claims, rows).satisfied

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        claims = state.read(_POD_CLAIMS)
        reached, known = self._bound_volumes_reachable(claims.bound, rows)
        satisfied = self._find_matching_volumes(claims, rows).satisfied
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(rows.tolist()):
            problems = (
                (self._rules.volume_node_conflict, reached[i]),
                (ERR_REASON_BIND_CONFLICT, satisfied[i]),
                (self._rules.missing_volume, known[i]),
            )
            groups.setdefault(tuple(text for text, fine in problems if not fine), []).append(row)
        return [
            (unresolvable(*reasons), np.array(some, np.intp)) for reasons, some in groups.items()
        ]

    def _bound_volumes_reachable(self, claims: list[Object], rows: Rows) -> tuple[Mask, Mask]:
        """The nodes with access to the bound volumes, and those whose volumes exist; the first
        problem of a node counts.
        """
        reached, known = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        for claim in claims:
            volume = self._volumes.volumes.get(claim["spec"]["volumeName"])
            if volume is None:
                known &= ~reached
                break
            reached &= nodes_of_volume(volume, self._snapshot, rows)
        return reached, known

    def _find_matching_volumes(self, claims: _Claims, rows: Rows) -> MatchedVolumes:
        return VolumeMatcher(self._volumes, self._snapshot).find(claims.to_bind, rows)

    # ---- reserve and preBind ----

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        claims = state.get(_POD_CLAIMS)
        if claims is None or not claims.to_bind:
            return
        rows = np.array([self._snapshot.nodes[node_name].row], np.intp)
        found = self._find_matching_volumes(claims, rows)
        decided = _Decisions()
        state.write(_POD_DECISIONS, decided)
        for claim, volume in found.chosen(0):
            if volume is None:
                notes = {**(claim["metadata"].get("annotations") or {}), SELECTED_NODE: node_name}
                claim = with_metadata(claim, annotations=notes)
                self._volumes.claims.assume(claim)
                decided.provisions.append(claim)
            else:
                volume = _bound(volume, claim)
                self._volumes.volumes.assume(volume)
                decided.bindings.append((volume, claim))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        decided = state.get(_POD_DECISIONS)
        if decided is not None:
            for volume, _ in decided.bindings:
                self._volumes.volumes.restore(object_key(volume))
            for claim in decided.provisions:
                self._volumes.claims.restore(object_key(claim))

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        return state.get(_POD_DECISIONS) is not None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        decided = state.get(_POD_DECISIONS)
        if decided is None:
            return
        written = _Decisions()
        for volume, claim in decided.bindings:
            written.bindings.append((await self._client.update(PERSISTENT_VOLUMES, volume), claim))
        for claim in decided.provisions:
            written.provisions.append(await self._client.update(PERSISTENT_VOLUME_CLAIMS, claim))
        end = self._clock.monotonic() + self._timeout
        while not self._is_binding_complete(pod, node_name, written):
            if self._clock.monotonic() >= end:
                raise SchedulingError("binding volumes: timed out waiting for the condition")
            await self._clock.sleep(_POLL_SECONDS)

    def _is_binding_complete(self, pod: PodInfo, node: str, written: _Decisions) -> bool:
        """Whether all claims are bound; raises SchedulingError if that cannot happen any more."""
        if self._nodes.by_key(node) is None:
            raise SchedulingError(
                f'binding volumes: failed to get node "{node}": node "{node}" not found'
            )
        if self._pods.by_key(pod.key) is None:
            raise SchedulingError(
                f'binding volumes: pod does not exist any more: pod "{pod.name}" not found'
            )
        row = np.array([self._snapshot.nodes[node].row], np.intp)
        return all(
            self._is_binding_done(volume, claim, node, row) for volume, claim in written.bindings
        ) and all(self._is_provisioning_done(claim, node, row) for claim in written.provisions)

    def _is_binding_done(self, volume: Object, claim: Object, node: str, row: Rows) -> bool:
        now = self._volumes.volumes.from_api(object_key(volume))
        claimant = self._volumes.claims.from_api(object_key(claim))
        if now is None or claimant is None:
            kind, gone = (
                ("v1.PersistentVolume", volume)
                if now is None
                else ("v1.PersistentVolumeClaim", claim)
            )
            raise SchedulingError(
                f'binding volumes: failed to check binding: could not find {kind} "{object_key(gone)}"'
            )
        if resource_version(volume) > resource_version(now):
            return False  # the informer has not seen our update yet
        self._check_node_affinity(now, node, row)
        if not (now["spec"].get("claimRef") or {}).get("uid"):
            raise SchedulingError(
                f'binding volumes: ClaimRef got reset for pv "{object_key(volume)}"'
            )
        return is_volume_bound(claimant)

    def _is_provisioning_done(self, claim: Object, node: str, row: Rows) -> bool:
        claimant = self._volumes.claims.from_api(object_key(claim))
        if claimant is None:
            raise SchedulingError(
                "binding volumes: failed to check provisioning pvc: could not find "
                f'v1.PersistentVolumeClaim "{object_key(claim)}"'
            )
        if resource_version(claim) > resource_version(claimant):
            return False
        name, annotations = claim["metadata"]["name"], claimant["metadata"].get("annotations")
        if not annotations:
            raise SchedulingError(
                f'binding volumes: selectedNode annotation reset for PVC "{name}"'
            )
        if annotations.get(SELECTED_NODE) != node:
            raise SchedulingError(f'binding volumes: provisioning failed for PVC "{name}"')
        if claimant["spec"].get("volumeName"):
            volume_now = self._volumes.volumes.from_api(claimant["spec"]["volumeName"])
            if volume_now is None:
                return False
            self._check_node_affinity(volume_now, node, row)
        return is_volume_bound(claimant)

    def _check_node_affinity(self, volume: Object, node: str, row: Rows) -> None:
        if not nodes_of_volume(volume, self._snapshot, row)[0]:
            raise SchedulingError(
                f'binding volumes: pv "{object_key(volume)}" node affinity doesn\'t match node "{node}": '
                "no matching NodeSelectorTerms"
            )


def _bound(volume: Object, claim: Object) -> Object:
    """The volume with a claimRef to the claim."""
    meta, ref = claim["metadata"], volume["spec"].get("claimRef") or {}
    out = volume
    if (ref.get("name"), ref.get("namespace"), ref.get("uid")) != (
        meta["name"],
        meta["namespace"],
        meta["uid"],
    ):
        out = {
            **volume,
            "spec": {
                **volume["spec"],
                "claimRef": {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "resourceVersion": meta["resourceVersion"],
                },
            },
        }
    if not is_volume_bound_to_claim(volume, claim):
        notes = volume["metadata"].get("annotations") or {}
        out = with_metadata(out, annotations={BOUND_BY_CONTROLLER: "yes", **notes})
    return out
