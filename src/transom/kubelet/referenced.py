"""Config maps and secrets that pods of one node reference, fresh enough to start containers with.

Kubernetes' kubelet watches each such object. Here a kubelet fetches on demand, because a thousand
kubelets in a process would hold a thousand watches of the same token: a new pod always gets the
server's current object, the periodic syncs of running pods share one response per node for a few
seconds, and objects that cannot change (`immutable`) or rarely do (service account tokens) are
cached longer. Volumes show an update at the next sync of their pod, every 60 to 90 seconds, as in
Kubernetes.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from transom.client.api import ApiClient, is_not_found
from transom.client.resources import CONFIG_MAPS, SECRETS, GroupVersionResource
from transom.kit.caching import text_cache
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

FRESH: Final = 0.0
SHARED: Final = 10.0
_TOKEN_SECONDS: Final = 60.0
_UNUSED_SECONDS: Final = 180.0
_SHORT: Final = 16384
_SINGULAR: Final = {CONFIG_MAPS: "configmap", SECRETS: "secret"}


class ReferenceFailure(Exception):
    """The object cannot be fetched; the text is the kubelet's. `missing` when it does not exist."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class _Entry:
    __slots__ = ("fetched", "obj", "used")

    def __init__(self, obj: Object, now: float) -> None:
        self.obj = obj
        self.fetched = now
        self.used = now


_Key = tuple[GroupVersionResource, str, str]


class ReferencedObjects:
    __slots__ = ("_client", "_clock", "_entries")

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: dict[_Key, _Entry] = {}

    async def config_map(self, namespace: str, name: str, max_age: float = FRESH) -> Object:
        return await self.get(CONFIG_MAPS, namespace, name, max_age)

    async def secret(self, namespace: str, name: str, max_age: float = FRESH) -> Object:
        return await self.get(SECRETS, namespace, name, max_age)

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, max_age: float = FRESH
    ) -> Object:
        """The object, not older than `max_age` seconds, unless objects of its kind rarely change. Raises
        ReferenceFailure.
        """
        key = (resource, namespace, name)
        now = self._clock.monotonic()
        entry = self._entries.get(key)
        if entry is not None:
            entry.used = now
            if entry.obj.get("immutable") or now - entry.fetched < max(
                max_age, _lasting(entry.obj)
            ):
                return entry.obj
        try:
            obj = await self._client.get(resource, namespace, name)
        except ApiError as problem:
            self._entries.pop(key, None)
            if is_not_found(problem):
                raise ReferenceFailure(
                    f'{_SINGULAR[resource]} "{name}" not found', missing=True
                ) from problem
            raise self._unsynced(resource) from problem
        except OSError as problem:
            raise self._unsynced(resource) from problem
        now = self._clock.monotonic()
        if key not in self._entries:
            self._entries = {
                k: e for k, e in self._entries.items() if now - e.used < _UNUSED_SECONDS
            }
        self._entries[key] = _Entry(obj, now)
        return obj

    @staticmethod
    def _unsynced(resource: GroupVersionResource) -> ReferenceFailure:
        return ReferenceFailure(
            f"failed to sync {_SINGULAR[resource]} cache: timed out waiting for the condition"
        )


def _lasting(obj: Object) -> float:
    return _TOKEN_SECONDS if obj.get("type") == "kubernetes.io/service-account-token" else 0.0


def secret_bytes(text: str) -> bytes:
    """A value of a secret. Short ones (tokens, certificates) share one bytes object among all pods
    of a process.
    """
    return _decode(text) if len(text) <= _SHORT else b64decode(text)


def text_bytes(text: str) -> bytes:
    return _encode(text) if len(text) <= _SHORT else text.encode()


@text_cache(2048, longest=4096)
def _decode(text: str) -> bytes:
    return b64decode(text)


@text_cache(2048, longest=4096)
def _encode(text: str) -> bytes:
    return text.encode()
