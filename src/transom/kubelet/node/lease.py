"""The node's lease: renewed every quarter of its duration, it is the cheap heartbeat of the
node.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.client.api import ApiClient, is_conflict, is_not_found
from transom.client.resources import LEASES
from transom.kit.clock import Clock, rfc3339_micro
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NAMESPACE = "kube-node-lease"
_TRIES = 5


class NodeLease:
    """`node` returns the Node as last seen; a lease is not created without an owner."""

    __slots__ = ("_client", "_clock", "_lease", "_name", "_node", "_seconds")

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        name: str,
        seconds: int,
        node: Callable[[], Object | None],
    ) -> None:
        self._client, self._clock = client, clock
        self._name, self._seconds = name, seconds
        self._node = node
        self._lease: Object | None = None  # as last written

    async def renew(self) -> None:
        """Raises ApiError and OSError; the next renewal retries."""
        for _ in range(_TRIES):
            if self._lease is None and not await self._find():
                return
            assert self._lease is not None
            try:
                self._lease = await self._client.update(LEASES, self._renewed(self._lease))
                return
            except ApiError as problem:
                # Another client updated or deleted it: read it again.
                self._lease = None
                if not is_conflict(problem) and not is_not_found(problem):
                    raise

    async def _find(self) -> bool:
        """Whether a lease exists now that still needs the renewal."""
        try:
            self._lease = await self._client.get(LEASES, NAMESPACE, self._name)
            return True
        except ApiError as problem:
            if not is_not_found(problem):
                raise
        owner = self._owner()
        if owner is not None:
            self._lease = await self._client.create(
                LEASES,
                NAMESPACE,
                {
                    "apiVersion": LEASES.api_version,
                    "kind": "Lease",
                    "metadata": {
                        "name": self._name,
                        "namespace": NAMESPACE,
                        "ownerReferences": [owner],
                    },
                    "spec": {
                        "holderIdentity": self._name,
                        "leaseDurationSeconds": self._seconds,
                        "renewTime": rfc3339_micro(self._clock.time()),
                    },
                },
            )
        return False

    def _renewed(self, lease: Object) -> Object:
        renewed = {
            **lease,
            "spec": {**lease["spec"], "renewTime": rfc3339_micro(self._clock.time())},
        }
        owner = None if lease["metadata"].get("ownerReferences") else self._owner()
        if owner is not None:
            renewed["metadata"] = {**lease["metadata"], "ownerReferences": [owner]}
        return renewed

    def _owner(self) -> Object | None:
        node = self._node()
        if node is None:
            return None
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._name,
            "uid": node["metadata"]["uid"],
        }
