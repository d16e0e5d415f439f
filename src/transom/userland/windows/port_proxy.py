"""netsh interface portproxy. The entries are in the registry (`machines.windows.port_proxy`); the IP
Helper service is notified of changes, and listens and forwards if it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from transom.machines.windows.port_proxy import (
    ANY_ADDRESS,
    PORT_PROXY_KINDS,
    PORT_PROXY_SERVICE,
    PortProxyEntry,
    delete_port_proxy,
    port_proxy_entries,
    reset_port_proxies,
    set_port_proxy,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.services import ServiceError
from transom.userland.process import Process

_ADDED: Final = ("listenport", "connectaddress", "connectport", "listenaddress", "protocol")
_DELETED: Final = ("listenport", "listenaddress", "protocol")
_BAD_SYNTAX: Final = (
    "The syntax supplied for this command is not valid. Check help for the correct syntax.\r\n"
)
_NOT_ENTERED: Final = (
    "One or more essential parameters were not entered.\r\n"
    "Verify the required parameters, and reenter them.\r\n"
)
_VERBS: Final = {
    "show": "Displays information.",
    "add": "Adds a configuration entry to a table.",
    "delete": "Deletes a configuration entry from a table.",
    "dump": "Displays a configuration script.",
    "reset": "Resets portproxy configuration state.",
    "set": "Sets configuration information.",
}
_HELP_WORDS: Final = ("help", "?", "/?", "-?")


class _BadCommandError(Exception):
    """What netsh prints about its arguments, before the usage."""


def is_port_proxy_context(context: str, subcontext: str) -> bool:
    return len(subcontext) > 1 and (
        "interface".startswith(context) and "portproxy".startswith(subcontext)
    )


def run_portproxy(process: Process, words: Sequence[str]) -> int:
    """`words` follow `netsh interface portproxy`."""
    verb = _complete(words[0], _VERBS) if words else None
    if not words or words[0].lower() in _HELP_WORDS:
        rows = "\r\n".join(f"{name:<15}- {purpose}" for name, purpose in _VERBS.items())
        _print_commands(process, rows)
        return 0
    if verb is None:
        return _not_found(process, words)
    if verb == "reset":
        return _change(process, reset_port_proxies)
    if verb == "dump":
        return _dump(process)
    kinds = dict.fromkeys(PORT_PROXY_KINDS, "") | ({"all": ""} if verb == "show" else {})
    if not words[1:] or words[1].lower() in _HELP_WORDS:
        _print_commands(process, "\r\n".join(f"{verb} {kind}" for kind in sorted(kinds)))
        return 0
    kind = _complete(words[1], kinds)
    if kind is None:
        return _not_found(process, words)
    if verb == "show":
        return _show(process, tuple(PORT_PROXY_KINDS) if kind == "all" else (kind,))
    if words[2:] and words[2].lower() in _HELP_WORDS:
        process.print_line(f"\r\n{_usage(verb, kind)}\r\n")
        return 0
    try:
        return _edit(process, verb, kind, words[2:])
    except _BadCommandError as problem:
        process.print_line(f"{problem}{_BAD_SYNTAX}\r\n{_usage(verb, kind)}\r\n")
        return 1


def _complete(word: str, names: Mapping[str, str]) -> str | None:
    """netsh accepts the beginning of a name if it is unique."""
    folded = word.lower()
    found = [name for name in names if name.startswith(folded)]
    return folded if folded in names else found[0] if len(found) == 1 else None


def _not_found(process: Process, words: Sequence[str]) -> int:
    process.print_line(
        f"The following command was not found: interface portproxy {' '.join(words)}."
    )
    return 1


def _print_commands(process: Process, rows: str) -> None:
    process.print_line(
        f"\r\nThe following commands are available:\r\n\r\nCommands in this context:\r\n{rows}"
    )


def _requires_connect_address(kind: str) -> bool:
    """From one IP version to the other, this machine is the default."""
    listens, connects = PORT_PROXY_KINDS[kind]
    return listens == connects


def _usage(verb: str, kind: str) -> str:
    listens, connects = PORT_PROXY_KINDS[kind]
    blanks = " " * 12
    listen = f"{blanks}[[listenaddress=]<IPv{listens} address>|<hostname>]"
    lines = [f"Usage: {verb} {kind} [listenport=]<integer>|<servicename>"]
    if verb != "delete":
        connect = f"[connectaddress=]<IPv{connects} address>|<hostname>"
        lines.append(
            f"{blanks} {connect}" if _requires_connect_address(kind) else f"{blanks}[{connect}]"
        )
        lines.append(f"{blanks}[[connectport=]<integer>|<servicename>]")
    return "\r\n".join((*lines, listen, f"{blanks}[[protocol=]tcp]"))


def _arguments(words: Sequence[str], tags: Sequence[str]) -> dict[str, str]:
    """Arguments without a tag take the tags that are left, in their order."""
    given: dict[str, str] = {}
    for word in words:
        tag, equals, value = word.partition("=")
        if equals:
            name = _complete(tag, dict.fromkeys(tags, ""))
        else:
            name, value = next((one for one in tags if one not in given), None), word
        if name is None or name in given:
            raise _BadCommandError(f"'{tag}' is not a valid argument for this command.\r\n")
        given[name] = value.strip('"')
    if not given.get("listenport"):
        raise _BadCommandError(_NOT_ENTERED)
    protocol = given.get("protocol", "tcp")
    if protocol.lower() != "tcp":
        raise _BadCommandError(f"{protocol} is not an acceptable value for protocol.\r\n")
    return given


def _edit(process: Process, verb: str, kind: str, words: Sequence[str]) -> int:
    given = _arguments(words, _DELETED if verb == "delete" else _ADDED)
    address, port = given.get("listenaddress") or ANY_ADDRESS, given["listenport"]
    if verb == "delete":
        return _change(process, lambda registry: delete_port_proxy(registry, kind, address, port))
    if not given.get("connectaddress") and _requires_connect_address(kind):
        raise _BadCommandError(_NOT_ENTERED)
    connect_address = given.get("connectaddress") or ANY_ADDRESS
    connect_port = given.get("connectport") or port
    entry = PortProxyEntry(kind, address, port, connect_address, connect_port)
    return _change(process, lambda registry: set_port_proxy(registry, entry))


def _change(process: Process, change: Callable[[WindowsRegistry], bool | None]) -> int:
    """`change` returns False if there is no such entry."""
    windows = process.context.windows
    if not windows.account.administrator:
        process.print_line("The requested operation requires elevation (Run as administrator).\r\n")
        return 1
    if change(windows.system.registry) is False:
        process.print_line("The system cannot find the file specified.\r\n")
        return 1
    with contextlib.suppress(ServiceError):  # one that does not run reads them when it starts
        windows.system.services.reload(PORT_PROXY_SERVICE)
    process.print_line()
    return 0


def _show(process: Process, kinds: Sequence[str]) -> int:
    registry = process.context.windows.system.registry
    for kind in kinds:
        entries = port_proxy_entries(registry, kind)
        if not entries:
            continue
        listens, connects = PORT_PROXY_KINDS[kind]
        process.print_line(f"\r\n{f'Listen on ipv{listens}:':<28}Connect to ipv{connects}:\r\n")
        process.print_line("Address         Port        Address         Port")
        process.print_line("--------------- ----------  --------------- ----------")
        for one in entries:
            process.print_line(
                f"{one.listen_address:<15} {one.listen_port:<10}  "
                f"{one.connect_address:<15} {one.connect_port}"
            )
    process.print_line()
    return 0


def _dump(process: Process) -> int:
    registry = process.context.windows.system.registry
    rule = "#========================"
    process.print_line(f"\r\n{rule}\r\n# Port Proxy configuration\r\n{rule}")
    process.print_line("pushd interface portproxy\r\n\r\nreset")
    for kind in PORT_PROXY_KINDS:
        for one in port_proxy_entries(registry, kind):
            values = [("listenport", one.listen_port)]
            if one.listen_address != ANY_ADDRESS:
                values.append(("listenaddress", one.listen_address))
            values += [("connectaddress", one.connect_address), ("connectport", one.connect_port)]
            given = " ".join(f"{tag}={value}" for tag, value in values)
            process.print_line(f"add {kind} {given}")
    process.print_line("\r\n\r\npopd\r\n\r\n# End of Port Proxy configuration")
    return 0
