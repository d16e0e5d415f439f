"""Deletes PodCertificateRequests a quarter of an hour after their creation: by then every signer
has handled them and the kubelet has read the certificate.
"""

from __future__ import annotations

import logging
from typing import Final

from transom.client.api import is_not_found
from transom.client.resources import GroupVersionResource
from transom.controllers.base import ControllerContext
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.controllers")

POD_CERTIFICATE_REQUESTS: Final = GroupVersionResource(
    "certificates.k8s.io", "v1", "podcertificaterequests", True, "PodCertificateRequest"
)
_KEPT_SECONDS: Final = 900.0
_PERIOD_SECONDS: Final = 300.0


class PodCertificateCleaner:
    def __init__(self, env: ControllerContext) -> None:
        self._client, self._clock = env.client, env.clock
        self._requests = env.informers(POD_CERTIFICATE_REQUESTS)

    async def run(self) -> None:
        await self._requests.synced()
        while True:
            await self._clean()
            await self._clock.sleep(_PERIOD_SECONDS)

    async def _clean(self) -> None:
        now = self._clock.time()
        for request in self._requests.list():
            meta = request["metadata"]
            if now < parse_rfc3339(meta["creationTimestamp"]) + _KEPT_SECONDS:
                continue
            try:
                await self._client.delete(
                    POD_CERTIFICATE_REQUESTS, meta["namespace"], meta["name"], uid=meta["uid"]
                )
            except (ApiError, OSError) as problem:
                if not is_not_found(problem):
                    log.warning("cannot delete PodCertificateRequest %s: %s", meta["name"], problem)
