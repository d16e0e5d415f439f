"""Runs the admission plugins: the mutating ones, then, after the object is validated, the
validating ones.

Which plugins handle a request is decided once for each resource, operation and subresource.
`order.py` lists the plugins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from transom.apiserver.admission.plugin import AdmissionPlugin, MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.resources import Resource
from transom.kit.named_tuple import NamedTuple
from transom.kit.workers import WorkRunner

_REMEMBERED = 4096  # cached kinds of requests; custom resources can be added and removed
_Run = Callable[[Attributes], Awaitable[None] | None]


class _Link(NamedTuple):
    run: _Run
    thread_safe: bool


class AdmissionChain:
    def __init__(self, plugins: Sequence[AdmissionPlugin], workers: WorkRunner) -> None:
        self._workers = workers
        self._mutating = _Phase([(p, p.admit) for p in plugins if isinstance(p, MutatingPlugin)])
        self._validating = _Phase(
            [(p, p.validate) for p in plugins if isinstance(p, ValidatingPlugin)]
        )

    async def admit(self, attributes: Attributes) -> None:
        await self._run(self._mutating.links(attributes), attributes)
        rounds = attributes.rounds
        if rounds is not None and rounds.wanted and not rounds.second:
            rounds.second = True
            await self.admit(attributes)

    def validate(self, attributes: Attributes) -> Awaitable[None]:
        return self._run(self._validating.links(attributes), attributes)

    async def _run(self, links: tuple[_Link, ...], attributes: Attributes) -> None:
        if attributes.ctx.large:
            await self._run_in_worker(links, attributes)
            return
        for run, _ in links:
            pending = run(attributes)
            if pending is not None:
                await pending

    async def _run_in_worker(self, links: tuple[_Link, ...], attributes: Attributes) -> None:
        for run, thread_safe in links:
            if thread_safe:
                pending = await compute_in_worker(
                    self._workers, attributes.ctx, partial(run, attributes)
                )
            else:
                pending = run(attributes)
            if pending is not None:
                await pending


class _Phase:
    """One of the two passes, and the plugins that handle each kind of request."""

    __slots__ = ("_known", "_plugins")

    def __init__(self, plugins: Sequence[tuple[AdmissionPlugin, _Run]]) -> None:
        self._plugins = plugins
        self._known: dict[tuple[Resource, str, str], tuple[_Link, ...]] = {}

    def links(self, attributes: Attributes) -> tuple[_Link, ...]:
        key = (attributes.resource, attributes.operation, attributes.subresource)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = tuple(
                _Link(run, plugin.thread_safe)
                for plugin, run in self._plugins
                if plugin.handles(*key)
            )
        return found
