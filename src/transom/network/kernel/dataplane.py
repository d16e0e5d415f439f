"""The data plane of namespaces: follows the fabric, queues changes, and applies them off the event
loop.

The state belongs to the event loop, so plans are computed there, quickly; the kernel is updated in
a thread, and changes in the meantime form the next batch.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from functools import partial

from transom.kit.clock import Clock
from transom.network import nft
from transom.network.api import Accept, NamedStack, Respond
from transom.network.kernel import listeners, namespaces, outside, plan, sockets, windows
from transom.network.kernel.applier import Applier
from transom.network.kernel.namespaces import NamespaceVisitor, NetworkNamespaceHandle
from transom.network.kernel.plan import StackPlan
from transom.network.model.addresses import is_within
from transom.network.nft_text import nft_snapshot
from transom.network.stacks import Fabric, NetworkStack

log = logging.getLogger("transom.network.kernel")


class KernelDataplane:
    """`patience`: the timeout of a connection attempt."""

    def __init__(self, fabric: Fabric, name: str, clock: Clock, *, patience: float = 10.0) -> None:
        reason = namespaces.missing_kernel_support()
        if reason:
            raise PermissionError(errno.EPERM, reason)
        namespaces.allow_many_files()
        self.problems: list[str] = []  # what the kernel rejected in the last update
        self._fabric = fabric
        self._clock = clock
        self.patience = patience
        self._builder = NamespaceVisitor(f"{name}-network")
        # a separate thread, so that a new socket need not wait for a long list of rules
        self._visitor = NamespaceVisitor(f"{name}-sockets")
        self._sweeper = NamespaceVisitor(f"{name}-sweeper")
        self._applier = Applier(self._builder, self._sweeper)
        self._dirty: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._dirty_tables: dict[str, set[str]] = {}
        self._tables: dict[str, dict[str, nft.NftTable]] = {}  # tables of each stack, as last read
        self._compiled: dict[str, windows.SwitchCompiler] = {}
        self._sandboxes: dict[str, dict[str, NetworkStack]] = {}  # of Windows nodes
        self._bridged: dict[str, tuple[str, ...]] = {}  # sandboxes with addresses of the underlay
        self._unsubscribe: list[Callable[[], None]] = []
        self._closers: set[Callable[[], None]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._requested = self._applied = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._closed = False
        fabric.listeners.append(self._changed)
        self._unsubscribe.append(partial(fabric.listeners.remove, self._changed))
        for stack in fabric.stacks.values():
            self._changed(stack, "link", "")

    # ---- the Dataplane interface ----

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        client = await self._client(sockets.STREAM, address, source)
        return await sockets.connect_in_namespace(client, address, port, self._clock, self.patience)

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        client = await self._client(sockets.DATAGRAM, address, source)
        return await sockets.ask_in_namespace(client, address, port, payload, self._clock, timeout)

    async def echo(self, address: str, source: str = "", patience: float = 1.0) -> bool:
        """Sends one ICMP echo request; returns whether a reply arrived."""
        client = await self._client(sockets.PING, address, source)
        return await sockets.ping_in_namespace(client, address, self._clock, patience)

    def listen(
        self, address: str, port: int, accept: Accept, stack: str = ""
    ) -> Callable[[], None]:
        server = self._server(sockets.STREAM, address, port, stack)
        return self._closing(sockets.take_connections(asyncio.get_running_loop(), server, accept))

    def answer(
        self, address: str, port: int, respond: Respond, stack: str = ""
    ) -> Callable[[], None]:
        server = self._server(sockets.DATAGRAM, address, port, stack)
        return self._closing(sockets.take_datagrams(asyncio.get_running_loop(), server, respond))

    def listening(self, stack: NamedStack, address: str, port: int, protocol: str) -> bool:
        """Whether a program accepts such a connection or datagram, according to the kernel's
        sockets in the stack's namespace. Includes programs of real containers.
        """
        if self._closed or stack.name not in self._fabric.stacks:
            return False
        return self._visitor.submit(
            partial(self._listens_inside, stack.name, address, port, protocol)
        ).result()

    def _listens_inside(self, stack: str, address: str, port: int, protocol: str) -> bool:
        self._visitor.enter(self._applier.namespace(stack, self._visitor))
        return listeners.has_listener(address, port, protocol)

    async def settled(self) -> None:
        for stack in list(self._fabric.stacks.values()):
            if stack.role == "node":
                self._fabric.refresh_node(stack.name)
        await self._caught_up()

    # ---- namespaces for runtimes ----

    async def namespace(self, stack: str) -> NetworkNamespaceHandle:
        """The namespace of a stack, with everything that the stack contains so far."""
        await self._caught_up()
        return await asyncio.wrap_future(
            self._visitor.submit(partial(self._applier.namespace, stack, self._visitor))
        )

    def adopt(self, stack: str, path: str) -> None:
        """Uses this namespace for a stack that does not exist yet: that of processes that outlived
        the previous process.
        """
        self._applier.adopted[stack] = path

    async def close(self) -> None:
        """Removes everything. Open sockets keep working only within their own namespace."""
        if self._closed:
            return
        self._closed = True
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for compiler in self._compiled.values():
            compiler.close()
        for close in list(self._closers):
            close()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await asyncio.wrap_future(self._builder.submit(self._applier.close))
        for visitor in (self._builder, self._visitor, self._sweeper):
            await asyncio.to_thread(visitor.close)

    # ---- sockets ----

    async def _client(self, kind: sockets.Kind, destination: str, source: str) -> socket.socket:
        stack = self._query_source(source)
        await self._caught_up()
        bound = source if source and (":" in source) == (":" in destination) else ""
        with sockets.translated_errors():
            return await asyncio.wrap_future(
                self._visitor.submit(
                    partial(
                        self._made_inside, stack.name, sockets.make_client, kind, destination, bound
                    )
                )
            )

    def _query_source(self, source: str) -> NetworkStack:
        if source:
            found = self._fabric.owner(source)
        else:
            found = next((s for s in self._fabric.stacks.values() if s.role == "node"), None)
        if found is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return found

    def _server(self, kind: sockets.Kind, address: str, port: int, where: str) -> socket.socket:
        stack = self._fabric.stacks.get(where) if where else self._fabric.owner(address)
        if stack is None:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        # Takes less than a millisecond: the thread does nothing else.
        return self._visitor.submit(
            partial(self._made_inside, stack.name, sockets.make_server, kind, address, port)
        ).result()

    def _made_inside(
        self, stack: str, make: Callable[..., socket.socket], *arguments: object
    ) -> socket.socket:
        self._visitor.enter(self._applier.namespace(stack, self._visitor))
        return make(*arguments)

    def _closing(self, close: Callable[[], None]) -> Callable[[], None]:
        def once() -> None:
            self._closers.discard(once)
            close()

        self._closers.add(once)
        return once

    # ---- following the state ----

    def _changed(self, stack: NetworkStack, what: str, name: str) -> None:
        self._requested += 1
        if what == "gone":
            self._dirty.pop(stack.name, None)
            self._gone[stack.name] = None
            self._tables.pop(stack.name, None)
            self._dirty_tables.pop(stack.name, None)
            compiler = self._compiled.pop(stack.name, None)
            if compiler is not None:
                compiler.close()
        else:
            if what == "table":
                self._dirty_tables.setdefault(stack.name, set()).add(name)
            if stack.hns is not None and stack.role == "node" and stack.name not in self._compiled:
                self._compiled[stack.name] = windows.SwitchCompiler(
                    stack,
                    self._sandboxes.setdefault(stack.name, {}),
                    self._fabric.underlay,
                    partial(self._changed, stack, "hns", ""),
                )
            self._dirty[stack.name] = None
        if stack.role == "sandbox" and what in ("link", "address", "gone"):
            self._note_bridged(stack, gone=what == "gone")
            if stack.os == "windows":
                self._at_switch(stack, gone=what == "gone")
        self._wake()

    def _note_bridged(self, sandbox: NetworkStack, *, gone: bool) -> None:
        """Pods with underlay addresses also affect the external host."""
        underlay = self._fabric.underlay
        held = (
            ()
            if gone or not underlay
            else tuple(a for a in sandbox.addresses() if is_within(a, underlay))
        )
        if held != self._bridged.get(sandbox.name, ()):
            if held:
                self._bridged[sandbox.name] = held
            else:
                del self._bridged[sandbox.name]
            self._dirty.update(
                (s.name, None) for s in self._fabric.stacks.values() if s.role == "external"
            )

    def _at_switch(self, sandbox: NetworkStack, *, gone: bool) -> None:
        """The node has its own end of a pod's link, so a change of the pod affects the node."""
        there = self._sandboxes.setdefault(sandbox.node, {})
        if gone:
            there.pop(sandbox.name, None)
        else:
            there[sandbox.name] = sandbox
        if sandbox.node in self._compiled:
            self._dirty[sandbox.node] = None

    def _wake(self) -> None:
        if self._flushing is not None or self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no other task can connect either; the first one that does wakes us
            return
        self._flushing = loop.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while (self._dirty or self._gone) and not self._closed:
                upto = self._requested
                gone, self._gone = self._gone, {}
                dirty, self._dirty = self._dirty, {}
                plans = {
                    name: self._plan(self._fabric.stacks[name])
                    for name in dirty
                    if name in self._fabric.stacks
                }
                self.problems = await asyncio.wrap_future(
                    self._builder.submit(partial(self._apply, dict.fromkeys(gone), plans))
                )
                for problem in self.problems:
                    log.error("the kernel refused: %s", problem)
                self._applied = upto
                self._notify()
        except Exception:
            log.exception("the network could not be brought up to date")
            self._applied = self._requested
            self._notify()
        finally:
            self._flushing = None

    def _apply(self, gone: dict[str, None], plans: dict[str, StackPlan]) -> list[str]:
        """Runs in the builder's thread. A name that was removed and added again is a new
        namespace.
        """
        problems = self._applier.apply(gone) if gone else []
        return [*problems, *self._applier.apply(plans)] if plans else problems

    def _plan(self, stack: NetworkStack) -> StackPlan:
        compiler = self._compiled.get(stack.name)
        if compiler is not None:
            return compiler.plan()
        if stack.role == "external":
            wanted = outside.plan_outside(
                stack, self._fabric, {a for held in self._bridged.values() for a in held}
            )
        else:
            wanted = plan.linux_stack_plan(stack, self._fabric)
        wanted.tables |= self._snapshots(stack)
        return wanted

    def _snapshots(self, stack: NetworkStack) -> dict[str, nft.NftTable]:
        """Snapshots of the tables; they may change while the kernel is updated."""
        stale = self._dirty_tables.pop(stack.name, set())
        known = self._tables.get(stack.name, {})
        fresh = {
            key: nft_snapshot(table) if key in stale or key not in known else known[key]
            for key, table in stack.tables.items()
        }
        self._tables[stack.name] = fresh
        return fresh

    async def _caught_up(self) -> None:
        self._wake()
        if self._applied >= self._requested:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._requested, future))
        await future

    def _notify(self) -> None:
        still = []
        for upto, future in self._waiting:
            if upto <= self._applied:
                if not future.done():
                    future.set_result(None)
            else:
                still.append((upto, future))
        self._waiting = still
