"""Service account tokens in Secrets.

A Secret of that type that a user creates for an account is filled in; one whose account is deleted
is deleted too. Before release 1.24 every account gets one Secret with a token and refers to it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from transom.client.api import is_conflict, is_namespace_terminating, is_not_found
from transom.client.resources import SECRETS, SERVICE_ACCOUNTS
from transom.client.retry import Backoff, retry_on_conflict
from transom.client.workqueue import Item, RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, generate_name, run_worker
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.serviceaccounts import TOKEN_SECRET, legacy_claims

NAME_KEY = "kubernetes.io/service-account.name"
UID_KEY = "kubernetes.io/service-account.uid"
_CA, _NAMESPACE, _TOKEN = "ca.crt", "namespace", "token"
_WORKERS = 5
_TRIES = 10
_REMEMBERED_SECONDS = 60.0
_REMOVE_REFERENCE = Backoff(10, 0.1, 1.0, 1.0)


class _AccountKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class _SecretKey(NamedTuple):
    namespace: str
    name: str
    uid: str
    account: str
    account_uid: str  # "" if the Secret does not name it


class TokensController:
    def __init__(self, env: ControllerContext, sign: Callable[[dict[str, Any]], str]) -> None:
        self._client = env.client
        self._clock = env.clock
        self._rng = env.rng
        self._sign = sign
        self._creates_tokens = not has_behaviour(env.settings.release, "NoTokenSecrets")
        self._root_ca = _encode(env.settings.root_ca)
        self._account_queue: WorkQueue[_AccountKey] = WorkQueue(
            env.clock, name="serviceaccount_tokens_service", metrics=env.queues
        )
        self._secret_queue: WorkQueue[_SecretKey] = WorkQueue(
            env.clock, name="serviceaccount_tokens_secret", metrics=env.queues
        )
        # Secrets that this controller has created and the informer does not show yet. Without them,
        # the account's own update would look like an account without a token, and a second one
        # would be created.
        self._made: dict[tuple[str, str], Object] = {}
        self._accounts = env.informers(SERVICE_ACCOUNTS)
        self._secrets = env.informers(SECRETS)
        self._accounts.add_handler(
            add=self._account_changed,
            update=lambda _, new: self._account_changed(new),
            delete=self._account_changed,
        )
        self._secrets.add_handler(
            add=self._secret_changed,
            update=lambda _, new: self._secret_changed(new),
            delete=self._secret_changed,
        )

    def _account_changed(self, account: Object) -> None:
        meta = account["metadata"]
        self._account_queue.add(_AccountKey(meta["namespace"], meta["name"], meta["uid"]))

    def _secret_changed(self, secret: Object) -> None:
        meta = secret["metadata"]
        self._made.pop((meta["namespace"], meta["name"]), None)
        notes = meta.get("annotations") or {}
        if secret.get("type") == TOKEN_SECRET and notes.get(NAME_KEY):
            self._secret_queue.add(
                _SecretKey(
                    meta["namespace"],
                    meta["name"],
                    meta["uid"],
                    notes[NAME_KEY],
                    notes.get(UID_KEY, ""),
                )
            )

    async def run(self) -> None:
        needs = self._accounts, self._secrets
        async with asyncio.TaskGroup() as group:
            group.create_task(run_worker(self._account_queue, self._sync_account, needs, _WORKERS))
            group.create_task(run_worker(self._secret_queue, self._sync_secret, needs, _WORKERS))

    async def _attempt(self, queue: WorkQueue[Item], key: Item, again: Awaitable[bool]) -> None:
        """Retries a rejection a few times; the next change of the object starts over anyway. Keeps
        retrying while the server is unavailable or busy, because no change may follow.
        """
        try:
            retry = await again
        except ApiError as problem:
            if problem.code == 429 or problem.code >= 500 or queue.failures(key) < _TRIES:
                raise
            return
        if retry and queue.failures(key) < _TRIES:
            raise RetryLater("what was seen is not the newest state")

    # ---- accounts ----

    async def _sync_account(self, key: _AccountKey) -> None:
        account = self._accounts.get(key.namespace, key.name)
        if account is None or account["metadata"]["uid"] != key.uid:
            await self._attempt(self._account_queue, key, self._drop(*self._tokens(*key)))
        elif self._creates_tokens:
            await self._attempt(self._account_queue, key, self._ensure_token(account))

    def _tokens(self, namespace: str, name: str, uid: str) -> list[Object]:
        made = [s for (where, _), s in self._made.items() if where == namespace]
        return [s for s in [*self._secrets.list(namespace), *made] if _is_token_of(s, name, uid)]

    def _has_token(self, account: Object) -> bool:
        meta = account["metadata"]
        names = {ref.get("name") for ref in account.get("secrets") or ()}
        return bool(names) and any(
            s["metadata"]["name"] in names
            for s in self._tokens(meta["namespace"], meta["name"], meta["uid"])
        )

    async def _ensure_token(self, account: Object) -> bool:
        """Creates a token for the account unless it has one. True to be called again."""
        if self._has_token(account):
            return False
        meta = account["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        live = await self._client.get(SERVICE_ACCOUNTS, namespace, name)
        if live["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            return True
        try:
            secret = await self._client.create(SECRETS, namespace, self._new_secret(account))
        except ApiError as problem:
            if is_namespace_terminating(problem):
                return False
            raise
        self._remember(secret)
        try:
            added = await retry_on_conflict(
                lambda: self._refer(account, secret), self._clock, self._rng
            )
        except (ApiError, OSError) as problem:
            await self._delete_token(secret["metadata"])
            if not (is_conflict(problem) or is_not_found(problem)):
                raise
        else:
            if not added:
                await self._delete_token(secret["metadata"])
        return False

    def _new_secret(self, account: Object) -> Object:
        meta = account["metadata"]
        notes = {NAME_KEY: meta["name"], UID_KEY: meta["uid"]}
        secret: Object = {
            "metadata": {
                "name": generate_name(f"{meta['name']}-token-", self._rng),
                "namespace": meta["namespace"],
                "annotations": notes,
            },
            "type": TOKEN_SECRET,
        }
        secret["data"] = self._missing(account, secret)
        return secret

    def _missing(self, account: Object, secret: Object) -> dict[str, str]:
        """The data that the Secret lacks or has wrong."""
        data, out = secret.get("data") or {}, {}
        if self._root_ca and data.get(_CA) != self._root_ca:
            out[_CA] = self._root_ca
        if not data.get(_NAMESPACE):
            out[_NAMESPACE] = _encode(secret["metadata"]["namespace"])
        if not data.get(_TOKEN):
            out[_TOKEN] = _encode(self._sign(legacy_claims(account, secret)))
        return out

    def _needs_data(self, secret: Object) -> bool:
        data = secret.get("data") or {}
        wrong_ca = bool(self._root_ca) and data.get(_CA) != self._root_ca
        return wrong_ca or not data.get(_NAMESPACE) or not data.get(_TOKEN)

    def _remember(self, secret: Object) -> None:
        meta = secret["metadata"]
        key = meta["namespace"], meta["name"]
        if self._secrets.get(*key) is None:
            self._made[key] = secret
            self._clock.call_later(_REMEMBERED_SECONDS, self._made.pop, key, None)

    async def _refer(self, account: Object, secret: Object) -> bool:
        """Adds the Secret to the account's list; returns whether that was needed and done."""
        meta = account["metadata"]
        live = await self._client.get(SERVICE_ACCOUNTS, meta["namespace"], meta["name"])
        if live["metadata"]["uid"] != meta["uid"] or self._has_token(live):
            return False
        listed = [*(live.get("secrets") or ()), {"name": secret["metadata"]["name"]}]
        await self._client.update(SERVICE_ACCOUNTS, {**live, "secrets": listed})
        return True

    async def _delete_token(self, meta: Object) -> None:
        try:
            await self._client.delete(SECRETS, meta["namespace"], meta["name"], uid=meta["uid"])
        except ApiError as problem:
            # Already deleted, or another Secret by now: both are fine.
            if not (is_not_found(problem) or is_conflict(problem)):
                raise

    # ---- secrets ----

    async def _sync_secret(self, key: _SecretKey) -> None:
        secret = self._secrets.get(key.namespace, key.name) or self._made.get(
            (key.namespace, key.name)
        )
        account = self._account(key)
        if secret is None or secret["metadata"]["uid"] != key.uid:
            if account is not None:
                await retry_on_conflict(
                    lambda: self._remove_reference(key), self._clock, self._rng, _REMOVE_REFERENCE
                )
            return
        account = account or await self._live_account(key)
        if account is None:
            await self._attempt(self._secret_queue, key, self._drop(secret))
        elif self._needs_data(secret):
            await self._attempt(self._secret_queue, key, self._fill(account, secret))

    def _account(self, key: _SecretKey) -> Object | None:
        account = self._accounts.get(key.namespace, key.account)
        return account if account is not None and _has_uid(account, key.account_uid) else None

    async def _live_account(self, key: _SecretKey) -> Object | None:
        """The informer may lag behind: a Secret may be created right after its account."""
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, key.namespace, key.account)
        except ApiError as problem:
            if is_not_found(problem):
                return None
            raise
        return account if _has_uid(account, key.account_uid) else None

    async def _drop(self, *secrets: Object) -> bool:
        for secret in secrets:
            await self._delete_token(secret["metadata"])
        return False

    async def _fill(self, account: Object, seen: Object) -> bool:
        meta = seen["metadata"]
        try:
            live = await self._client.get(SECRETS, meta["namespace"], meta["name"])
            if live["metadata"]["resourceVersion"] != meta[
                "resourceVersion"
            ] or not self._needs_data(live):
                return False  # its update event is still to come
            data = {**(live.get("data") or {}), **self._missing(account, live)}
            notes = dict(live["metadata"].get("annotations") or {})
            notes |= {NAME_KEY: account["metadata"]["name"], UID_KEY: account["metadata"]["uid"]}
            await self._client.update(
                SECRETS, {**with_metadata(live, annotations=notes), "data": data}
            )
        except ApiError as problem:
            if not (is_conflict(problem) or is_not_found(problem)):
                raise
        return False

    async def _remove_reference(self, key: _SecretKey) -> None:
        account = await self._live_account(key)
        if account is None:
            return
        listed = account.get("secrets") or []
        kept = [ref for ref in listed if ref.get("name") != key.name]
        if len(kept) == len(listed):
            return
        try:
            await self._client.update(SERVICE_ACCOUNTS, {**account, "secrets": kept})
        except ApiError as problem:
            if not is_not_found(problem):
                raise


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _has_uid(account: Object, uid: str) -> bool:
    return not uid or account["metadata"]["uid"] == uid


def _is_token_of(secret: Object, name: str, uid: str) -> bool:
    notes = secret["metadata"].get("annotations") or {}
    return (
        secret.get("type") == TOKEN_SECRET
        and notes.get(NAME_KEY) == name
        and notes.get(UID_KEY) in (None, "", uid)
    )
