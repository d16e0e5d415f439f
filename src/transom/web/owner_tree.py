"""The owners of an object and the objects that it owns, a few levels up and down."""

from __future__ import annotations

from typing import Any, Final

from transom.client.api import ApiUnreachable
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.web.api_access import ApiAccess
from transom.web.kind_index import KindIndex, ServedKind, object_page

_METADATA: Final = (
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)
_MOST_LEVELS: Final = 4
_MOST_OBJECTS: Final = 200
_PAGE: Final = 500
# Which kinds a controller creates; for other owners (custom resources) all of them are read.
_CHILDREN: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": ("replicasets",),
    "ReplicaSet": ("pods",),
    "ReplicationController": ("pods",),
    "StatefulSet": ("pods", "controllerrevisions"),
    "DaemonSet": ("pods", "controllerrevisions"),
    "CronJob": ("jobs",),
    "Job": ("pods",),
    "Service": ("endpointslices",),
    "Pod": (),
    "Event": (),
}
_ANY: Final = (
    "configmaps",
    "daemonsets",
    "deployments",
    "jobs",
    "persistentvolumeclaims",
    "pods",
    "replicasets",
    "secrets",
    "serviceaccounts",
    "services",
    "statefulsets",
)


async def owner_chain(api: ApiAccess, index: KindIndex, obj: Object) -> list[dict[str, Any]]:
    """The controller of the object, its controller, and so on; the top one first."""
    chain: list[dict[str, Any]] = []
    namespace = obj["metadata"].get("namespace", "")
    while len(chain) < _MOST_LEVELS:
        references = obj["metadata"].get("ownerReferences") or ()
        owner = next((one for one in references if one.get("controller")), None)
        owner = owner or next(iter(references), None)
        if owner is None:
            break
        entry: dict[str, Any] = {"kind": owner.get("kind"), "name": owner.get("name")}
        chain.insert(0, entry)
        kind = await index.of_object(str(owner.get("apiVersion")), str(owner.get("kind")))
        if kind is None:
            break
        inside = namespace if kind.namespaced else ""
        entry["page"] = object_page(kind, inside, str(owner.get("name")))
        try:
            obj = await api.get_json(kind.path(inside, str(owner.get("name"))))
        except (ApiError, ApiUnreachable):
            break  # it is gone, or the user may not see it
    return chain


async def owned_tree(
    api: ApiAccess, index: KindIndex, kind: str, obj: Object
) -> list[dict[str, Any]]:
    """The objects that this one owns, each with its own; bounded in depth and number."""
    meta = obj["metadata"]
    kinds: dict[str, ServedKind] = {}
    for one in await index.kinds():
        if one.preferred:
            kinds.setdefault(one.plural, one)  # pods of the core group before those of metrics
    reader = _TreeReader(api, kinds, meta.get("namespace", ""))
    return await reader.children(kind, str(meta.get("uid")), 0)


class _TreeReader:
    """Reads each kind of the namespace once."""

    def __init__(self, api: ApiAccess, kinds: dict[str, ServedKind], namespace: str) -> None:
        self._api = api
        self._kinds = kinds
        self._namespace = namespace
        self._lists: dict[str, list[Object]] = {}
        self._left = _MOST_OBJECTS

    async def children(self, kind: str, uid: str, level: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if level >= _MOST_LEVELS:
            return found
        for plural in _CHILDREN.get(kind, _ANY if level == 0 else ()):
            served = self._kinds.get(plural)
            if served is None:
                continue
            for item in await self._list(served):
                meta = item["metadata"]
                if self._left <= 0:
                    return found
                if any(o.get("uid") == uid for o in meta.get("ownerReferences") or ()):
                    self._left -= 1
                    below = await self.children(served.kind, str(meta.get("uid")), level + 1)
                    page = object_page(served, meta.get("namespace", ""), meta["name"])
                    found.append(
                        {"kind": served.kind, "name": meta["name"], "page": page, "below": below}
                    )
        return found

    async def _list(self, kind: ServedKind) -> list[Object]:
        if kind.plural not in self._lists:
            query = {"limit": str(_PAGE)}
            try:
                answer = await self._api.request(
                    "GET", kind.path(self._namespace), query, accept=_METADATA
                )
                self._lists[kind.plural] = answer.json().get("items") or []
            except (ApiError, ApiUnreachable):
                self._lists[kind.plural] = []  # the user may not see these
        return self._lists[kind.plural]
