"""The rehearsal of a move to another Windows build on a running cluster: adds a node of the new
build for each old Windows node, cordons and drains the old ones, and reports for each workload
whether its pods run on the new nodes. Pods are evicted, so PodDisruptionBudgets count. DaemonSets
are not evicted, but must run on the new nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError

Object = Mapping[str, Any]
OLD_NODE_LABEL: Final = "rehearsal.transom.dev/old-node"  # of a new node: the one that it replaces
_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"
_POLL_SECONDS: Final = 1.0
_NODE_SECONDS: Final = 60.0
_MIRROR: Final = "kubernetes.io/config.mirror"


class RehearsalCluster(Protocol):
    async def call(self, method: str, path: str, body: Any = None, media: str = _JSON) -> Any:
        """Raises UserError or ApiError."""

    async def sleep(self, seconds: float) -> None: ...


class WorkloadMove(NamedTuple):
    workload: str  # "Deployment default/web"
    pods: int  # on the old nodes
    result: str  # "moved", "failed", "blocked" or "not moved"
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.result == "moved"


class Rehearsal(NamedTuple):
    old: tuple[str, ...]
    new: tuple[str, ...]
    moves: tuple[WorkloadMove, ...]


class _Workload(NamedTuple):
    title: str
    uid: str  # of the controller of its pods; "" for a pod without a controller
    pods: list[Object]
    daemon: bool = False


async def rehearse_move(
    cluster: RehearsalCluster,
    build: int,
    seconds: float,
    report: Callable[[str], None] = lambda _: None,
) -> Rehearsal:
    """Returns when all workloads run on nodes of the build, or after `seconds`. Raises
    UserError.
    """
    nodes = (await cluster.call("GET", "/transom/nodes"))["items"]
    windows = [node for node in nodes if node["os"] == "windows"]
    old = [node["name"] for node in windows if node["build"] != build]
    if not old:
        raise UserError(
            f"no Windows node has a build other than {build}",
            "choose another one with --build; see transom node list",
        )
    taken = {node["name"] for node in nodes}
    new = await _add_nodes(cluster, old, taken, build)
    if added := [name for name in new if name not in taken]:
        report(f"added {', '.join(added)}")
    workloads = await _workloads(cluster, old)
    for name in old:
        await _cordon(cluster, name, True)
    report(f"cordoned {', '.join(old)}")
    blocked = await _evict_all(cluster, workloads, seconds, report)
    moves = [_without_controller(one) for one in workloads if not one.uid]
    waiting = [one for one in workloads if one.uid and one.title not in blocked]
    moves += [
        WorkloadMove(one.title, len(one.pods), "blocked", blocked[one.title])
        for one in workloads
        if one.title in blocked
    ]
    moves += await _wait_until_moved(cluster, waiting, set(old), set(new), seconds)
    return Rehearsal(tuple(old), tuple(new), tuple(sorted(moves)))


async def end_rehearsal(cluster: RehearsalCluster) -> list[str]:
    """Uncordons the old nodes, evicts the pods of the new ones and deletes them. Returns the
    deleted nodes.
    """
    items = (await cluster.call("GET", "/api/v1/nodes"))["items"]
    labels = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in items}
    new = [name for name, found in labels.items() if OLD_NODE_LABEL in found]
    for name in new:
        if labels[name][OLD_NODE_LABEL] in labels:
            await _cordon(cluster, labels[name][OLD_NODE_LABEL], False)
    for name in new:
        await _cordon(cluster, name, True)
    await _evict_all(cluster, await _workloads(cluster, new), _NODE_SECONDS, lambda _: None)
    for name in new:
        await cluster.call("DELETE", f"/transom/nodes/{name}")
    return new


async def _add_nodes(
    cluster: RehearsalCluster, old: Sequence[str], taken: set[str], build: int
) -> list[str]:
    rows = []
    for name in old:
        node = await cluster.call("GET", f"/api/v1/nodes/{name}")
        taints = [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in node["spec"].get("taints") or ()
            if not taint["key"].startswith("node.kubernetes.io/")
        ]
        new = f"{name}-{build}"
        if new not in taken:
            row = {"name": new, "os": "windows", "build": build, "taints": taints}
            rows.append({**row, "labels": {OLD_NODE_LABEL: name}})
    names = [f"{name}-{build}" for name in old]
    if rows:
        await cluster.call("POST", "/transom/nodes", rows)
    for _ in range(int(_NODE_SECONDS / _POLL_SECONDS)):
        found = (await cluster.call("GET", "/transom/nodes"))["items"]
        if {node["name"] for node in found if node["ready"]}.issuperset(names):
            return names
        await cluster.sleep(_POLL_SECONDS)
    raise UserError(f"not ready after {_NODE_SECONDS:.0f} s: {', '.join(names)}")


async def _cordon(cluster: RehearsalCluster, name: str, on: bool) -> None:
    await cluster.call(
        "PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}}, _MERGE
    )


async def _workloads(cluster: RehearsalCluster, old: Sequence[str]) -> list[_Workload]:
    """The workloads that have pods on the nodes, without static pods."""
    found: dict[str, _Workload] = {}
    for pod in (await cluster.call("GET", "/api/v1/pods"))["items"]:
        meta = pod["metadata"]
        finished = pod["status"].get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") not in old or finished or "deletionTimestamp" in meta:
            continue
        owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
        if _MIRROR in (meta.get("annotations") or {}):
            continue
        key = owner["uid"] if owner else meta["uid"]
        if key not in found:
            kind, name = (owner["kind"], owner["name"]) if owner else ("Pod", meta["name"])
            if kind == "ReplicaSet":
                kind, name = await _owner_of_replica_set(cluster, meta["namespace"], name)
            title = f"{kind} {meta['namespace']}/{name}"
            found[key] = _Workload(title, owner["uid"] if owner else "", [], kind == "DaemonSet")
        found[key].pods.append(pod)
    return list(found.values())


async def _owner_of_replica_set(
    cluster: RehearsalCluster, namespace: str, name: str
) -> tuple[str, str]:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
    for owner in (await cluster.call("GET", path))["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner["kind"], owner["name"]
    return "ReplicaSet", name


def _without_controller(one: _Workload) -> WorkloadMove:
    return WorkloadMove(
        one.title, 1, "not moved", "no controller creates it again; kubectl drain needs --force"
    )


async def _evict_all(
    cluster: RehearsalCluster,
    workloads: Sequence[_Workload],
    seconds: float,
    report: Callable[[str], None],
) -> dict[str, str]:
    """Evicts the pods that a controller creates again. Returns the workloads whose pods could not
    be evicted in time, with the reason.
    """
    version = await _eviction_version(cluster)
    pending = [
        (one.title, pod) for one in workloads if one.uid and not one.daemon for pod in one.pods
    ]
    report(f"evicting {len(pending)} pods")
    reasons: dict[str, str] = {}
    for _ in range(max(1, int(seconds / _POLL_SECONDS))):
        refused = []
        for title, pod in pending:
            try:
                await _evict(cluster, pod, version)
            except (UserError, ApiError) as problem:
                if "not found" in str(problem):
                    continue
                refused.append((title, pod))
                reasons[title] = str(problem)
        pending = refused
        if not pending:
            return {}
        await cluster.sleep(_POLL_SECONDS)
    return {title: reasons[title] for title, _ in pending}


async def _eviction_version(cluster: RehearsalCluster) -> str:
    groups = (await cluster.call("GET", "/apis"))["groups"]
    policy = next(group for group in groups if group["name"] == "policy")
    return str(policy["preferredVersion"]["groupVersion"])


async def _evict(cluster: RehearsalCluster, pod: Object, version: str) -> None:
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    body = {"apiVersion": version, "kind": "Eviction", "metadata": meta}
    await cluster.call("POST", path, body)


async def _wait_until_moved(
    cluster: RehearsalCluster,
    workloads: Sequence[_Workload],
    old: set[str],
    new: set[str],
    seconds: float,
) -> list[WorkloadMove]:
    moves: list[WorkloadMove] = []
    for _ in range(max(1, int(seconds / _POLL_SECONDS))):
        pods = (await cluster.call("GET", "/api/v1/pods"))["items"]
        moves = [_judge(one, pods, old, new) for one in workloads]
        if all(move.ok for move in moves):
            break
        await cluster.sleep(_POLL_SECONDS)
    return moves


def _judge(one: _Workload, pods: Sequence[Object], old: set[str], new: set[str]) -> WorkloadMove:
    own = [
        pod
        for pod in pods
        if any(o["uid"] == one.uid for o in pod["metadata"].get("ownerReferences") or ())
        and (
            pod["spec"].get("nodeName") in new
            if one.daemon
            else pod["spec"].get("nodeName") not in old
        )
    ]
    if one.daemon and not own:
        return WorkloadMove(one.title, len(one.pods), "failed", "it has no pods on the new nodes")
    done = [pod for pod in own if _is_ready(pod) or pod["status"].get("phase") == "Succeeded"]
    if len(done) >= len(one.pods):
        return WorkloadMove(one.title, len(one.pods), "moved")
    reasons = [text for pod in own if pod not in done and (text := _why_not_ready(pod))]
    return WorkloadMove(
        one.title, len(one.pods), "failed", reasons[0] if reasons else "its pods are not ready yet"
    )


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _why_not_ready(pod: Object) -> str:
    status = pod["status"]
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one.get("message", ""))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = container["state"].get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return str(status.get("message", ""))
