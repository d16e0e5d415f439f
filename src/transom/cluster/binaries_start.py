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

    def kubeconfig(self, path: str) -> str:
        """What client-go says when it cannot use the file; empty when it can."""
        try:
            content = self.files.read(self.path(path))
        except OSError as problem:
            return RULES.file_error("CreateFile", path, problem)
        try:
            read = yaml.safe_load(content)
        except yaml.YAMLError as problem:
            said = str(problem).partition("\n")[0]
            return f'error loading config file "{path}": yaml: {said}'
        return "" if _usable(read) else NO_CONFIGURATION


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


def _usable(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    context = content.get("current-context")
    contexts = [c for c in content.get("contexts") or () if isinstance(c, dict) and c.get("name") == context]
    if not contexts:
        return False
    named = (contexts[0].get("context") or {}).get("cluster")
    clusters = [c for c in content.get("clusters") or () if isinstance(c, dict) and c.get("name") == named]
    return bool(clusters and (clusters[0].get("cluster") or {}).get("server"))
