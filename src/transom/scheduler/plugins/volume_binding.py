"""VolumeBinding: nodes must reach the pod's volumes; claims that wait for a consumer get theirs with the node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transom.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.client.store import key_of
from transom.machinery.objects import Object, with_metadata
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import ConfigError, Cycle, Handle, SchedulingError, Verdict, Verdicts, check_args
from transom.scheduler.volume_matching import Found, Matching, volume_nodes
from transom.scheduler.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE, claim_names, claimed_by, is_bound, version, volumes

_CONFLICT = "node(s) had volume node affinity conflict"
_NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
_VOLUME_GONE = "pvc(s) bound to non-existent pv(s)"
_IMMEDIATE = Verdict(("pod has unbound immediate PersistentVolumeClaims",), final=True)
_DEFAULT_TIMEOUT = 600
_POLL_SECONDS = 1.0


class _Claims(NamedTuple):
    bound: list[Object]
    to_bind: list[Object]


class _Decided:
    """What goes to the API with the pod: volumes for claims, and claims for which one is to be made."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Object, Object]] = []  # volume, claim
        self.provisions: list[Object] = []


class VolumeBinding:
    name = "VolumeBinding"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("bindTimeoutSeconds",), self.name)
        self._timeout: int = args.get("bindTimeoutSeconds", _DEFAULT_TIMEOUT)
        if self._timeout <= 0:
            raise ConfigError(f'initializing plugin "{self.name}": invalid BindTimeoutSeconds: {self._timeout}, '
                              "must be positive integer")
        self._volumes = volumes(handle)
        self._client, self._clock = handle.client, handle.clock
        self._nodes, self._pods = handle.informers(NODES), handle.pods

    # ---- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: Cycle) -> Verdict | None:
        pod = cycle.pod
        names = [*claim_names(pod.volumes)] if pod.pod["spec"].get("volumes") else []
        if not names:
            return None
        bound, to_bind, immediate = [], [], False
        for name in names:
            claim = self._volumes.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                return Verdict((f'persistentvolumeclaim "{name}" not found',), final=True)
            if claim["metadata"].get("deletionTimestamp"):
                return Verdict((f'persistentvolumeclaim "{name}" is being deleted',), final=True)
            if is_bound(claim):
                bound.append(claim)
            elif self._volumes.waits(claim) and not claim["spec"].get("volumeName"):
                to_bind.append(claim)
            else:
                immediate = True
        if immediate:
            return _IMMEDIATE
        cycle.state[self.name] = _Claims(bound, to_bind)
        return None

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        claims: _Claims | None = cycle.state.get(self.name)
        if claims is None:
            return None
        reached, known = self._reach(cycle, claims.bound, rows)
        return reached & known & self._find(cycle, claims, rows).satisfied

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        claims: _Claims = cycle.state[self.name]
        reached, known = self._reach(cycle, claims.bound, rows)
        satisfied = self._find(cycle, claims, rows).satisfied
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(rows.tolist()):
            problems = ((_CONFLICT, reached[i]), (_NO_VOLUMES, satisfied[i]), (_VOLUME_GONE, known[i]))
            groups.setdefault(tuple(text for text, fine in problems if not fine), []).append(row)
        return [(Verdict(reasons, final=True), np.array(some, np.intp)) for reasons, some in groups.items()]

    def _reach(self, cycle: Cycle, claims: list[Object], rows: Rows) -> tuple[Mask, Mask]:
        """Where bound volumes can be reached, and where they are known at all; the first problem of a node counts."""
        reached, known = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        for claim in claims:
            volume = self._volumes.volumes.get(claim["spec"]["volumeName"])
            if volume is None:
                known &= ~reached
                break
            reached &= volume_nodes(volume, cycle.snapshot, rows)
        return reached, known

    def _find(self, cycle: Cycle, claims: _Claims, rows: Rows) -> Found:
        return Matching(self._volumes, cycle.snapshot).find(claims.to_bind, rows)

    # ---- decide and write ----------------------------------------------------------------------------------------

    def reserve(self, cycle: Cycle, node: str) -> None:
        claims: _Claims | None = cycle.state.get(self.name)
        if claims is None or not claims.to_bind:
            return
        rows = np.array([cycle.snapshot.nodes[node].row], np.intp)
        found = self._find(cycle, claims, rows)
        decided = cycle.state[self.name + "/decided"] = _Decided()
        for claim, volume in found.chosen(0):
            if volume is None:
                notes = {**(claim["metadata"].get("annotations") or {}), SELECTED_NODE: node}
                claim = with_metadata(claim, annotations=notes)
                self._volumes.claims.assume(claim)
                decided.provisions.append(claim)
            else:
                volume = _bound(volume, claim)
                self._volumes.volumes.assume(volume)
                decided.bindings.append((volume, claim))

    def unreserve(self, cycle: Cycle, node: str) -> None:
        decided: _Decided | None = cycle.state.get(self.name + "/decided")
        if decided is not None:
            for volume, _ in decided.bindings:
                self._volumes.volumes.restore(key_of(volume))
            for claim in decided.provisions:
                self._volumes.claims.restore(key_of(claim))

    async def pre_bind(self, cycle: Cycle, node: str) -> None:
        decided: _Decided | None = cycle.state.get(self.name + "/decided")
        if decided is None:
            return
        written = _Decided()
        for volume, claim in decided.bindings:
            written.bindings.append((await self._client.update(PERSISTENT_VOLUMES, volume), claim))
        for claim in decided.provisions:
            written.provisions.append(await self._client.update(PERSISTENT_VOLUME_CLAIMS, claim))
        end = self._clock.monotonic() + self._timeout
        while not self._complete(cycle, node, written):
            if self._clock.monotonic() >= end:
                raise SchedulingError("binding volumes: timed out waiting for the condition")
            await self._clock.sleep(_POLL_SECONDS)

    def _complete(self, cycle: Cycle, node: str, written: _Decided) -> bool:
        """Whether all claims are bound now; raises when that will not happen."""
        if self._nodes.by_key(node) is None:
            raise SchedulingError(f'binding volumes: failed to get node "{node}": node "{node}" not found')
        if self._pods.by_key(cycle.pod.key) is None:
            raise SchedulingError(f'binding volumes: pod does not exist any more: pod "{cycle.pod.name}" not found')
        row = np.array([cycle.snapshot.nodes[node].row], np.intp)
        for volume, claim in written.bindings:
            now, claimant = self._volumes.volumes.api(key_of(volume)), self._volumes.claims.api(key_of(claim))
            if now is None or claimant is None:
                kind, gone = ("v1.PersistentVolume", volume) if now is None else ("v1.PersistentVolumeClaim", claim)
                raise SchedulingError(f'binding volumes: failed to check binding: could not find {kind} "{key_of(gone)}"')
            if version(volume) > version(now):
                return False  # our own write has not come back yet
            self._check_reach(now, node, cycle, row)
            if not (now["spec"].get("claimRef") or {}).get("uid"):
                raise SchedulingError(f'binding volumes: ClaimRef got reset for pv "{key_of(volume)}"')
            if not is_bound(claimant):
                return False
        for claim in written.provisions:
            claimant = self._volumes.claims.api(key_of(claim))
            if claimant is None:
                raise SchedulingError("binding volumes: failed to check provisioning pvc: could not find "
                                      f'v1.PersistentVolumeClaim "{key_of(claim)}"')
            if version(claim) > version(claimant):
                return False
            name, notes = claim["metadata"]["name"], claimant["metadata"].get("annotations")
            if not notes:
                raise SchedulingError(f'binding volumes: selectedNode annotation reset for PVC "{name}"')
            if notes.get(SELECTED_NODE) != node:
                raise SchedulingError(f'binding volumes: provisioning failed for PVC "{name}"')
            if claimant["spec"].get("volumeName"):
                volume_now = self._volumes.volumes.api(claimant["spec"]["volumeName"])
                if volume_now is None:
                    return False
                self._check_reach(volume_now, node, cycle, row)
            if not is_bound(claimant):
                return False
        return True

    def _check_reach(self, volume: Object, node: str, cycle: Cycle, row: Rows) -> None:
        if not volume_nodes(volume, cycle.snapshot, row)[0]:
            raise SchedulingError(f'binding volumes: pv "{key_of(volume)}" node affinity doesn\'t match node "{node}": '
                                  "no matching NodeSelectorTerms")


def _bound(volume: Object, claim: Object) -> Object:
    """The volume, kept for the claim."""
    meta, ref = claim["metadata"], volume["spec"].get("claimRef") or {}
    out = volume
    if (ref.get("name"), ref.get("namespace"), ref.get("uid")) != (meta["name"], meta["namespace"], meta["uid"]):
        out = {**volume, "spec": {**volume["spec"], "claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta["namespace"], "name": meta["name"],
            "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
        }}}
    if not claimed_by(volume, claim):
        notes = volume["metadata"].get("annotations") or {}
        out = with_metadata(out, annotations={BOUND_BY_CONTROLLER: "yes", **notes})
    return out
