"""reg.exe: the registry of the container or the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import (
    ROOTS,
    ExpandString,
    Qword,
    RegistryFullError,
    Value,
    WindowsRegistry,
)
from transom.machines.windows.system import ENVIRONMENT
from transom.userland.api import ProgramContext
from transom.userland.process import Command, Process

MISSING: Final = "ERROR: The system was unable to find the specified registry key or value."
_DENIED: Final = "ERROR: Access is denied."
_FULL: Final = "ERROR: Insufficient system resources exist to complete the requested service."
_DONE: Final = "The operation completed successfully."
_MAX_SHOWN: Final = 20_000


class RegError(Exception):
    """Its text is reg's message."""


def registry_key_of(context: ProgramContext, key: str) -> str:
    """A key as users write it, in the registry's form. A user's own keys are below those of all
    users.
    """
    root, _, rest = key.replace("/", "\\").strip("\\").partition("\\")
    short = next((name for name, long in ROOTS.items() if root.upper() in (name, long)), None)
    if short is None:
        raise RegError('ERROR: Invalid key name.\r\nType "REG /?" for usage.')
    if short == "HKCU":
        own = rf"HKU\{context.windows.account.sid}"
        for made in ("Software", "Environment", "Volatile Environment"):
            context.windows.system.registry.create(rf"{own}\{made}")
        short = own
    elif short == "HKCR":
        short = r"HKLM\SOFTWARE\Classes"
    return rf"{short}\{rest}" if rest else short


def may_write(context: ProgramContext, key: str) -> bool:
    """Ordinary users may change only their own keys."""
    return context.windows.account.administrator or key.upper().startswith(
        rf"HKU\{context.windows.account.sid}".upper()
    )


def value_type_name(value: Value) -> str:
    if isinstance(value, Qword):
        return "REG_QWORD"
    if isinstance(value, int):
        return "REG_DWORD"
    if isinstance(value, bytes):
        return "REG_BINARY"
    if isinstance(value, tuple):
        return "REG_MULTI_SZ"
    return "REG_EXPAND_SZ" if isinstance(value, ExpandString) else "REG_SZ"


def value_text(value: Value) -> str:
    if isinstance(value, int):
        return f"0x{value:x}"
    if isinstance(value, bytes):
        return value.hex().upper()
    return "\\0".join(value) if isinstance(value, tuple) else str(value)


def made(kind: str, data: str, separator: str = "\\0") -> Value:
    """A value of the named type. Raises ValueError."""
    match kind.upper():
        case "REG_SZ":
            return data
        case "REG_EXPAND_SZ":
            return ExpandString(data)
        case "REG_DWORD" | "REG_DWORD_LITTLE_ENDIAN":
            number = int(data, 0) if data else 0
            if not 0 <= number < 1 << 32:
                raise ValueError(data)
            return number
        case "REG_QWORD":
            return Qword(int(data, 0) if data else 0)
        case "REG_BINARY" | "REG_NONE":
            return bytes.fromhex(data if len(data) % 2 == 0 else "0" + data)
        case "REG_MULTI_SZ":
            return tuple(part for part in data.split(separator) if part)
    raise ValueError(kind)


def full_key_name(written: str) -> str:
    """The key with the full name of its root."""
    root, _, rest = written.replace("/", "\\").strip("\\").partition("\\")
    long = ROOTS.get(root.upper(), root.upper() if root.upper() in ROOTS.values() else root)
    return f"{long}\\{rest}" if rest else long


class RegOptions(NamedTuple):
    key: str
    target: str
    switches: frozenset[str]
    values: dict[str, str]

    def name(self) -> str | None:
        """The name of the value, "" for the default value; None if none is given."""
        return "" if "/ve" in self.switches else self.values.get("/v")


_TAKES_VALUE: Final = frozenset(("/v", "/t", "/d", "/s:", "/f:", "/reg"))
_SEARCH: Final = frozenset(("/f",))


