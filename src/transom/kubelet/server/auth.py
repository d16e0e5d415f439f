"""Authentication and authorization of kubelet requests: client certificates, TokenReview,
SubjectAccessReview.

The API server decides; its answers are cached, as Kubernetes' kubelet does by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import orjson

from transom.client.api import ApiClient
from transom.client.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from transom.http.messages import HttpRequest
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.server.answers import HttpFailure
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

TOKEN_SECONDS: Final = 120.0
ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
_REMEMBERED: Final = 1024

_AUTHENTICATED: Final = "system:authenticated"
_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_SUBRESOURCES: Final = (
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/spec", "spec"),
    ("/checkpoint", "checkpoint"),
)

K = TypeVar("K")
V = TypeVar("V")


class AuthenticatedUser(NamedTuple):
    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, list[str]] | None = None


ANONYMOUS: Final = AuthenticatedUser("system:anonymous", ("system:unauthenticated",))


class _Memory(Generic[K, V]):
    """Answers with a time to live."""

    __slots__ = ("_clock", "_known")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        found = self._known.get(key)
        return found[1] if found is not None and found[0] > self._clock.monotonic() else None

    def put(self, key: K, value: V, seconds: float) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (self._clock.monotonic() + seconds, value)


def verb_of(method: str) -> str:
    return _VERBS.get(method, "")


def subresource_of(path: str) -> str:
    for prefix, name in _SUBRESOURCES:
        if path == prefix or path.startswith(prefix + "/"):
            return name
    return "proxy"


_FINE: Final = (
    ("/pods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
    ("/runningpods", "pods"),
)


def fine_subresource_of(path: str) -> str:
    """The subresource that allows a path besides nodes/proxy; empty if there is none."""
    return next((n for p, n in _FINE if path == p or path.startswith(p + "/")), "")


class AuthRules(NamedTuple):
    """What depends on the release: `fine` subresources such as nodes/pods, and error texts that
    name all `subresources`.
    """

    fine: bool = False
    subresources: bool = False


NO_AUTH_RULES: Final = AuthRules()


class KubeletAuth:
    __slots__ = ("_anonymous", "_client", "_clock", "_decisions", "_node", "_rules", "_tokens")

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        node: str,
        anonymous: bool,
        rules: AuthRules = NO_AUTH_RULES,
    ) -> None:
        self._rules = rules
        self._client = client
        self._clock = clock
        self._node = node
        self._anonymous = anonymous
        self._tokens: _Memory[str, AuthenticatedUser] = _Memory(clock)
        self._decisions: _Memory[bytes, bool] = _Memory(clock)

    async def check(self, request: HttpRequest) -> None:
        """Raises the Failure that rejects an unauthenticated request."""
        user = await self._authenticate(request)
        if user is None:
            raise HttpFailure(401, "Unauthorized")
        verb, names = verb_of(request.method), [subresource_of(request.path)]
        if self._rules.fine and (fine := fine_subresource_of(request.path)):
            names.insert(0, fine)
        begin = f"(user={user.name}, verb={verb}, resource=nodes, "
        for name in names:
            try:
                if await self._authorize(user, verb, name):
                    return
            except (ApiError, OSError) as problem:
                text = f"Authorization error {begin}subresource={name})"
                raise HttpFailure(500, text) from problem
        if self._rules.subresources:
            raise HttpFailure(403, f"Forbidden {begin}subresource(s)=[{' '.join(names)}])\n")
        raise HttpFailure(403, f"Forbidden {begin}subresource={names[0]})")

    async def _authenticate(self, request: HttpRequest) -> AuthenticatedUser | None:
        peer = request.peer
        if peer is not None and peer.cn and peer.not_before <= self._clock.time() <= peer.not_after:
            return AuthenticatedUser(peer.cn, (*peer.organizations, _AUTHENTICATED))
        token = _bearer(request)
        if token:
            return await self._review(token)
        return ANONYMOUS if self._anonymous else None

    async def _review(self, token: str) -> AuthenticatedUser | None:
        known = self._tokens.get(token)
        if known is not None:
            return known
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        try:
            answer = await self._client.create(TOKEN_REVIEWS, "", review)
        except (ApiError, OSError):
            return None
        status = answer.get("status") or {}
        who = status.get("user") or {}
        if not status.get("authenticated") or not who.get("username"):
            return None
        groups = tuple(who.get("groups") or ())
        if _AUTHENTICATED not in groups:
            groups += (_AUTHENTICATED,)
        user = AuthenticatedUser(who["username"], groups, who.get("uid", ""), who.get("extra"))
        self._tokens.put(token, user, TOKEN_SECONDS)
        return user

    async def _authorize(self, user: AuthenticatedUser, verb: str, subresource: str) -> bool:
        spec: Object = {
            "resourceAttributes": {
                "verb": verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self._node,
            },
            "user": user.name,
            "groups": list(user.groups),
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = dict(user.extra)
        key = orjson.dumps(spec)  # with uid and extra, which authorizers may use
        known = self._decisions.get(key)
        if known is not None:
            return known
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, "", review)
        allowed = bool((answer.get("status") or {}).get("allowed"))
        self._decisions.put(key, allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        return allowed


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.header(b"authorization").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
