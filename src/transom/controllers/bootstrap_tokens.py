"""Bootstrap tokens: deletes expired ones, and signs the cluster-info that a joining node reads
before it trusts the API server.

The ConfigMap `kube-public/cluster-info` contains a kubeconfig, and for every signing token a
detached JWS of it, so that a client with the token can verify the kubeconfig.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re

from transom.client.api import is_conflict, is_not_found
from transom.client.resources import CONFIG_MAPS, SECRETS
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

TOKEN_TYPE = "bootstrap.kubernetes.io/token"
_SECRETS_NAMESPACE, _INFO_NAMESPACE, _INFO_NAME = "kube-system", "kube-public", "cluster-info"
_KUBECONFIG, _SIGNATURE_PREFIX = "kubeconfig", "jws-kubeconfig-"
_NAME = re.compile(r"bootstrap-token-([a-z0-9]{6})")


def _is_token(secret: Object) -> bool:
    return (
        secret.get("type") == TOKEN_TYPE and secret["metadata"]["namespace"] == _SECRETS_NAMESPACE
    )


def _data(secret: Object, key: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key) or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def seconds_left(secret: Object, now: float) -> float | None:
    """Seconds until the token expires; 0 if it has expired or cannot be parsed, None if it never
    does.
    """
    text = _data(secret, "expiration")
    if not text:
        return None
    try:
        return max(0.0, parse_rfc3339(text) - now)
    except ValueError:
        return 0.0


class TokenCleaner:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="token_cleaner", metrics=env.queues)
        self._secrets = env.informers(SECRETS)
        self._secrets.add_handler(add=self._changed, update=lambda _, new: self._changed(new))

    def _changed(self, secret: Object) -> None:
        if _is_token(secret):
            self._queue.add(object_key(secret))

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._secrets,))

    async def _sync(self, key: str) -> None:
        secret = self._secrets.by_key(key)
        if secret is None or not _is_token(secret):
            return
        left = seconds_left(secret, self._clock.time())
        if left:
            self._queue.add_after(key, left)
        elif left is not None:
            meta = secret["metadata"]
            try:
                await self._client.delete(SECRETS, meta["namespace"], meta["name"], uid=meta["uid"])
            except ApiError as problem:
                if not (is_not_found(problem) or is_conflict(problem)):
                    raise


class BootstrapSigner:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="bootstrap_signer_queue", metrics=env.queues
        )
        self._config_maps = env.informers(CONFIG_MAPS)
        self._secrets = env.informers(SECRETS)
        self._config_maps.add_handler(
            add=self._info_changed, update=lambda _, new: self._info_changed(new)
        )
        self._secrets.add_handler(
            add=self._secret_changed,
            update=lambda _, new: self._secret_changed(new),
            delete=self._secret_changed,
        )

    def _info_changed(self, config_map: Object) -> None:
        meta = config_map["metadata"]
        if meta["name"] == _INFO_NAME and meta["namespace"] == _INFO_NAMESPACE:
            self._queue.add(_INFO_NAME)

    def _secret_changed(self, secret: Object) -> None:
        if _is_token(secret):
            self._queue.add(_INFO_NAME)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._config_maps, self._secrets))

    async def _sync(self, _name: str) -> None:
        info = self._config_maps.get(_INFO_NAMESPACE, _INFO_NAME)
        data = (info or {}).get("data") or {}
        if info is None or _KUBECONFIG not in data:
            return
        wanted = {
            key: value for key, value in data.items() if not key.startswith(_SIGNATURE_PREFIX)
        }
        for identifier, secret in self._tokens().items():
            wanted[_SIGNATURE_PREFIX + identifier] = detached_signature(
                data[_KUBECONFIG], identifier, secret
            )
        if wanted == data:
            return
        try:
            await self._client.update(CONFIG_MAPS, {**info, "data": wanted})
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def _tokens(self) -> dict[str, str]:
        """Token id -> secret of the tokens that may sign."""
        out: dict[str, str] = {}
        for secret in self._secrets.list(_SECRETS_NAMESPACE):
            named = _NAME.fullmatch(secret["metadata"]["name"])
            if not _is_token(secret) or named is None:
                continue
            identifier, word = _data(secret, "token-id"), _data(secret, "token-secret")
            alive = seconds_left(secret, self._clock.time()) != 0
            if (
                identifier == named[1]
                and word
                and alive
                and _data(secret, "usage-bootstrap-signing") == "true"
            ):
                out.setdefault(identifier, word)
        return out


def detached_signature(content: str, identifier: str, secret: str) -> str:
    """A compact JWS (HMAC with SHA-256) with a detached payload."""
    header = _base64url(
        json.dumps({"alg": "HS256", "kid": identifier}, separators=(",", ":")).encode()
    )
    signed = f"{header}.{_base64url(content.encode())}"
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{header}..{_base64url(signature)}"


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
