"""Aggregated ClusterRoles: their rules are those of the roles that their selectors match."""

from __future__ import annotations

from functools import partial

from transom.client.api import APPLY_PATCH
from transom.client.resources import CLUSTER_ROLES
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.large_work import compute_for_object
from transom.machinery.objects import Object
from transom.machinery.rbac import AGGREGATION_MANAGER, aggregated_rules
from transom.machinery.releases.behaviour import has_behaviour

_WORKERS = 5


class ClusterRoleAggregation:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._applies = has_behaviour(env.settings.release, "AppliedRoleRules")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="ClusterRoleAggregator", metrics=env.queues
        )
        self._roles = env.informers(CLUSTER_ROLES)
        self._roles.add_index(
            "aggregated", lambda role: ("yes",) if role.get("aggregationRule") else ()
        )
        self._roles.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=self._changed
        )

    def _changed(self, _role: Object) -> None:
        # Any role may be selected by any other, also by one that is itself aggregated.
        for role in self._roles.by_index("aggregated", "yes"):
            self._queue.add(role["metadata"]["name"])

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._roles,), _WORKERS)

    async def _sync(self, name: str) -> None:
        role = self._roles.get("", name)
        if role is None or not role.get("aggregationRule"):
            return
        others = list(self._roles.list())
        longest = max((other.get("rules") or [] for other in others), key=len, default=[])
        rules = await compute_for_object([role, longest], partial(aggregated_rules, role, others))
        if rules == (role.get("rules") or []):
            return
        if not self._applies:
            await self._client.update(CLUSTER_ROLES, {**role, "rules": rules or None})
            return
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            **({"rules": rules} if rules else {}),
        }
        await self._client.patch(
            CLUSTER_ROLES,
            "",
            name,
            body,
            APPLY_PATCH,
            field_manager=AGGREGATION_MANAGER,
            force=True,
        )
