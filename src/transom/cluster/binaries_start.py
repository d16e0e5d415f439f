"""What the programs of a node have in common when they are started: their surroundings, the files they read, their ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from transom.cluster.flags.klog import Logging
from transom.cluster.nodelog import ERROR, FATAL, NodeLog
from transom.kubelet.os_windows import RULES

if TYPE_CHECKING:
    from transom.cluster.fleet import Fleet, Machine
    from transom.hosts.api import Files

Output = Callable[[bytes], None]
NO_CONFIGURATION = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
)
UNUSED = "simulated: these flags are known and change nothing here: %s"


class BadKubeconfig(Exception):
    """The text is client-go's."""


class Ended(Exception):
    """The program ends before it has begun; it has said why."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a program on a machine."""

    fleet: Fleet
    machine: Machine
    program: str  # the name of its file
    pid: int
    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    output: Output
    logs: list[NodeLog] = field(default_factory=list)  # the last one is the program's

    @property
    def files(self) -> Files:
        files: Files = self.machine.host.files
        return files

    def variable(self, name: str) -> str:
        """Windows does not mind how it is written."""
        return next((value for key, value in self.environment.items() if key.upper() == name), "")

    def log(self, wanted: Logging) -> NodeLog:
        host = self.machine.host
        made = NodeLog(
            self.program, self.pid, wanted, self.files, host.clock.time, host.computer_name, self.environment, self.output
        )
        self.logs.append(made)
        return made

    def say(self, text: str) -> None:
        self.output(text.encode())

    def path(self, text: str) -> str:
        """A path of a flag, as one of the machine; what is not absolute is meant from the working directory."""
        if text[1:2] == ":" or text[:1] in ("/", "\\"):
            return RULES.host_path(text).replace("/", "\\")
        return f"{self.directory.rstrip(chr(92))}\\{text}"

    def server(self, path: str) -> str:
        """The API server of a kubeconfig. Raises BadKubeconfig."""
        try:
            content = self.files.read(self.path(path))
        except OSError as problem:
            raise BadKubeconfig(RULES.file_error("CreateFile", path, problem)) from None
        try:
            read = yaml.safe_load(content)
        except yaml.YAMLError as problem:
            said = str(problem).partition("\n")[0]
            raise BadKubeconfig(f'error loading config file "{path}": yaml: {said}') from None
        server = _server(read)
        if not server:
            raise BadKubeconfig(NO_CONFIGURATION)
        return server

    def reaches(self, server: str) -> bool:
        """Whether the cluster's API server is there. Others are not looked for: the node reaches nothing outside."""
        return server.rstrip("/") in self.fleet.api_addresses()


@dataclass(slots=True)
class Running:
    """A program that has begun. `life` goes on until it is cancelled; its answer is the exit code."""

    life: Callable[[], Coroutine[None, None, int]]
    log: NodeLog
    service: bool = False  # it speaks with the service control manager
    close: Callable[[], None] = field(default=lambda: None)  # its end, whatever the reason


def fatal(log: NodeLog, where: str, text: str, code: int = 255) -> NoReturn:
    """klog.Fatal, and with the code 1 klog.Exit."""
    log.line(FATAL, where, text)
    raise Ended(code)


def failed(log: NodeLog, where: str, text: str) -> NoReturn:
    """A line, and the exit code 1."""
    log.line(ERROR, where, text)
    raise Ended(1)


def one_or_list(texts: Sequence[str]) -> str:
    """As Go prints an aggregate of errors."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _server(content: Any) -> str:
    if not isinstance(content, dict):
        return ""

    def named(kind: str, name: object) -> dict[str, Any]:
        found = [entry for entry in content.get(f"{kind}s") or () if isinstance(entry, dict) and entry.get("name") == name]
        inner = found[0].get(kind) if found else None
        return inner if isinstance(inner, dict) else {}

    return str(named("cluster", named("context", content.get("current-context")).get("cluster")).get("server") or "")
