"""assoc and ftype: the file types of the registry and the commands that open them."""

from __future__ import annotations

from transom.machines.windows.host import CLASSES
from transom.machines.windows.registry import ExpandString, WindowsRegistry
from transom.userland.cmd.state import CmdState
from transom.userland.windows import texts


def _text(registry: WindowsRegistry, key: str) -> str | None:
    """The default value of a key, if it is text."""
    value = registry.get(key, "")
    return value if isinstance(value, str) else None


def assoc(shell: CmdState, text: str) -> int:
    registry = shell.process.context.windows.system.registry
    extension, is_set, kind = text.partition("=")
    key = rf"{CLASSES}\{extension}"
    if is_set:
        if not _may_change(shell):
            return 1
        if not kind:
            if not registry.delete(key):
                return shell.fail(f"File association not found for extension {extension}")
            return 0
        registry.set(key, "", kind)
        shell.print_line(f"{extension}={kind}")
        return 0
    if text:
        found = _text(registry, key)
        if found is None:
            return shell.fail(f"File association not found for extension {text}")
        shell.print_line(f"{text}={found}")
        return 0
    for name in registry.keys(CLASSES):
        value = _text(registry, rf"{CLASSES}\{name}")
        if name.startswith(".") and value is not None:
            shell.print_line(f"{name}={value}")
    return 0


def _command_key(kind: str) -> str:
    return rf"{CLASSES}\{kind}\shell\open\command"


def ftype(shell: CmdState, text: str) -> int:
    registry = shell.process.context.windows.system.registry
    kind, is_set, command = text.partition("=")
    missing = f"File type '{kind}' not found or no open command associated with it."
    if is_set:
        if not _may_change(shell):
            return 1
        if not command:
            return 0 if registry.delete(_command_key(kind)) else shell.fail(missing)
        registry.set(_command_key(kind), "", _typed(command))
        shell.print_line(f"{kind}={command}")
        return 0
    if text:
        found = _text(registry, _command_key(kind))
        if found is None:
            return shell.fail(missing, 2)
        shell.print_line(f"{kind}={found}")
        return 0
    for name, value in _open_commands(registry):
        shell.print_line(f"{name}={value}")
    return 0


def _typed(command: str) -> str:
    return ExpandString(command) if command.count("%") > 1 else command


def _open_commands(registry: WindowsRegistry) -> list[tuple[str, str]]:
    rows = [(name, _text(registry, _command_key(name))) for name in registry.keys(CLASSES)]
    return [(name, value) for name, value in rows if value is not None]


def _may_change(shell: CmdState) -> bool:
    if shell.process.context.windows.account.administrator:
        return True
    shell.complain(texts.DENIED)
    return False
