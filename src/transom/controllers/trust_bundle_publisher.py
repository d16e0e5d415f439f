"""Publishes the CA with which clients verify the API server as a ClusterTrustBundle of the signer
`kubernetes.io/kube-apiserver-serving`, and deletes other bundles of that signer.
"""

from __future__ import annotations

import hashlib
from typing import Final

from transom.client.api import is_not_found
from transom.client.resources import GroupVersionResource
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

CLUSTER_TRUST_BUNDLES: Final = GroupVersionResource(
    "certificates.k8s.io", "v1", "clustertrustbundles", False, "ClusterTrustBundle"
)
SIGNER: Final = "kubernetes.io/kube-apiserver-serving"


def trust_bundle_name(signer: str, bundle: str) -> str:
    digest = hashlib.sha256(bundle.encode()).digest()[:12].hex()
    return f"{signer.replace('/', ':')}:{digest}"


class TrustBundlePublisher:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._bundle = env.settings.root_ca
        self._name = trust_bundle_name(SIGNER, self._bundle)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="ca_cert_publisher_cluster_trust_bundles", metrics=env.queues
        )
        self._bundles = env.informers(CLUSTER_TRUST_BUNDLES)
        self._bundles.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=self._changed
        )

    def _changed(self, bundle: Object) -> None:
        if bundle["spec"].get("signerName") == SIGNER:
            self._queue.add("")

    async def run(self) -> None:
        self._queue.add("")
        await run_worker(self._queue, self._sync, (self._bundles,))

    async def _sync(self, _key: str) -> None:
        current = self._bundles.by_key(self._name)
        spec = {"signerName": SIGNER, "trustBundle": self._bundle}
        if current is None:
            made = {"metadata": {"name": self._name}, "spec": spec}
            await self._client.create(CLUSTER_TRUST_BUNDLES, "", made)
        elif current["spec"].get("trustBundle") != self._bundle:
            await self._client.update(CLUSTER_TRUST_BUNDLES, {**current, "spec": spec})
        for bundle in self._bundles.list():
            name = bundle["metadata"]["name"]
            if bundle["spec"].get("signerName") == SIGNER and name != self._name:
                try:
                    await self._client.delete(CLUSTER_TRUST_BUNDLES, "", name)
                except ApiError as problem:
                    if not is_not_found(problem):
                        raise
