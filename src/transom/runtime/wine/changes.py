"""Modified copies of Wine's files for containers, which behave as on Windows.

- kernelbase.dll and cmd.exe with Windows' error messages (`messages.py`);
- kernelbase.dll whose GetEnvironmentStrings omits the variables that Wine's own libraries read by name;
- kernelbase.dll and advapi32.dll with the accounts of Windows containers, and a wineserver whose processes
  have the SID of such an account.

Each change locates its position by the existing bytes, and returns None when they are not as
expected: the file stays unmodified then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from transom.machines.windows.accounts import (
    ADMINISTRATOR,
    LOCAL_SERVICE,
    NETWORK_SERVICE,
    SYSTEM,
    USER,
    WindowsUser,
)
from transom.runtime.wine import messages
from transom.runtime.wine.portable_executable import PortableExecutable

Change = Callable[[bytes], bytes | None]

# Variables that Wine adds to the environment of every process; `#` stands for digits.
_VARIABLES: Final = (
    "WINEDLLDIR#",
    "WINEDATADIR",
    "WINEHOMEDIR",
    "WINEBUILDDIR",
    "WINECONFIGDIR",
    "WINELOADER",
    "WINEUSERLOCALE",
    "WINEUSERNAME",
    "WINEUNIXCP",
    "WINEDLLOVERRIDES",
    "WINEDLLPATH",
    "WINESERVER",
    "WINEPREFIX",
    "WINEDEBUG",
)
_UNITS: Final = {"GetEnvironmentStringsW": 2, "GetEnvironmentStringsA": 1}
_STUB: Final = 48  # bytes reserved for each
FILTER: Final = "filter"  # what the helper exports

# Wine accounts that Windows containers do not need: their rows in Wine's tables are reused for the
# containers' own.
_REPLACED: Final[Mapping[WindowsUser, tuple[str, str]]] = {
    ADMINISTRATOR: ("S-1-5-64-21", "Digest Authentication"),
    USER: ("S-1-5-64-14", "SChannel Authentication"),
}
# Accounts whose processes have their SID: those above, and those that Wine knows.
ACCOUNTS: Final = (*_REPLACED, SYSTEM, LOCAL_SERVICE, NETWORK_SERVICE)
_WINE_USER: Final = "S-1-5-21-0-0-0-1000"
_IS_USER, _IS_GROUP = 1, 5  # SidTypeUser, SidTypeWellKnownGroup


def hide_variables(filter_library: bytes, library: bytes) -> bytes | None:
    """kernelbase.dll whose GetEnvironmentStrings calls the original function and then the
    filter.
    """
    try:
        image = PortableExecutable(library)
        code, begin = PortableExecutable(filter_library).code_of(FILTER)
        names = b"".join(name.encode() + b"\0" for name in _VARIABLES) + b"\0"
        exports = image.exports()
        at = image.reserve(_STUB * len(_UNITS) + len(code) + len(names), executable=True)
        code_at = at + _STUB * len(_UNITS)
        image.write(code_at, code + names)
        for number, (function, unit) in enumerate(_UNITS.items()):
            (original,) = struct.unpack_from("<I", image.content, exports[function])
            stub = at + _STUB * number
            image.write(stub, _stub(stub, original, unit, code_at + len(code), code_at + begin))
            for slot in exports.values():  # one function may have several names
                if image.content[slot : slot + 4] == struct.pack("<I", original):
                    struct.pack_into("<I", image.content, slot, stub)
    except (struct.error, ValueError, KeyError, StopIteration):
        return None
    return bytes(image.content)


def _stub(at: int, original: int, unit: int, names: int, filter_at: int) -> bytes:
    """`return filter(original(), unit, names)` in machine code. All addresses are relative to
    the image.
    """
    code = bytes.fromhex("4883ec28")  # sub rsp, 40
    code += b"\xe8" + struct.pack("<i", original - (at + len(code) + 5))  # call original
    # mov rcx, rax; mov edx, unit
    code += bytes.fromhex("4889c1") + b"\xba" + struct.pack("<I", unit)
    # lea r8, names
    code += bytes.fromhex("4c8d05") + struct.pack("<i", names - (at + len(code) + 7))
    code += b"\xe8" + struct.pack("<i", filter_at - (at + len(code) + 5))  # call filter
    return code + bytes.fromhex("4883c428c3")  # add rsp, 40; ret


def know_sids(library: bytes) -> bytes | None:
    """kernelbase.dll: the well-known SIDs of two accounts become those of the containers'
    accounts.
    """
    content = bytearray(library)
    for user, (old, _) in _REPLACED.items():
        at = content.find(sid_bytes(old) + bytes(4))
        if at < 0:
            return None
        new = sid_bytes(user.sid)
        content[at : at + len(new)] = new
    return bytes(content)


def know_names(library: bytes) -> bytes | None:
    r"""advapi32.dll: these rows of its account table get their names, `User Manager\ContainerUser`.

    A row has the number of a well-known SID, pointers to the name and to the domain, and the
    account type.
    """
    try:
        image = PortableExecutable(library)
        domain = ADMINISTRATOR.domain.encode("utf-16-le") + b"\0\0"
        domain_at = image.reserve(len(domain), executable=False)
        image.write(domain_at, domain)
        for user, (_, old) in _REPLACED.items():
            name_at = image.address(image.content.index(_wide(old)))
            row = image.content.index(struct.pack("<Q", image.base + name_at))
            (kind,) = struct.unpack_from("<I", image.content, row + 16)
            new = _wide(user.name)
            room = len(_wide(old)) + _free_after(image, name_at + len(_wide(old)))
            if kind != _IS_GROUP or len(new) > room:
                return None
            image.write(name_at, new)
            struct.pack_into("<QI", image.content, row + 8, image.base + domain_at, _IS_USER)
    except (struct.error, ValueError):
        return None
    return bytes(image.content)


def _free_after(image: PortableExecutable, address: int) -> int:
    at, count = image.offset(address), 0
    while count < 16 and (at + count) % 8 and image.content[at + count] == 0:
        count += 1
    return count


def _wide(text: str) -> bytes:
    return text.encode("utf-16-le") + b"\0\0"


def sid_bytes(sid: str) -> bytes:
    """As Windows has it in memory."""
    revision, authority, *parts = map(int, sid.removeprefix("S-").split("-"))
    return struct.pack(">BBHI", revision, len(parts), 0, authority) + struct.pack(
        f"<{len(parts)}I", *parts
    )


def server_for(server: bytes, user: WindowsUser) -> bytes | None:
    """A wineserver that gives its processes the SID of an account; None for accounts other than
    `ACCOUNTS`, whose names Wine could not look up, and for an unexpected server binary.
    """
    old, new = sid_bytes(_WINE_USER), sid_bytes(user.sid)
    if user not in ACCOUNTS or server.count(old) != 1:
        return None
    return server.replace(old, new.ljust(len(old), b"\0"))


def file_changes(filter_library: bytes | None) -> Mapping[str, Sequence[Change]]:
    """By the names of the files that they modify. `filter_library`: the helper hidevars.dll, if
    available.
    """
    filters = () if filter_library is None else (partial(hide_variables, filter_library),)
    return {
        "kernelbase.dll": (messages.translate_messages, *filters, know_sids),
        "advapi32.dll": (know_names,),
        "cmd.exe": (messages.reword_strings,),
    }


def apply_file_changes(content: bytes, steps: Sequence[Change]) -> bytes | None:
    """With all possible changes; None when there is none."""
    changed = content
    for step in steps:
        changed = step(changed) or changed
    return changed if changed != content else None
