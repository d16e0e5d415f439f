"""Ctrl-C at moments at which it must not take effect. Commands import this module before all others:
it must import none of ours.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delays SIGINT and SIGTERM to the end of the block."""
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ExtensionLoader(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        with delayed_interrupts():
            return super().create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with delayed_interrupts():
            super().exec_module(module)


def delay_interrupts_during_imports() -> None:
    """From now on, signals wait while an extension module is imported: an exception there crashes some
    of them.
    """
    hook = FileFinder.path_hook(
        (_ExtensionLoader, EXTENSION_SUFFIXES),
        (SourceFileLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def raise_interrupts() -> None:
    """Ctrl-C raises KeyboardInterrupt, as in any Python program, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
