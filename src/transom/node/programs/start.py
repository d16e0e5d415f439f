"""One start of a program on a node: its command line, its environment, the files it reads, and how
it ends. kubelet, kube-proxy and flanneld all start from here, at boot and by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from transom.kit.lazy_dataclass import dataclass
from transom.kubelet.osrules import OsRules
from transom.machinery import goyaml
from transom.machines.api import Files
from transom.machines.smallfiles import LARGEST_YAML, read_small_file
from transom.node.programs.flags.klog import KlogSettings
from transom.node.programs.host import ProgramHost
from transom.node.programs.log import ERROR, FATAL, INFO, ProgramLog

Output = Callable[[bytes], None]
NO_CONFIGURATION = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER "
    "environment variable"
)
UNUSED = "simulated: these flags are known and change nothing here: %s"


class BadKubeconfig(Exception):
    """The text is client-go's."""


class ProgramExit(Exception):
    """The program exits during its start; the reason is in its log or output."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """What a program is started with. `at_boot`: the node starts it as a service when it boots."""

    node: ProgramHost
    program: str  # the name of its file
    pid: int
    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    output: Output  # standard error, where it logs
    at_boot: bool = False
    quiet: bool = False  # its log is not written until a user reads it
    exit: Callable[[int], None] = lambda _code: None  # ends the program while it runs
    stdout: Output | None = None  # standard output; none: the same as `output`
    logs: list[ProgramLog] = field(default_factory=list)  # the last one is the program's

    @property
    def files(self) -> Files:
        files: Files = self.node.machine.files
        return files

    @property
    def rules(self) -> OsRules:
        return self.node.rules

    def variable(self, name: str) -> str:
        """Variable names are case-insensitive on Windows; ours are upper case on Linux too."""
        return next((value for key, value in self.environment.items() if key.upper() == name), "")

    def open_log(self, logging: KlogSettings) -> ProgramLog:
        machine = self.node.machine
        made = ProgramLog(
            self.program,
            self.pid,
            logging,
            self.files,
            machine.clock.time,
            self.node.hostname,
            self.environment,
            self.output,
            quiet=self.quiet,
            exit=self.exit,
        )
        self.logs.append(made)
        return made

    def print(self, text: str) -> None:
        """To standard error."""
        self.output(text.encode())

    def answer(self, text: str) -> None:
        """What the user asked for (a version, help): to standard output."""
        (self.stdout or self.output)(text.encode())

    def path(self, text: str) -> str:
        """Converts a path in a flag to a path of the machine. Relative paths start at the working
        directory.
        """
        if not self.node.spec.windows:
            return text if text.startswith("/") else f"{self.directory.rstrip('/')}/{text}"
        if text[1:2] == ":" or text[:1] in ("/", "\\"):
            return self.rules.host_path(text).replace("/", "\\")
        return f"{self.directory.rstrip(chr(92))}\\{text}"

    def server(self, path: str) -> str:
        """The API server of a kubeconfig. Raises BadKubeconfig."""
        try:
            content = read_small_file(self.files, self.path(path), LARGEST_YAML)
        except OSError as problem:
            raise BadKubeconfig(self.rules.file_error("CreateFile", path, problem)) from None
        installed = self.node.installed_kubeconfig
        if content == installed.content:  # at boot no node needs a YAML parser
            return installed.server
        try:
            read = goyaml.load_yaml(content)
        except goyaml.YamlError as problem:
            reason = str(problem).partition("\n")[0]
            raise BadKubeconfig(f'error loading config file "{path}": {reason}') from None
        server = _server(read)
        if not server:
            raise BadKubeconfig(NO_CONFIGURATION)
        return server

    def reaches(self, server: str) -> bool:
        """Whether this is the cluster's API server. Nodes reach no other one."""
        return server.rstrip("/") in self.node.cluster.api_servers()


@dataclass(slots=True)
class StartedProgram:
    """A running program. `run` runs until it is cancelled and returns the exit code; it is None for
    a program that only reacts to calls. `close` is called when the program has ended, whatever the
    reason; `attach` before its log is read.
    """

    log: ProgramLog
    run: Callable[[], Coroutine[None, None, int]] | None = None
    service: bool = False  # it reports to the service control manager
    close: Callable[[], None] = field(default=lambda: None)
    attach: Callable[[], None] = field(default=lambda: None)
    unreachable: str = ""  # the API server of its kubeconfig, if none answers there
    server: str = ""  # the API server of its kubeconfig


def exit_fatal(log: ProgramLog, source: str, text: str, code: int = 255) -> NoReturn:
    """klog.Fatal, or klog.Exit with code 1."""
    log.line(FATAL, source, text)
    raise ProgramExit(code)


def exit_failed(log: ProgramLog, source: str, text: str) -> NoReturn:
    """Writes a line and exits with code 1."""
    log.line(ERROR, source, text)
    raise ProgramExit(1)


def log_flags(log: ProgramLog, texts: Mapping[str, str], quote: Callable[[str], str]) -> None:
    """The flags that were given, as kubelet and kube-proxy log them at --v=1."""
    if log.verbosity >= 1 and not log.quiet:
        for name, text in sorted(texts.items()):
            log.line(INFO, "flags.go:59", f"FLAG: --{name}={quote(text)}")


def format_aggregate(texts: Sequence[str]) -> str:
    """Formats errors as Go prints an aggregate."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _server(content: Any) -> str:
    if not isinstance(content, dict):
        return ""

    def named(kind: str, name: object) -> dict[str, Any]:
        found = [
            entry
            for entry in content.get(f"{kind}s") or ()
            if isinstance(entry, dict) and entry.get("name") == name
        ]
        inner = found[0].get(kind) if found else None
        return inner if isinstance(inner, dict) else {}

    context = named("context", content.get("current-context"))
    return str(named("cluster", context.get("cluster")).get("server") or "")
