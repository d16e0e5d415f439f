"""Dynamic provisioning: by a provisioner in this process, or by an external one selected with an
annotation.
"""

from __future__ import annotations

from transom.client.api import is_already_exists, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder, object_reference
from transom.client.informer import Informer
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.client.workqueue import RetryLater
from transom.controllers.base import ControllerContext, ProvisionedVolume, ProvisioningFailure
from transom.controllers.persistentvolume import matching
from transom.controllers.persistentvolume.cache import WriteThroughCache
from transom.controllers.persistentvolume.in_tree import provisioners
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata
from transom.machinery.releases.behaviour import has_behaviour

_BUILT_IN_PREFIX = "kubernetes.io/"
_TRIES, _TRY_SECONDS = 5, 10.0


class Provisioning:
    def __init__(
        self,
        env: ControllerContext,
        events: EventRecorder,
        volumes: WriteThroughCache,
        claims: WriteThroughCache,
        nodes: Informer,
    ) -> None:
        self._client = env.client
        self._clock = env.clock
        self._release = env.settings.features.release
        self._provisioners = {
            **provisioners(env.settings.cloud, env.client, nodes),
            **env.settings.provisioners,
        }
        self._events = events
        self._volumes, self._claims, self._nodes = volumes, claims, nodes

    async def prepare(self, claim: Object, classes: Informer) -> bool:
        """Records which component provisions the volume. True if that is this process, so that
        `make` must be called.
        """
        wanted = matching.storage_class_of(claim)
        storage_class = classes.get("", wanted)
        if storage_class is None:
            self._fail(claim, f'storageclass.storage.k8s.io "{wanted}" not found')
            return False
        name = storage_class["provisioner"]
        if name in self._provisioners:
            return True
        if name.startswith(_BUILT_IN_PREFIX):
            self._fail(claim, f"no volume plugin matched name: {name}")
            return False
        claim = await self._name_provisioner(claim, name)
        text = (
            f'waiting for a volume to be created, either by external provisioner "{name}"'
            " or manually created by system administrator"
        )
        if has_behaviour(self._release, "ProvisioningEventText"):
            text = (
                "Waiting for a volume to be created either by the external provisioner "
                f"'{name}' or manually by the system administrator. If volume creation is "
                "delayed, please verify that the provisioner is running and correctly registered."
            )
        self._events.event(claim, NORMAL, "ExternalProvisioning", text)
        return False

    async def make(self, key: str, uid: str, classes: Informer) -> None:
        claim = self._claims.get(key)
        if (
            claim is None
            or claim["metadata"]["uid"] != uid
            or matching.BIND_COMPLETED in matching.volume_annotations(claim)
        ):
            return
        storage_class = classes.get("", matching.storage_class_of(claim))
        provisioner = (
            self._provisioners.get(storage_class["provisioner"])
            if storage_class is not None
            else None
        )
        if storage_class is None or provisioner is None:
            return
        name = f"pvc-{uid}"
        claim = await self._name_provisioner(claim, storage_class["provisioner"])
        if await self._exists(name):
            return
        node = matching.volume_annotations(claim).get(matching.SELECTED_NODE, "")
        if node and self._nodes.get("", node) is None:
            self._fail(claim, f'Failed to get target node: node "{node}" not found')
            raise RetryLater(f"the node {node} is not known")
        try:
            made = await provisioner.provision(claim, storage_class, name, node)
        except ProvisioningFailure as problem:
            await self._choose_again(claim)
            called = storage_class["metadata"]["name"]
            self._fail(claim, f'Failed to provision volume with StorageClass "{called}": {problem}')
            raise RetryLater(str(problem)) from problem
        volume = _new_volume(claim, storage_class, name, made)
        try:
            await self._save(volume)
        except ApiError as problem:
            self._fail(
                claim,
                (
                    f"Error creating provisioned PV object for claim {key}: {problem}. Deleting "
                    "the volume."
                ),
            )
            try:
                await provisioner.delete(volume)
            except ProvisioningFailure as left:
                text = (
                    f"Error cleaning provisioned volume for claim {key}: {left}. Please delete "
                    "manually."
                )
                self._events.event(claim, WARNING, "ProvisioningCleanupFailed", text)
            return
        text = f"Successfully provisioned volume {name} using {storage_class['provisioner']}"
        self._events.event(claim, NORMAL, "ProvisioningSucceeded", text)

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(PERSISTENT_VOLUMES, "", name)
        except ApiError as problem:
            if is_not_found(problem):
                return False
            raise
        return True

    async def _save(self, volume: Object) -> None:
        for attempt in range(_TRIES):
            try:
                made = await self._client.create(PERSISTENT_VOLUMES, "", volume)
                self._volumes.remember(made, created=True)
                return
            except ApiError as problem:
                if is_already_exists(problem):
                    return
                if attempt == _TRIES - 1:
                    raise
            await self._clock.sleep(_TRY_SECONDS)

    async def _name_provisioner(self, claim: Object, name: str) -> Object:
        notes = matching.volume_annotations(claim)
        wanted = {matching.STORAGE_PROVISIONER: name}
        if has_behaviour(self._release, "ProvisionerAnnotation"):
            wanted[matching.STORAGE_PROVISIONER_GA] = name
        if wanted.items() <= notes.items():
            return claim
        changed = with_metadata(claim, annotations={**notes, **wanted})
        return self._claims.remember(await self._client.update(PERSISTENT_VOLUME_CLAIMS, changed))

    async def _choose_again(self, claim: Object) -> None:
        """Lets the scheduler choose another node."""
        notes = dict(matching.volume_annotations(claim))
        if notes.pop(matching.SELECTED_NODE, None) is not None:
            changed = with_metadata(claim, annotations=notes or None)
            self._claims.remember(await self._client.update(PERSISTENT_VOLUME_CLAIMS, changed))

    def _fail(self, claim: Object, text: str) -> None:
        self._events.event(claim, WARNING, "ProvisioningFailed", text)


def _new_volume(claim: Object, storage_class: Object, name: str, made: ProvisionedVolume) -> Object:
    notes = {
        matching.BOUND_BY_CONTROLLER: "yes",
        matching.PROVISIONED_BY: storage_class["provisioner"],
    }
    out = {
        "accessModes": claim["spec"].get("accessModes") or [],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        "storageClassName": matching.storage_class_of(claim),
        **(
            {"mountOptions": storage_class["mountOptions"]}
            if storage_class.get("mountOptions")
            else {}
        ),
        **made.spec,
        "claimRef": object_reference(claim),
    }
    labels = {"labels": dict(made.labels)} if made.labels else {}
    return {"metadata": {"name": name, "annotations": notes, **labels}, "spec": out}