def _options(verb: str, words: Sequence[str]) -> RegOptions:
    plain: list[str] = []
    switches: set[str] = set()
    values: dict[str, str] = {}
    takes = _TAKES_VALUE | (
        _SEARCH if verb == "query" else frozenset(("/s",)) if verb == "add" else frozenset()
    )
    index = 0
    while index < len(words):
        word = words[index]
        lower = word.lower()
        if not word.startswith("/"):
            plain.append(word)
        elif lower.startswith("/reg:"):
            pass
        elif lower in takes and index + 1 < len(words):
            index += 1
            if lower in values:
                raise RegError(_syntax(verb))
            values[lower] = words[index]
        else:
            switches.add(lower)
        index += 1
    if not plain or len(plain) > 2 or (verb in ("add", "query", "delete") and len(plain) > 1):
        raise RegError(_syntax(verb))
    return RegOptions(plain[0], plain[1] if len(plain) > 1 else "", frozenset(switches), values)


def _syntax(verb: str) -> str:
    return f'ERROR: Invalid syntax.\r\nType "REG {verb.upper()} /?" for usage.'


async def reg(process: Process) -> int:
    verb = process.argv[1].lower() if len(process.argv) > 1 else ""
    run = _VERBS.get(verb)
    try:
        if run is None:
            raise RegError('ERROR: Invalid syntax.\r\nType "REG /?" for usage.')
        result = run(process, _options(verb, process.argv[2:]))
        return result if isinstance(result, int) else await result
    except RegError as error:
        process.complain(str(error))
    except RegistryFullError:
        process.complain(_FULL)
    return 1


def _row(name: str, value: Value) -> str:
    return f"    {name or '(Default)'}    {value_type_name(value)}    {value_text(value)}"


def _query(process: Process, options: RegOptions) -> int:
    context, registry = process.context, process.context.windows.system.registry
    key, name = registry_key_of(context, options.key), options.name()
    if not registry.exists(key):
        raise RegError(MISSING)
    pattern = options.values.get("/f", "").lower()
    rows = 0
    matches = 0
    for path, label in _tree(registry, key, full_key_name(options.key), "/s" in options.switches):
        values = registry.values(path) or {}
        picked = {
            known: value
            for known, value in values.items()
            if (name is None or known.lower() == name.lower())
            and (not pattern or pattern in known.lower() or pattern in value_text(value).lower())
        }
        matches += len(picked)
        if picked or (name is None and not pattern):
            process.print_line("\r\n" + label)
            for known, value in picked.items():
                process.print_line(_row(known, value))
        rows += len(picked) + 1
        if rows > _MAX_SHOWN:
            break
    if (name is not None or pattern) and not matches and not pattern:
        raise RegError(MISSING)
    process.print_line()
    if name is None and not pattern and "/s" not in options.switches:
        for below in registry.keys(key):
            process.print_line(f"{full_key_name(options.key)}\\{below}")
    if pattern or (name is not None and "/s" in options.switches):
        process.print_line(f"End of search: {matches} match(es) found.")
        return int(not matches)
    return 0


def _tree(registry: WindowsRegistry, key: str, label: str, deep: bool) -> list[tuple[str, str]]:
    out = [(key, label)]
    if deep:
        for name in registry.keys(key):
            out += _tree(registry, rf"{key}\{name}", rf"{label}\{name}", True)
            if len(out) > _MAX_SHOWN:
                break
    return out


async def _confirmed(process: Process, question: str) -> bool:
    process.write(question)
    answer = (await process.stdin.readline()).decode("utf-8", "replace").strip().lower()
    if answer.startswith(("y", "a")):
        return True
    process.print_line("\r\nThe operation was canceled by the user.")
    return False


def _writable(process: Process, options: RegOptions) -> tuple[WindowsRegistry, str]:
    key = registry_key_of(process.context, options.key)
    if not may_write(process.context, key):
        raise RegError(_DENIED)
    return process.context.windows.system.registry, key


