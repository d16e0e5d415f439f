"""The identity of this API server: a Lease in kube-system that it renews (APIServerIdentity). Leases
of servers that have ended without deleting theirs are deleted after an hour.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import uuid
from typing import Final

from transom.client.api import ApiClient, is_not_found
from transom.client.resources import LEASES
from transom.kit.background_task import BackgroundTask
from transom.kit.clock import Clock, parse_rfc3339, rfc3339_micro
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreError

log = logging.getLogger("transom.apiserver")

_NAMESPACE: Final = "kube-system"
_COMPONENT: Final = "kube-apiserver"
_DURATION_SECONDS: Final = 3600
_RENEW_SECONDS: Final = 10.0


def identity_label(release: Release) -> str:
    named = has_behaviour(release, "IdentityLeaseOfComponent")
    return "apiserver.kubernetes.io/identity" if named else "k8s.io/component"


def server_identity(release: Release, hostname: str) -> str:
    """The name of the lease: a hash of the host's name, since 1.27 also of the component's."""
    data, prefix = hostname.encode(), "kube-apiserver-"
    if has_behaviour(release, "IdentityLeaseOfComponent"):
        parts = data, _COMPONENT.encode()
        data = b"".join(len(part).to_bytes(2, "big") + part for part in parts)
        prefix = "apiserver-"
    digest = base64.b32encode(hashlib.sha256(data).digest()[:16]).decode()
    return prefix + digest.rstrip("=").lower()


class IdentityLease:
    def __init__(self, client: ApiClient, clock: Clock, release: Release, hostname: str) -> None:
        self._client, self._clock = client, clock
        self._name = server_identity(release, hostname)
        self._holder = f"{self._name}_{uuid.uuid4()}"
        self._label = identity_label(release)
        self._labels = {self._label: _COMPONENT, "kubernetes.io/hostname": hostname}
        self._task = BackgroundTask("identity-lease")

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        if not await self._task.stop():
            return
        try:
            await self._delete(self._name)
        except (ApiError, StoreError) as problem:
            log.warning("cannot delete the identity lease: %s", problem)

    async def _run(self) -> None:
        expire = 0.0
        while True:
            try:
                await self._renew()
                if self._clock.time() >= expire:
                    expire = self._clock.time() + _DURATION_SECONDS
                    await self._delete_expired()
            except (ApiError, StoreError) as problem:
                log.warning("cannot renew the identity lease: %s", problem)
            await self._clock.sleep(_RENEW_SECONDS)

    async def _renew(self) -> None:
        spec = {
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": rfc3339_micro(self._clock.time()),
        }
        try:
            lease = await self._client.get(LEASES, _NAMESPACE, self._name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            meta: Object = {"name": self._name, "labels": self._labels}
            made = {"metadata": meta, "spec": {"holderIdentity": self._holder, **spec}}
            await self._client.create(LEASES, _NAMESPACE, made)
            return
        meta = {**lease["metadata"], "labels": self._labels}
        spec = {**lease["spec"], "holderIdentity": self._holder, **spec}
        await self._client.update(LEASES, {**lease, "metadata": meta, "spec": spec})

    async def _delete_expired(self) -> None:
        selector = f"{self._label}={_COMPONENT}"
        for lease in (await self._client.list(LEASES, _NAMESPACE, label_selector=selector)).items:
            spec = lease["spec"]
            renewed, seconds = spec.get("renewTime"), spec.get("leaseDurationSeconds")
            if not renewed or not seconds or parse_rfc3339(renewed) + seconds < self._clock.time():
                await self._delete(lease["metadata"]["name"])

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(LEASES, _NAMESPACE, name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
