"""How long kubelets may cache ConfigMaps and Secrets: the larger the cluster, the longer."""

from __future__ import annotations

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.resources import NODES
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

ANNOTATION = "node.alpha.kubernetes.io/ttl"
_WORKERS = 5


class _Step(NamedTuple):
    """The thresholds overlap, so that small changes of the cluster's size do not update all nodes
    each time.
    """

    fewest: int
    most: float
    seconds: int


_STEPS = (
    _Step(0, 100, 0),
    _Step(90, 500, 15),
    _Step(450, 1000, 30),
    _Step(900, 2000, 60),
    _Step(1800, 10000, 300),
    _Step(9000, float("inf"), 600),
)


class NodeTtl:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="ttlcontroller", metrics=env.queues)
        self._count = 0
        self._step = 0
        self._nodes = env.informers(NODES)
        # Kubelets update their node's status often, so existing nodes get a new TTL soon.
        self._nodes.add_handler(
            add=self._added, update=lambda _, new: self._enqueue(new), delete=self._deleted
        )

    def _added(self, node: Object) -> None:
        self._count += 1
        if self._count > _STEPS[self._step].most:
            self._step += 1
        self._enqueue(node)

    def _deleted(self, _node: Object) -> None:
        self._count -= 1
        if self._count < _STEPS[self._step].fewest:
            self._step -= 1

    def _enqueue(self, node: Object) -> None:
        self._queue.add(node["metadata"]["name"])

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._nodes,), _WORKERS)

    async def _sync(self, name: str) -> None:
        node = self._nodes.get("", name)
        wanted = str(_STEPS[self._step].seconds)
        if node is None or (node["metadata"].get("annotations") or {}).get(ANNOTATION) == wanted:
            return
        try:
            await self._client.patch(
                NODES, "", name, {"metadata": {"annotations": {ANNOTATION: wanted}}}, MERGE_PATCH
            )
        except ApiError as problem:
            if not is_not_found(problem):
                raise
