"""Redirections of commands."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from transom.userland.files import error_text
from transom.userland.posix.sh import words
from transom.userland.posix.sh.state import ShellState
from transom.userland.posix.sh.tree import ShellRedirect
from transom.userland.streams import ByteSink, ByteSource, BytesSource


class RedirectFault(Exception):
    """Its text follows the shell's name."""


async def apply_redirects(shell: ShellState, redirects: Sequence[ShellRedirect]) -> None:
    for redirect in redirects:
        await _apply(shell, redirect)
    shell.descriptors.give_to(shell.process)


async def _apply(shell: ShellState, redirect: ShellRedirect) -> None:
    descriptors = shell.descriptors
    operator, number = redirect.operator, redirect.fd
    target = await words.expand_text(shell, redirect.target)
    if operator in ("<<", "<<-"):
        descriptors.set_source(number, BytesSource(target.encode("utf-8", "surrogateescape")))
    elif operator == "<<<":
        text = target.encode("utf-8", "surrogateescape") + b"\n"
        descriptors.set_source(number, BytesSource(text))
    elif operator in (">&", "<&") and (target == "-" or target.isdigit()):
        if target == "-":
            descriptors.close(number)
        elif not descriptors.duplicate(number, int(target)):
            raise RedirectFault(f"{target}: Bad file descriptor")
    elif operator in ("&>", "&>>") or (operator == ">&" and number == 1):
        sink = _open(shell, target, operator.endswith(">>"))
        descriptors.set_sink(1, sink)
        descriptors.set_sink(2, sink)
    elif operator in ("<", "<>"):
        descriptors.set_source(number, _read(shell, target))
    else:
        descriptors.set_sink(number, _open(shell, target, operator == ">>"))


def _read(shell: ShellState, target: str) -> ByteSource:
    try:
        return shell.descriptors.open_source(target)
    except OSError as error:
        if shell.bash:
            raise RedirectFault(f"{target}: {error_text(error)}") from None
        missing = error.errno == errno.ENOENT
        raise RedirectFault(
            f"can't open {target}: {'no such file' if missing else error_text(error)}"
        ) from None


def _open(shell: ShellState, target: str, append: bool) -> ByteSink:
    try:
        return shell.descriptors.open_sink(target, append)
    except OSError as error:
        if shell.bash:
            raise RedirectFault(f"{target}: {error_text(error)}") from None
        missing = error.errno == errno.ENOENT
        raise RedirectFault(
            f"can't create {target}: {'nonexistent directory' if missing else error_text(error)}"
        ) from None


@asynccontextmanager
async def redirected(shell: ShellState, redirects: Sequence[ShellRedirect]) -> AsyncIterator[None]:
    if not redirects:
        yield
        return
    saved = shell.descriptors.save()
    try:
        await apply_redirects(shell, redirects)
        yield
    finally:
        shell.descriptors.restore(saved)
