"""Network namespaces as file descriptors, and a thread that enters them.

A thread belongs to one namespace at a time; the event loop's must never leave the machine's. So
everything that must happen inside happens in a `NamespaceVisitor`, a thread of its own. Only the
descriptor keeps a namespace alive: when the process ends, by whatever signal, the kernel removes
the namespace and its content.
"""

from __future__ import annotations

import ctypes
import os
import queue
import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from transom.kit.trust import find_program

_CLONE_NEWNET = 0x40000000
_NET_ADMIN, _SYS_ADMIN = 12, 21
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def missing_kernel_support() -> str:
    """Why this machine does not support the kernel data plane; empty if it does."""
    try:
        with open("/proc/self/status") as file:
            held = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return "the kernel data plane needs Linux"
    if os.geteuid() != 0:
        return "the kernel data plane needs root"
    for name, bit in (("CAP_NET_ADMIN", _NET_ADMIN), ("CAP_SYS_ADMIN", _SYS_ADMIN)):
        if not held >> bit & 1:
            return f"the kernel data plane needs {name}"
    if find_program("nft") is None:
        return "the kernel data plane needs nft (package nftables)"
    return ""


def allow_many_files() -> None:
    """Raises the limit of open files: each namespace and each socket in it is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class NetworkNamespaceHandle:
    """A network namespace, alive as long as it is open or a process is in it."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def path(self) -> str:
        """For programs that enter namespaces by path, while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class NamespaceVisitor:
    """A thread that runs functions one after the other, which can enter namespaces.

    Between two functions it is in an empty namespace of its own: it is never in the machine's, so
    it cannot change that, and it keeps no other alive.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._where: NetworkNamespaceHandle | None = None
        self._home: NetworkNamespaceHandle | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.submit(self._settle_in).result()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        if self._home is not None:
            self._home.close()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Runs a function in the thread; it may call `enter` and `create`."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = job()
            except BaseException as error:  # the task that awaits the future must get it
                self._go_home()
                future.set_exception(error)
            else:
                self._go_home()
                future.set_result(result)

        self._work.put(run)
        return future

    def inside(self, namespace: NetworkNamespaceHandle, job: Callable[[], T]) -> Future[T]:
        def run() -> T:
            self.enter(namespace)
            return job()

        return self.submit(run)

    def enter(self, namespace: NetworkNamespaceHandle) -> None:
        """Call it only in the thread."""
        if self._where is not namespace:
            _check(_libc.setns(namespace.descriptor, _CLONE_NEWNET), "setns")
            self._where = namespace

    def create(self) -> NetworkNamespaceHandle:
        """Creates a namespace and enters it. Call it only in the thread."""
        _check(_libc.unshare(_CLONE_NEWNET), "unshare")
        self._where = NetworkNamespaceHandle(
            os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        )
        return self._where

    def _settle_in(self) -> None:
        self._home = self.create()

    def _go_home(self) -> None:
        if self._home is not None:
            self.enter(self._home)

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            job()