async def _add(process: Process, options: RegOptions) -> int:
    registry, key = _writable(process, options)
    if "\\" not in key:
        raise RegError(_DENIED)
    name = options.name()
    if name is None and ("/d" in options.values or "/t" in options.values):
        name = ""
    if name is None:
        registry.create(key)
        process.print_line(_DONE)
        return 0
    kind = options.values.get("/t", "REG_SZ")
    try:
        value = made(kind, options.values.get("/d", ""), options.values.get("/s", "\\0"))
    except ValueError:
        raise RegError(_syntax("add")) from None
    question = f"Value {name or '(Default)'} exists, overwrite(Yes/No/All)? "
    requested = registry.get(key, name) is not None and "/f" not in options.switches
    if requested and not await _confirmed(process, question):
        return 0
    registry.set(key, name, value)
    process.print_line(_DONE)
    return 0


async def _delete(process: Process, options: RegOptions) -> int:
    registry, key = _writable(process, options)
    name, everything = options.name(), "/va" in options.switches
    if not registry.exists(key) or (name is not None and registry.get(key, name) is None):
        raise RegError(MISSING)
    if "/f" not in options.switches:
        what = (
            f"value {name or '(Default)'}"
            if name is not None
            else "key " + full_key_name(options.key)
        )
        if everything:
            what = f"values under the registry key {full_key_name(options.key)}"
        question = (
            f"Delete the registry {what} (Yes/No)? "
            if not everything
            else f"Delete all {what} (Yes/No)? "
        )
        if name is None and not everything:
            question = f"Permanently delete the registry {what} (Yes/No)? "
        if not await _confirmed(process, question):
            return 0
    if everything:
        for known in tuple(registry.values(key) or ()):
            registry.delete(key, known)
    else:
        registry.delete(key, name)
    process.print_line(_DONE)
    return 0


def _copy(process: Process, options: RegOptions) -> int:
    context, registry = process.context, process.context.windows.system.registry
    source, target = registry_key_of(context, options.key), registry_key_of(context, options.target)
    if not registry.exists(source):
        raise RegError(MISSING)
    if not may_write(context, target):
        raise RegError(_DENIED)
    for path, _ in _tree(registry, source, "", "/s" in options.switches):
        place = target + path[len(source) :]
        registry.create(place)
        for name, value in (registry.values(path) or {}).items():
            registry.set(place, name, value)
    process.print_line(_DONE)
    return 0


def _compare(process: Process, options: RegOptions) -> int:
    """2 if they differ."""
    context, registry = process.context, process.context.windows.system.registry
    keys = [registry_key_of(context, name) for name in (options.key, options.target)]
    if not all(registry.exists(key) for key in keys):
        raise RegError(MISSING)
    deep, same, rows = "/s" in options.switches, True, list[str]()
    left, right = (
        {
            path[len(key) :]: registry.values(path) or {}
            for path, _ in _tree(registry, key, "", deep)
        }
        for key in keys
    )
    for below in dict.fromkeys((*left, *right)):
        for name in dict.fromkeys((*left.get(below, {}), *right.get(below, {}))):
            values = [side.get(below, {}).get(name) for side in (left, right)]
            equal = values[0] == values[1]
            same = same and equal
            for mark, key, value in zip("<>", (options.key, options.target), values, strict=True):
                if value is not None and not equal and "/os" not in options.switches:
                    rows.append(
                        f"{mark} Value:  {full_key_name(key)}{below}  {name or '(Default)'}  "
                        f"{value_type_name(value)}  {value_text(value)}"
                    )
    for row in rows:
        process.print_line(row)
    result = "Identical" if same else "Different"
    process.print_line(f"\r\nResult Compared: {result}\r\n\r\n{_DONE}")
    return 0 if same else 2


def _file_value(value: Value) -> str:
    match value_type_name(value):
        case "REG_SZ":
            quoted = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{quoted}"'
        case "REG_DWORD":
            assert isinstance(value, int)
            return f"dword:{value:08x}"
        case "REG_BINARY":
            assert isinstance(value, bytes)
            return "hex:" + ",".join(f"{byte:02x}" for byte in value)
        case "REG_QWORD":
            assert isinstance(value, int)
            return "hex(b):" + ",".join(f"{byte:02x}" for byte in value.to_bytes(8, "little"))
    whole = "\0".join(value) + "\0" if isinstance(value, tuple) else str(value)
    data = (whole + "\0").encode("utf-16-le")
    return f"hex({7 if isinstance(value, tuple) else 2}):" + ",".join(
        f"{byte:02x}" for byte in data
    )


