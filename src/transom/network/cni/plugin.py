"""What a network plugin is told and may touch: the words between whoever runs plugins and the plugins themselves.

A plugin is a function. It gets the call (what a real one finds in CNI_* variables and on its standard input) and the machine
it runs on, answers with a result in the form of version 0.4.0 of the specification (the runner makes of it whatever version
the configuration asks for), or raises CniError. Nothing here knows a certain plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from transom.network.stacks import Fabric, Stack

if TYPE_CHECKING:
    from transom.hosts.api import Files
    from transom.hosts.windows.hns import Hns

Command = Literal["ADD", "DEL", "CHECK", "VERSION"]
Result = dict[str, Any]

INCOMPATIBLE_VERSION = 1
UNSUPPORTED_FIELD = 2
UNKNOWN_CONTAINER = 3
INVALID_ENVIRONMENT = 4
IO_FAILURE = 5
DECODING_FAILURE = 6
INVALID_CONFIG = 7
TRY_AGAIN = 11
INTERNAL = 999  # what every plain error of a plugin is reported as


class CniError(Exception):
    """An error as a plugin prints it. Its text is what runtimes put into their own messages."""

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        super().__init__(f"{msg}; {details}" if details else msg)
        self.code = code
        self.msg = msg
        self.details = details

    def as_json(self, version: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = {"cniVersion": version} if version else {}
        answer |= {"code": self.code, "msg": self.msg}
        if self.details:
            answer["details"] = self.details
        return answer


def fail(text: str) -> NoReturn:
    """A plain error of a plugin."""
    raise CniError(INTERNAL, text)


@dataclass(slots=True)
class Call:
    command: Command
    container_id: str
    netns: str  # path of a network namespace; on Windows `none`, `container:ID` (docker) or the GUID of an HNS namespace
    ifname: str
    args: dict[str, str]  # CNI_ARGS
    path: str  # CNI_PATH
    config: dict[str, Any]  # of this plugin, with name, cniVersion, runtimeConfig, prevResult. Not the plugin's to change.

    def with_config(self, config: dict[str, Any]) -> Call:
        return Call(self.command, self.container_id, self.netns, self.ifname, self.args, self.path, config)


@dataclass(slots=True)
class Machine:
    """The node that plugins run on."""

    files: Files
    stack: Stack  # the node's own
    fabric: Fabric
    hns: Hns | None  # of Windows
    os: Literal["linux", "windows"]
    namespaces: dict[str, str] = field(default_factory=dict)  # path of a network namespace -> name of the stack
    booted: Callable[[], float] = float  # when it was last started, by its own clock; Host.boot_time
    memory: dict[Any, Any] = field(default_factory=dict)  # what plugins need not read and parse again; nothing else

    def namespace(self, path: str, prefix: str | None = None) -> Stack:
        """The stack behind CNI_NETNS, or the error of a plugin that cannot open it."""
        found = self.fabric.stacks.get(self.namespaces.get(path, ""))
        if found is None:
            said = f'failed to open netns "{path}": ' if prefix is None else prefix
            fail(f'{said}failed to Statfs "{path}": no such file or directory')
        return found


Delegate = Callable[[str, Call], Result | None]
"""Runs another plugin (IPAM, a meta plugin's delegate) by its type, with the configuration in the call."""

Plugin = Callable[[Call, Machine, Delegate], Result | None]
"""ADD answers a result, DEL and CHECK None. VERSION never reaches a plugin: the runner knows its versions from the table."""
