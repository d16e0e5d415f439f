"""Service account tokens for pods: requested once, and refreshed before they expire."""

from __future__ import annotations

import random

from transom.client.api import ApiClient
from transom.client.resources import SERVICE_ACCOUNTS
from transom.kit.clock import Clock, parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.failures import VolumeFailure
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_MAX_AGE = 24 * 3600.0
_MAX_JITTER = 10.0


class _Token(NamedTuple):
    data: bytes
    expires: float
    seconds: int


class TokenManager:
    __slots__ = ("_client", "_clock", "_rng", "_tokens")

    def __init__(self, client: ApiClient, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._tokens: dict[str, dict[tuple[str, int | None], _Token]] = {}

    async def status(self, pod: Object, audience: str, seconds: int | None) -> Object:
        """The status of a TokenRequest: the token and its expiration. Raises VolumeFailure."""
        token = await self.get(pod, audience, seconds)
        known = self._tokens[pod["metadata"]["uid"]][audience, seconds]
        return {"token": token.decode(), "expirationTimestamp": rfc3339(known.expires)}

    async def get(self, pod: Object, audience: str, seconds: int | None) -> bytes:
        """A token of the pod's service account, bound to the pod. Raises VolumeFailure."""
        meta = pod["metadata"]
        own = self._tokens.setdefault(meta["uid"], {})
        token = own.get((audience, seconds))
        if token is not None and not self._is_old(token):
            return token.data
        account = pod["spec"].get("serviceAccountName") or ""
        try:
            fresh = await self._request(pod, account, audience, seconds)
        except (ApiError, OSError) as problem:
            if token is None:
                raise VolumeFailure(f"failed to fetch token: {problem}") from problem
            if self._clock.time() > token.expires:
                raise VolumeFailure(
                    f'token "{account}"/"{meta["namespace"]}" expired and refresh failed: {problem}'
                ) from problem
            return token.data
        own[audience, seconds] = fresh
        return fresh.data

    def forget(self, uid: str) -> None:
        self._tokens.pop(uid, None)

    def _is_old(self, token: _Token) -> bool:
        """After 80 % of its lifetime or a day, slightly earlier at random to spread the
        requests.
        """
        now = self._clock.time()
        jitter = int(self._rng.random() * _MAX_JITTER)
        made = token.expires - token.seconds
        return (
            now > made + _MAX_AGE - jitter
            or now > token.expires - token.seconds * 20 // 100 - jitter
        )

    async def _request(
        self, pod: Object, account: str, audience: str, seconds: int | None
    ) -> _Token:
        meta = pod["metadata"]
        spec: Object = {
            "audiences": [audience] if audience else [],
            "boundObjectRef": {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": meta["name"],
                "uid": meta["uid"],
            },
        }
        if seconds is not None:
            spec["expirationSeconds"] = seconds
        requested = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        answer = await self._client.create_subresource(
            SERVICE_ACCOUNTS, meta["namespace"], account, "token", requested
        )
        status = answer["status"]
        lifetime = answer["spec"].get("expirationSeconds") or seconds or 0
        return _Token(
            status["token"].encode(), parse_rfc3339(status["expirationTimestamp"]), int(lifetime)
        )
