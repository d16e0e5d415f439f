"""Removes service account tokens in Secrets that have not been used for a year
(LegacyServiceAccountTokenCleanUp): first the Secret is labelled and its token rejected, a year later
it is deleted. Only Secrets that their account lists count, and only if no pod refers to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from transom.client.api import MERGE_PATCH, is_conflict, is_not_found
from transom.client.resources import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from transom.controllers.base import ControllerContext
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.pod_references import secret_names
from transom.machinery.serviceaccounts import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    INVALID_SINCE,
    LAST_USED,
    TOKEN_SECRET,
    TRACKED_SINCE,
    TRACKING_CONFIG_MAP,
)

log = logging.getLogger("transom.controllers")

_PERIOD = timedelta(days=365)
_INTERVAL_SECONDS = 86_400.0
_DATE = "%Y-%m-%d"


class LegacyTokenCleaner:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._accounts = env.informers(SERVICE_ACCOUNTS)
        self._secrets = env.informers(SECRETS)
        self._pods = env.informers(PODS)

    async def run(self) -> None:
        await asyncio.gather(*(one.synced() for one in (self._accounts, self._secrets, self._pods)))
        while True:
            try:
                await self._clean()
            except ApiError as problem:
                log.warning("cannot clean up service account tokens: %s", problem)
            await self._clock.sleep(_INTERVAL_SECONDS)

    async def _clean(self) -> None:
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        config_map = await self._client.get(CONFIG_MAPS, *TRACKING_CONFIG_MAP)
        since = _parse_date((config_map.get("data") or {}).get(TRACKED_SINCE, ""))
        if since is None or now < since + timedelta(days=1) + _PERIOD:
            return
        for secret in self._secrets.list():
            if self._is_unused(secret, now):
                await self._invalidate_or_delete(secret, now)

    def _is_unused(self, secret: Object, now: datetime) -> bool:
        meta, labels = secret["metadata"], secret["metadata"].get("labels") or {}
        if secret.get("type") != TOKEN_SECRET or "deletionTimestamp" in meta:
            return False
        if parse_rfc3339(meta["creationTimestamp"]) >= (now - _PERIOD).timestamp():
            return False
        last = labels.get(LAST_USED)
        if last is not None and (_parse_date(last) is None or last >= _oldest_kept(now)):
            return False
        return self._is_generated(secret) and not _is_mounted(meta, self._pods.list())

    def _is_generated(self, secret: Object) -> bool:
        """Whether the account lists the Secret: before 1.24 every account had one."""
        meta, annotations = secret["metadata"], secret["metadata"].get("annotations") or {}
        account = self._accounts.by_key(f"{meta['namespace']}/{annotations.get(ACCOUNT_NAME)}")
        if account is None:
            return False
        if annotations.get(ACCOUNT_UID) not in (None, "", account["metadata"]["uid"]):
            return False
        return any(row.get("name") == meta["name"] for row in account.get("secrets") or ())

    async def _invalidate_or_delete(self, secret: Object, now: datetime) -> None:
        meta = secret["metadata"]
        where = SECRETS, meta["namespace"], meta["name"]
        invalid = (meta.get("labels") or {}).get(INVALID_SINCE, "")
        try:
            if _parse_date(invalid) is None:
                labels = {INVALID_SINCE: now.strftime(_DATE)}
                patch = {"metadata": {"uid": meta["uid"], "labels": labels}}
                await self._client.patch(*where, patch, MERGE_PATCH)
            elif invalid < _oldest_kept(now):
                await self._client.delete(*where, resource_version=meta["resourceVersion"])
        except ApiError as problem:
            if not (is_conflict(problem) or is_not_found(problem)):
                raise


def _is_mounted(meta: Object, pods: Iterable[Object]) -> bool:
    return any(
        pod["metadata"]["namespace"] == meta["namespace"]
        and meta["name"] in secret_names(pod["spec"])
        for pod in pods
    )


def _oldest_kept(now: datetime) -> str:
    return (now - _PERIOD).strftime(_DATE)


def _parse_date(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        return None
