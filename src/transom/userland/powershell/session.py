"""The state of a PowerShell session: its variables, errors and console.

Cmdlets and .NET types work on it. Running scripts is left to `PowerShellEvaluator`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from transom.userland.powershell import formatting
from transom.userland.powershell.automatic import AUTOMATIC
from transom.userland.powershell.control import Thrown
from transom.userland.powershell.defined_types import DefinedType
from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.extents import SourceExtent, position_lines
from transom.userland.powershell.lexer import ParseFault
from transom.userland.powershell.tree import (
    BoundArgument,
    CommandNode,
    PsNode,
    StatementBlock,
    StreamRedirect,
)
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    ScriptBlock,
    VariableScope,
    to_items,
    to_text,
)
from transom.userland.process import Process
from transom.userland.streams import ByteSink
from transom.userland.windows.variables import Variables

_READ_ONLY = ("true", "false", "home", "host", "pid", "pshome", "psversiontable")
_MAXIMUM_ERROR_COUNT = 256  # the default of $MaximumErrorCount
_PROMPT = '[Y] Yes  [A] Yes to All  [N] No  [L] No to All  [S] Suspend  [?] Help (default is "Y"): '
Emit = Callable[[Any], None]


class SessionCmdlet(Protocol):
    """A cmdlet, as a session knows it."""

    @property
    def name(self) -> str: ...
    @property
    def positional(self) -> tuple[str, ...]: ...
    @property
    def switches(self) -> frozenset[str]: ...
    @property
    def named(self) -> tuple[str, ...]: ...

    async def call(
        self,
        session: PowerShellSession,
        name: str,
        arguments: Sequence[BoundArgument],
        given: list[Any] | None,
    ) -> None:
        """`name` is as written; `given` comes from the pipeline."""


class SessionCmdlets(Protocol):
    """The cmdlets of a session, by name and alias."""

    @property
    def aliases(self) -> Mapping[str, str]: ...
    def find(self, name: str) -> SessionCmdlet | None: ...
    def all(self) -> Sequence[SessionCmdlet]: ...


class PowerShellSession(ABC):
    def __init__(self, process: Process, cmdlets: SessionCmdlets) -> None:
        self.cmdlets = cmdlets
        self.process: Process = process
        self.env: Variables = Variables(process.env)
        self.scopes: list[VariableScope] = [VariableScope()]
        self.functions: dict[str, ScriptBlock] = {}  # by lower-case name
        self.function_names: dict[str, str] = {}  # as they were defined
        self.calls: list[str] = []  # names of the functions that run
        self.call_extents: list[SourceExtent | None] = []  # where they were called
        # Where the streams 3 to 6 go that do not go to the console.
        self.streams: dict[str, ByteSink | None] = {}
        self.success: bool = True
        self.last_exit: int | None = None
        self.exited: int | None = (
            None  # the exit code of the last script file, if it ended by `exit`
        )
        self.errors: list[PowerShellError] = []
        self.trying = 0
        self.caught: PowerShellError | None = None  # by the `catch` block that runs
        self.label = ""  # of the next loop
        self.constants: set[str] = set()  # variables that are read-only or constant
        self.modules: set[str] = set()  # by Import-Module
        self.strict = 0  # Set-StrictMode: its version, 0 if it is off
        self.merging = False  # errors of the command that runs are its output
        self.types: dict[str, DefinedType] = {}  # classes and enums, by lower-case name
        self.static_values: dict[str, dict[str, Any]] = {}  # those that a script has set, by type
        self.aliases: dict[str, str] = {}  # by Set-Alias
        self.drives: dict[str, tuple[str, str]] = {}  # by New-PSDrive: provider and root
        self.script = ""
        self.extent: SourceExtent | None = None  # of the command or statement that runs
        self.held: list[Any] = []  # objects for the console, held until one of another kind follows
        self.emit: Emit = self.show
        self.jobs: list[Any] = []
        self.location = ""  # a registry key, if it is the current location
        self.locations: list[tuple[str, str]] = []
        self.allocated = 0

    def resolved(self, path: str) -> str:
        """A path on a drive of this session, on the drive or key that it is for."""
        name, colon, rest = path.partition(":")
        found = self.drives.get(name.lower()) if colon else None
        if found is None:
            return path
        provider, root = found
        start = "Registry::" if provider == "Registry" else ""
        return start + root.rstrip("\\") + "\\" + rest.strip("\\/")

    @abstractmethod
    def fork(self, process: Process) -> Self:
        """A new session in another process."""

    @abstractmethod
    async def value(self, node: PsNode) -> Any:
        """The value of an expression."""

    @abstractmethod
    async def block(self, node: StatementBlock) -> None:
        """Runs statements in the current scope."""

    @abstractmethod
    async def collect(self, node: PsNode) -> list[Any]:
        """The output of a statement."""

    @abstractmethod
    async def command(self, node: CommandNode, given: list[Any] | None) -> None:
        """Runs a cmdlet, function or program; `given` comes from the pipeline."""

    @abstractmethod
    async def redirect(self, redirects: Sequence[StreamRedirect], values: list[Any]) -> None:
        """Writes the output of a command to files."""

    @abstractmethod
    async def refresh(self, target: PsObject, only: str = "") -> None:
        """Runs the scripts of properties that Add-Member has added, or of one of them."""

    @abstractmethod
    async def invoke(
        self,
        block: ScriptBlock,
        arguments: list[Any],
        item: Any = None,
        named: dict[str, Any] | None = None,
    ) -> list[Any]:
        """The output of a script block."""

    @abstractmethod
    async def invoke_with(self, block: ScriptBlock, arguments: list[Any]) -> list[Any]:
        """Like the method Invoke: with arguments, in a new scope."""

    @abstractmethod
    async def call_block(
        self,
        block: ScriptBlock,
        arguments: list[Any],
        item: Any = None,
        named: dict[str, Any] | None = None,
        *,
        own_scope: bool = False,
        variables: dict[str, Any] | None = None,
        items: list[Any] | None = None,
        name: str = "",
    ) -> None:
        """`items` come from the pipeline: `process` runs for each of them."""

    def show(self, value: Any) -> None:
        for item in to_items(value):
            if isinstance(item, PsObject):
                self.held.append(item)
            else:
                self.flush()
                self.process.write(formatting.format_objects([item]))

    async def ask(self, text: str) -> str:
        """The answer to a confirmation prompt: y, a, n or l; the end of the input means no."""
        self.process.write(
            f"\r\nConfirm\r\nAre you sure you want to perform this action?\r\n{text}\r\n"
        )
        while True:
            self.process.write(_PROMPT)
            line = await self.process.stdin.readline()
            if not line:
                return "l"
            answer = line.decode("utf-8", "replace").strip().lower() or "y"
            for letter, word in (
                ("y", "yes"),
                ("a", "yes to all"),
                ("n", "no"),
                ("l", "no to all"),
            ):
                if answer in (letter, word):
                    return letter

    def write_stream(self, number: str, prefix: str, kind: str, message: str) -> None:
        """Writes to the stream of warnings (3), verbose (4), debug (5) or other messages (6)."""
        if number not in self.streams:
            self.flush()
            self.process.write(f"{prefix}{message}\r\n")
            return
        sink = self.streams[number]
        if sink is None:  # 3>&1
            record = f"System.Management.Automation.{kind}Record"
            self.emit(PsObject(record, {"Message": message}, message))
        else:
            sink.write(f"{message}\r\n".encode("utf-8", "surrogateescape"))

    def flush(self) -> None:
        if self.held:
            held, self.held = self.held, []
            self.process.write(formatting.format_objects(held))

    def write_error(self, error: PowerShellError) -> None:
        """Writes a non-terminating error."""
        self.success = False
        self.remember(error)
        preference = to_text(self.get("erroractionpreference")).lower()
        if preference == "stop":
            raise Thrown(
                error.message, error.category, error.identity, where=error.where, value=error.value
            )
        if preference not in ("silentlycontinue", "ignore"):
            self.print_error(error)

    def remember(self, error: PowerShellError) -> None:
        """Adds it to $Error, newest first."""
        error.extent = error.extent or self.extent
        self.errors.insert(0, error)
        del self.errors[_MAXIMUM_ERROR_COUNT:]

    @property
    def core(self) -> bool:
        """Whether this is PowerShell 7, not Windows PowerShell."""
        return not self.process.windows or self.process.name.startswith("pwsh")

    def print_parse_fault(self, fault: ParseFault) -> None:
        """Nothing of the script runs."""
        problem = PowerShellError(
            str(fault), "ParserError: (:) [], ParentContainsErrorRecordException", fault.identity
        )
        if not fault.token:
            self.print_error(problem)
            return
        before = fault.script[: fault.position]
        line, column = before.count("\n") + 1, fault.position - before.rfind("\n")
        self._write_error(
            [
                f"At line:{line} char:{column}",
                f"+ {fault.script.split(chr(10))[line - 1].rstrip()}",
                f"+ {' ' * (column - 1)}{'~' * len(fault.token)}",
                str(fault),
            ],
            problem,
        )

    def print_error(self, error: PowerShellError) -> None:
        error.extent = error.extent or self.extent
        if self.merging:  # 2>&1
            self.emit(error_record(error))
            return
        self.flush()
        where = f"{error.where} : " if error.where else ""
        lines = [f"{where}{error.message}"]
        if error.extent is not None and error.has_position:
            lines += position_lines(error.extent, to_text(self.get("pscommandpath")))
        self._write_error(lines, error)

    def _write_error(self, lines: list[str], error: PowerShellError) -> None:
        lines = [
            *lines,
            f"    + CategoryInfo          : {error.category}",
            f"    + FullyQualifiedErrorId : {error.identity}",
            " ",
        ]
        self.process.stderr.write(
            "".join(line + "\r\n" for line in lines).encode("utf-8", "surrogateescape")
        )

    def get(self, name: str) -> Any:
        name = name.lower()
        scope, colon, rest = name.partition(":")
        if colon:
            if scope == "env":
                return self.env.get(rest)
            if scope == "function":
                return self.functions.get(rest)
            name = rest
        for variables in reversed(self.scopes):
            if name in variables:
                return variables[name]
        automatic = AUTOMATIC.get(name)
        return automatic(self) if automatic is not None else None

    def defines(self, name: str) -> bool:
        """Whether a variable has been set, to $null or anything else."""
        bare = name.lower().rpartition(":")[2]
        if name.lower().startswith("env:") or bare in AUTOMATIC or bare in ("_", "args", "input"):
            return True
        return any(bare in variables for variables in self.scopes)

    def check_writable(self, name: str) -> None:
        """Raises PowerShellError for a variable that is read-only or constant."""
        if name in self.constants or name in _READ_ONLY:
            raise PowerShellError(
                f"Cannot overwrite variable {name} because it is read-only or constant.",
                f"WriteError: ({name}:String) [], SessionStateUnauthorizedAccessException",
                "VariableNotWritable",
            )

    def scope_of(self, name: str) -> tuple[VariableScope, str]:
        """The scope in which a variable of that name is set, and its bare name."""
        scope, colon, rest = name.lower().partition(":")
        if not colon:
            return self.scopes[-1], scope
        return self.scopes[0 if scope in ("global", "script") else -1], rest

    def put(self, name: str, value: Any) -> None:
        written = name.partition(":")[2]
        name = name.lower()
        if name == "null":
            return  # `$null = command` discards the output
        scope, colon, rest = name.partition(":")
        self.check_writable(rest if colon and scope != "env" else name)
        if colon and scope == "env":
            if value is None or to_text(value) == "":
                self.env.pop(written, None)
            else:
                self.env[written] = to_text(value)
            return
        variables, bare = self.scope_of(name)
        variables[bare] = value