def _export(process: Process, options: RegOptions) -> int:
    context, registry = process.context, process.context.windows.system.registry
    key = registry_key_of(context, options.key)
    if not registry.exists(key) or not options.target:
        raise RegError(MISSING if options.target else _syntax("export"))
    lines = ["Windows Registry Editor Version 5.00", ""]
    for path, label in _tree(registry, key, full_key_name(options.key), True):
        lines.append(f"[{label}]")
        for name, value in (registry.values(path) or {}).items():
            lines.append((f'"{name}"' if name else "@") + "=" + _file_value(value))
        lines.append("")
    try:
        process.files.write(
            options.target, "\ufeff".join(("", "\r\n".join(lines) + "\r\n")).encode("utf-16-le")
        )
    except OSError as error:
        raise RegError(f"ERROR: {error.strerror}") from None
    process.print_line(_DONE)
    return 0


def _parsed(text: str) -> Value:
    """Parses a value of a .reg file. Raises ValueError."""
    if text.startswith('"'):
        return text[1:].removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
    kind, _, digits = text.partition(":")
    if kind == "dword":
        return int(digits, 16)
    data = bytes(int(part, 16) for part in digits.split(",") if part.strip())
    match kind:
        case "hex(b)":
            return Qword(int.from_bytes(data, "little"))
        case "hex(2)":
            return ExpandString(data.decode("utf-16-le").rstrip("\0"))
        case "hex(7)":
            return tuple(part for part in data.decode("utf-16-le").split("\0") if part)
    return data


def _import(process: Process, options: RegOptions) -> int:
    context, registry = process.context, process.context.windows.system.registry
    try:
        data = process.files.read(options.key)
    except OSError:
        raise RegError(
            f"ERROR: Error opening the file {options.key}. The system cannot find the file "
            "specified."
        ) from None
    text = data.decode(
        "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace"
    )
    key = ""
    for line in text.replace("\\\r\n", "").splitlines():
        line = line.strip()
        if line.startswith("[-") and line.endswith("]"):
            registry.delete(registry_key_of(context, line[2:-1]))
        elif line.startswith("[") and line.endswith("]"):
            key = registry_key_of(context, line[1:-1])
            if not may_write(context, key):
                raise RegError(_DENIED)
            registry.create(key)
        elif key and "=" in line and line[:1] in '"@':
            name, _, value = line.partition("=") if line[0] == "@" else line[1:].partition('"=')
            try:
                registry.set(key, "" if line[0] == "@" else name, _parsed(value))
            except ValueError:
                raise RegError("ERROR: Error accessing the registry.") from None
    process.complain(_DONE)  # like reg.exe
    return 0


_VERBS: Final[dict[str, Callable[[Process, RegOptions], int | Awaitable[int]]]] = {
    "add": _add,
    "compare": _compare,
    "copy": _copy,
    "delete": _delete,
    "export": _export,
    "import": _import,
    "query": _query,
}


def setx(process: Process) -> int:
    """Sets a variable for later processes: of the user, or with /M of the machine."""
    words = [word for word in process.argv[1:] if word.lower() not in ("/m", "/s", "/u", "/p")]
    machine = any(word.lower() == "/m" for word in process.argv[1:])
    if len(words) < 2:
        process.complain('ERROR: Invalid syntax.\r\nType "SETX /?" for usage.')
        return 1
    context = process.context
    if machine and not context.windows.account.administrator:
        process.complain("ERROR: Access to the registry path is denied.")
        return 1
    try:
        key = ENVIRONMENT if machine else registry_key_of(context, r"HKCU\Environment")
        context.windows.system.registry.set(key, words[0], words[1])
    except RegistryFullError:
        process.complain(_FULL)
        return 1
    process.print_line("\r\nSUCCESS: Specified value was saved.")
    return 0


COMMANDS: dict[str, Command] = {"reg": reg, "setx": setx}
