"""The state of a shell: variables, options, functions, jobs and descriptors.

Expansion, redirections and builtins work on it. Running commands is left to `Shell`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from transom.userland.posix.scripts import DEFAULT_PATH
from transom.userland.posix.sh.control import ExpansionFault, ShellJob
from transom.userland.posix.sh.descriptors import Descriptors
from transom.userland.posix.sh.tree import ShellNode
from transom.userland.process import Process

OPTION_LETTERS = "aefhmnuvx"


class ShellState(ABC):
    def __init__(self, process: Process, name: str = "sh", *, bash: bool = False) -> None:
        self.process = process
        self.name = name  # precedes its messages
        self.bash = bash
        self.variables: dict[str, str] = dict(process.env)
        self.exported: set[str] = set(process.env)
        self.readonly: set[str] = set()
        self.functions: dict[str, ShellNode] = {}
        self.arguments: list[str] = []
        self.zero = name
        self.options: dict[str, bool] = dict.fromkeys((*OPTION_LETTERS, "pipefail"), False)
        self.status = 0
        self.last_job = 0
        self.jobs: dict[int, ShellJob] = {}
        self.traps: dict[str, str] = {}
        self.pending: list[str] = []
        self.interactive = False
        self.prompt = ""  # the last one shown
        self.waiting: asyncio.Future[None] | None = None
        self.foreground: Process | None = None
        self.descriptors = Descriptors(process)
        self.scopes: list[dict[str, str | None]] = []
        self.tested = 0  # nesting depth of conditions, in which `set -e` has no effect
        self.line = 0
        self.variables.setdefault("IFS", " \t\n")
        self.variables.setdefault("PWD", process.cwd)
        self.variables.setdefault("PATH", DEFAULT_PATH)
        self.variables.setdefault("PS4", "+ ")

    @abstractmethod
    async def run_text(self, text: str) -> int:
        """Parses and runs a script; a syntax error is reported and results in code 2."""

    @abstractmethod
    async def capture(self, node: ShellNode) -> str:
        """The output of `$(...)`"""

    @abstractmethod
    async def command(
        self,
        argv: Sequence[str],
        temporary: Sequence[tuple[str, str]] = (),
        *,
        functions: bool = True,
    ) -> int:
        """Runs a function, a builtin or a program of the container."""

    # Variables
    def get(self, name: str) -> str | None:
        return self.variables.get(name)

    def lookup(self, name: str) -> str | None:
        """Like `get`, with special and positional parameters."""
        if name.isdigit():
            index = int(name)
            if index == 0:
                return self.zero
            return self.arguments[index - 1] if index <= len(self.arguments) else None
        special = _SPECIAL.get(name)
        return special(self) if special is not None else self.variables.get(name)

    def arithmetic_value(self, name: str) -> str:
        return self.lookup(name) or ""

    def assign(self, name: str, value: str) -> None:
        if name in self.readonly:
            raise ExpansionFault(f"{name}: is read only")
        self.variables[name] = value
        if self.options["a"]:
            self.exported.add(name)

    def environment(self) -> dict[str, str]:
        variables = self.variables
        return {name: variables[name] for name in self.exported if name in variables}

    def separators(self) -> str:
        return self.variables.get("IFS", " \t\n")

    # Messages
    def complain(self, text: str) -> None:
        self.process.complain(f"{self.name}: {text}")


_SPECIAL: dict[str, Callable[[ShellState], str | None]] = {
    "?": lambda shell: str(shell.status),
    "#": lambda shell: str(len(shell.arguments)),
    "$": lambda shell: str(shell.process.pid),
    "!": lambda shell: str(shell.last_job) if shell.last_job else "",
    "-": lambda shell: "".join(letter for letter in OPTION_LETTERS if shell.options[letter]),
    "@": lambda shell: " ".join(shell.arguments) if shell.arguments else None,
    "*": lambda shell: " ".join(shell.arguments) if shell.arguments else None,
    "PPID": lambda shell: str(shell.process.parent),
    "RANDOM": lambda shell: str(shell.process.context.rng.randrange(32768)),
    "SECONDS": lambda shell: str(int(shell.process.context.clock.monotonic())),
    "HOSTNAME": lambda shell: shell.variables.get(
        "HOSTNAME", shell.process.context.network.hostname
    ),
    "UID": lambda shell: (
        str(shell.process.context.credentials.uid) if shell.bash else shell.variables.get("UID")
    ),
}
