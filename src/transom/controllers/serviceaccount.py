"""Every active namespace has a service account `default`."""

from __future__ import annotations

from transom.client.api import is_already_exists, is_namespace_terminating
from transom.client.resources import NAMESPACES, SERVICE_ACCOUNTS
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_ACCOUNTS = ("default",)
_WORKERS = 5


class ServiceAccounts:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="serviceaccount", metrics=env.queues
        )
        self._namespaces = env.informers(NAMESPACES)
        self._accounts = env.informers(SERVICE_ACCOUNTS)
        self._namespaces.add_handler(
            add=self._namespace_changed, update=lambda _, new: self._namespace_changed(new)
        )
        self._accounts.add_handler(
            delete=lambda account: self._queue.add(account["metadata"]["namespace"])
        )

    def _namespace_changed(self, namespace: Object) -> None:
        self._queue.add(namespace["metadata"]["name"])

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._namespaces, self._accounts), _WORKERS)

    async def _sync(self, name: str) -> None:
        namespace = self._namespaces.get("", name)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return
        for account in _ACCOUNTS:
            if self._accounts.get(name, account) is not None:
                continue
            try:
                await self._client.create(
                    SERVICE_ACCOUNTS, name, {"metadata": {"name": account, "namespace": name}}
                )
            except ApiError as problem:
                if not (is_already_exists(problem) or is_namespace_terminating(problem)):
                    raise
