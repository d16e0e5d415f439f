"""The interface between the plugin runner and the plugins: what a network plugin receives and may
access.

A plugin is a function. It gets the call (the CNI_* variables and standard input of a real one) and
its machine, and returns a result in the format of version 0.4.0 of the specification (the runner
converts it to the version of the configuration), or raises CniError. This module depends on no
specific plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from transom.kit.lazy_dataclass import dataclass
from transom.network.stacks import Fabric, NetworkStack

if TYPE_CHECKING:
    from transom.machines.api import Files
    from transom.machines.windows.hns import HostNetworkService

Command = Literal["ADD", "DEL", "CHECK", "VERSION"]
Result = dict[str, Any]

INCOMPATIBLE_VERSION = 1
UNKNOWN_CONTAINER = 3
INVALID_ENVIRONMENT = 4
DECODING_FAILURE = 6
INVALID_CONFIG = 7
INTERNAL = 999  # the code of a plain plugin error


class CniError(Exception):
    """An error as a plugin prints it. Runtimes include its text in their own messages."""

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


def fail_plugin(text: str) -> NoReturn:
    """Raises a plain plugin error."""
    raise CniError(INTERNAL, text)


@dataclass(slots=True)
class CniCall:
    command: Command
    container_id: str
    # path of a network namespace; on Windows `none`, `container:ID` (docker) or the GUID of an HNS
    # namespace
    netns: str
    ifname: str
    args: dict[str, str]  # CNI_ARGS
    path: str  # CNI_PATH
    config: dict[
        str, Any
        # of this plugin, with name, cniVersion, runtimeConfig, prevResult; read-only
    ]

    def with_config(self, config: dict[str, Any]) -> CniCall:
        return CniCall(
            self.command, self.container_id, self.netns, self.ifname, self.args, self.path, config
        )


@dataclass(slots=True)
class CniNode:
    """The node that plugins run on."""

    files: Files
    stack: NetworkStack  # the node's own stack
    fabric: Fabric
    hns: HostNetworkService | None  # of Windows
    os: Literal["linux", "windows"]
    # path of a network namespace -> name of the stack
    namespaces: dict[str, str] = field(default_factory=dict)
    booted: Callable[[], float] = (
        float  # the time of the last boot, by its own clock; Host.boot_time
    )
    # a cache for what plugins would otherwise read and parse again
    memory: dict[Any, Any] = field(default_factory=dict)

    def namespace(self, path: str, prefix: str | None = None) -> NetworkStack:
        """The stack of CNI_NETNS, or the error of a plugin that cannot open it."""
        found = self.fabric.stacks.get(self.namespaces.get(path, ""))
        if found is None:
            before = f'failed to open netns "{path}": ' if prefix is None else prefix
            fail_plugin(f'{before}failed to Statfs "{path}": no such file or directory')
        return found


Delegate = Callable[[str, CniCall], Result | None]
"""Runs another plugin (IPAM, a meta plugin's delegate) by its type, with the configuration in the call."""

Plugin = Callable[[CniCall, CniNode, Delegate], Result | None]
"""ADD returns a result, DEL and CHECK return None. VERSION never reaches a plugin: the runner
answers it from the table.
"""
