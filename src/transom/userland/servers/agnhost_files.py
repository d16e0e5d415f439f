"""agnhost's mounttest: shows a volume as a container sees it."""

from __future__ import annotations

import os

from transom.machines.api import Stat
from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.simple import flag

_CONTENT = "mount-tester new file\n"
_EXT4 = 0xEF53  # the file system type of statfs, the same for every disk here
# The result of its script for the access control list that files inherit from the Windows disk:
# full control for administrators and the system, read and execute for users. The read-only
# attribute is not part of the list.
_WINDOWS_MODE = 0o775
_KIND_LETTERS = {
    "directory": "d",
    "symlink": "L",
    "pipe": "p",
    "socket": "S",
    "char": "Dc",
    "block": "D",
}


def go_mode(state: Stat) -> str:
    """As Go's `os.FileMode` prints it."""
    special = "".join(
        letter for bit, letter in ((0o4000, "u"), (0o2000, "g"), (0o1000, "t")) if state.mode & bit
    )
    return (_KIND_LETTERS.get(state.kind, "") + special or "-") + permissions(state.mode)


def permissions(mode: int) -> str:
    return "".join(
        letter if mode & (0o400 >> index) else "-" for index, letter in enumerate("rwxrwxrwx")
    )


def _go_error(operation: str, path: str, error: OSError) -> str:
    return f"{operation} {path}: {os.strerror(error.errno or 0).lower()}"


def mounttest(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    tester = _Tester(server)
    tester.look()
    path = flag(context, "file_content_in_loop")
    if path:
        server.spawn(tester.in_loop(path))
    else:
        server.exit(int(tester.failed))
    return server


class _Tester:
    def __init__(self, server: ServerProgram) -> None:
        self.server = server
        self.context = server.context
        self.files = FileView(server.context, server.context.cwd, 0)
        self.failed = False

    def look(self) -> None:
        """In the order of the real program, so that one command can write a file and inspect it."""
        context = self.context
        windows = context.os == "windows"
        if (path := flag(context, "fs_type")) and not windows:
            self._type(path)
        for mode in (0o644, 0o666, 0o660, 0o777):
            if path := flag(context, f"new_file_0{mode:o}"):
                self._new_file(path, mode)
        for name, label in (("file_mode", "mode"), ("file_perm", "perms")):
            if path := flag(context, name):
                self._mode(path, label, windows)
        if (path := flag(context, "file_owner")) and not windows:
            self._owner(path)
        if path := flag(context, "file_content"):
            self._content(path)

    def _fail(self, message: str) -> None:
        self.server.out(message)
        self.failed = True

    def _type(self, path: str) -> None:
        try:
            self.files.stat(path)
        except OSError as error:
            self._fail(f'error from statfs("{path}"): {os.strerror(error.errno or 0).lower()}')
            return
        shown = "tmpfs" if self.files.in_memory(path) else _EXT4
        self.server.out(f'mount type of "{path}": {shown}')

    def _new_file(self, path: str, mode: int) -> None:
        try:
            self.files.write(path, _CONTENT.encode(), mode)
        except OSError as error:
            self._fail(f'error writing new file "{path}": {_go_error("open", path, error)}')
            return
        self._content(path)

    def _mode(self, path: str, label: str, windows: bool) -> None:
        try:
            state = self.files.stat(path)
        except OSError as error:
            self._fail(f'error from Stat("{path}"): {_go_error("stat", path, error)}')
            return
        if windows:
            self.server.out(f'{label} of Windows file "{path}": -{permissions(_WINDOWS_MODE)}')
            return
        shown = go_mode(state) if label == "mode" else "-" + permissions(state.mode)
        self.server.out(f'{label} of file "{path}": {shown}')

    def _owner(self, path: str) -> None:
        try:
            state = self.files.stat(path)
        except OSError as error:
            self._fail(f'error from stat("{path}"): {os.strerror(error.errno or 0).lower()}')
            return
        self.server.out(f'owner UID of "{path}": {state.uid}')
        self.server.out(f'owner GID of "{path}": {state.gid}')

    def _content(self, path: str) -> None:
        try:
            content = self.files.text(path)
        except OSError as error:
            self._fail(f'error reading file content for "{path}": {_go_error("open", path, error)}')
            return
        self.server.out(f'content of file "{path}": {content}')

    async def in_loop(self, path: str) -> None:
        limit = float(flag(self.context, "retry_time", "180"))
        expected_only = flag(self.context, "break_on_expected_content", "true") != "false"
        clock = self.context.clock
        end = clock.monotonic() + limit
        failed = False
        while clock.monotonic() < end:
            failed = False
            try:
                content = self.files.text(path)
            except OSError as error:
                failed = True
                self.server.out(
                    f"Error reading file {path}: {_go_error('open', path, error)}, retrying"
                )
            else:
                self.server.out(f'content of file "{path}": {content}')
                if expected_only:
                    if content == _CONTENT:
                        break
                    self.context.terminal.out(
                        f"Unexpected content. Expected: {_CONTENT}. Retrying".encode()
                    )
            await clock.sleep(2)
        self.server.exit(int(self.failed or failed))
