"""icacls, cacls, takeown and attrib: permissions and attributes of files."""

from __future__ import annotations

import ntpath
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from transom.machines.security import ADMINISTRATORS, Ace, SecurityDescriptor, sorted_aces
from transom.machines.styles import windows_error_code
from transom.machines.windows.accounts import NO_MAPPING
from transom.userland.process import Command, Process
from transom.userland.windows import texts
from transom.userland.windows.rights import parse_rights, show_entry
from transom.userland.windows.sddl import dacl_text, with_dacl

_NONE_MAPPED: Final = 1332
_BAD_PARAMETER: Final = 87
Change = Callable[[SecurityDescriptor], SecurityDescriptor]


def matching(process: Process, pattern: str) -> list[str]:
    """The files that match a path with wildcards; otherwise the path itself."""
    if "*" not in pattern and "?" not in pattern:
        return [pattern]
    directory, mask = ntpath.split(pattern.replace("/", "\\"))
    try:
        names = process.files.listdir(directory or ".")
    except OSError:
        return []
    mask = "*" if mask == "*.*" else mask.lower()
    return [
        ntpath.join(directory, name) if directory else name
        for name in names
        if fnmatchcase(name.lower(), mask)
    ]


def _below(process: Process, path: str, deep: bool) -> Iterator[str]:
    yield path
    if deep and process.files.is_directory(path):
        try:
            names = process.files.listdir(path)
        except OSError:
            return
        for name in names:
            yield from _below(process, process.files.join(path, name), True)


class Misused(Exception):
    """icacls prints the text and exits with `code`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def _sid(process: Process, name: str) -> str:
    found = process.context.windows.system.accounts.sid_of(name)
    if found is None:
        raise Misused(_NONE_MAPPED, f"{name}: {NO_MAPPING}")
    return found


def _entry(process: Process, word: str, deny: bool) -> Ace:
    name, colon, rights = word.rpartition(":")
    if not colon:
        raise Misused(_BAD_PARAMETER, f'Invalid parameter "{word}"')
    sid = _sid(process, name)
    try:
        mask, flags = parse_rights(rights)
    except ValueError:
        raise Misused(_BAD_PARAMETER, f'Invalid parameter "{word}"') from None
    return Ace(sid, mask, deny, flags)


def granted(descriptor: SecurityDescriptor, ace: Ace, replace: bool = False) -> SecurityDescriptor:
    """Adds an entry; it is merged with one for the same account and the same inheritance."""
    own = [one for one in descriptor.aces if not one.inherited]
    same = [
        one
        for one in own
        if one.sid == ace.sid and one.deny == ace.deny and (replace or one.flags == ace.flags)
    ]
    mask = ace.mask
    for one in same:
        mask |= 0 if replace else one.mask
    kept = tuple(one for one in descriptor.aces if one not in same)
    return descriptor._replace(aces=sorted_aces((ace._replace(mask=mask), *kept)))


def without_entries(
    descriptor: SecurityDescriptor, sid: str, kinds: str = "gd"
) -> SecurityDescriptor:
    """Removes the explicit entries for an account that grant (g) or deny (d)."""
    kept = (
        a
        for a in descriptor.aces
        if a.inherited or a.sid != sid or ("d" if a.deny else "g") not in kinds
    )
    return descriptor._replace(aces=tuple(kept))


def inheritance(descriptor: SecurityDescriptor, how: str) -> SecurityDescriptor:
    """e: enable inheritance. d: disable it and keep inherited entries as explicit ones. r: disable
    it and remove them.
    """
    if how == "e":
        return descriptor._replace(protected=False)
    if how == "r":
        return descriptor._replace(
            aces=tuple(a for a in descriptor.aces if not a.inherited), protected=True
        )
    return descriptor._replace(
        aces=sorted_aces(tuple(a._replace(inherited=False) for a in descriptor.aces)),
        protected=True,
    )


def _reset(descriptor: SecurityDescriptor) -> SecurityDescriptor:
    return descriptor._replace(
        aces=tuple(a for a in descriptor.aces if a.inherited), protected=False
    )


def _with_owner(descriptor: SecurityDescriptor, owner: str) -> SecurityDescriptor:
    return descriptor._replace(owner=owner)


def _changes(process: Process, words: Sequence[str]) -> list[Change]:
    """The requested changes, in order."""
    out: list[Change] = []
    verb = ""
    for word in words:
        lower = word.lower()
        if lower.startswith("/inheritance:"):
            how = lower.partition(":")[2]
            if how not in ("e", "d", "r"):
                raise Misused(_BAD_PARAMETER, f'Invalid parameter "{word}"')
            out.append(partial(inheritance, how=how))
        elif lower == "/reset":
            out.append(_reset)
        elif lower.partition(":")[0] in ("/grant", "/deny", "/remove", "/setowner"):
            verb = lower
        elif word.startswith("/"):
            raise Misused(_BAD_PARAMETER, f'Invalid parameter "{word}"')
        elif verb.startswith("/grant"):
            ace, replace = _entry(process, word, False), verb.endswith(":r")
            out.append(partial(granted, ace=ace, replace=replace))
        elif verb == "/deny":
            ace = _entry(process, word, True)
            out.append(partial(granted, ace=ace))
        elif verb.startswith("/remove"):
            sid, kinds = _sid(process, word), verb.partition(":")[2] or "gd"
            out.append(partial(without_entries, sid=sid, kinds=kinds))
        elif verb == "/setowner":
            owner = _sid(process, word)
            out.append(partial(_with_owner, owner=owner))
        else:
            raise Misused(_BAD_PARAMETER, f'Invalid parameter "{word}"')
    return out


def acl_lines(process: Process, path: str) -> str:
    """An access control list as icacls shows it."""
    accounts = process.context.windows.system.accounts
    lines = [
        f"{accounts.name_of(ace.sid)}:{show_entry(ace)}"
        for ace in process.files.descriptor(path).aces
    ]
    if not lines:
        return f"{path} "
    return ("\r\n" + " " * (len(path) + 1)).join((f"{path} {lines[0]}", *lines[1:]))


async def icacls(process: Process) -> int:
    words = process.argv[1:]
    if not words or words[0] == "/?":
        process.print_line(
            (
                "\r\nICACLS name /save aclfile [/T] [/C] [/L] [/Q]\r\n    stores the DACLs for "
                "the files and folders"
            ),
        )
        return 0
    if words[0].startswith("/"):
        process.complain(f'Invalid parameter "{words[0]}"')
        return _BAD_PARAMETER
    options = {word.lower() for word in words[1:]} & {"/t", "/c", "/l", "/q"}
    rest = [word for word in words[1:] if word.lower() not in options]
    done = failed = code = 0
    if rest and rest[0].lower() in ("/save", "/restore"):
        return _store(process, words[0], rest, "/t" in options)
    try:
        changes = _changes(process, rest)
    except Misused as error:
        process.complain(str(error))
        if error.code == _NONE_MAPPED:
            process.print_line("Successfully processed 0 files; Failed processing 1 files")
        return error.code
    for given in matching(process, words[0]) or [words[0]]:
        for path in _below(process, given, "/t" in options):
            await process.breathe()
            try:
                if changes:
                    descriptor = process.files.descriptor(path)
                    for change in changes:
                        descriptor = change(descriptor)
                    process.files.set_descriptor(path, descriptor)
                    if "/q" not in options:
                        process.print_line(f"processed file: {path}")
                else:
                    process.print_line(acl_lines(process, path) + "\r\n")
                done += 1
            except OSError as error:
                failed += 1
                code = code or windows_error_code(error) or 2
                process.complain(f"{path}: {texts.windows_message(error)}")
    process.print_line(f"Successfully processed {done} files; Failed processing {failed} files")
    return code


def _store(process: Process, given: str, words: list[str], deep: bool) -> int:
    """/save writes names and lists to a file, relative to the directory above; /restore reads it."""
    verb, files = words[0].lower(), process.files
    if len(words) != 2:
        process.complain(f'Invalid parameter "{words[0]}"')
        return _BAD_PARAMETER
    done = 0
    try:
        if verb == "/save":
            above = files.parent(files.absolute(given))
            lines = []
            for path in _below(process, given, deep):
                name = files.absolute(path)[len(above) :].lstrip("\\")
                lines += [name, dacl_text(files.descriptor(path))]
                process.print_line(f"processed file: {path}")
                done += 1
            content = "".join(line + "\r\n" for line in lines)
            files.write(words[1], content.encode("utf-16"))
        else:
            rows = files.read(words[1]).decode("utf-16").split("\r\n")
            for name, text in zip(rows[::2], rows[1::2], strict=False):
                path = files.join(given, name)
                files.set_descriptor(path, with_dacl(files.descriptor(path), text))
                process.print_line(f"processed file: {path}")
                done += 1
    except (OSError, ValueError) as error:
        text = texts.windows_message(error) if isinstance(error, OSError) else _BAD_LIST
        process.complain(f"{words[1]}: {text}")
        process.print_line(f"Successfully processed {done} files; Failed processing 1 files")
        return 1
    process.print_line(f"Successfully processed {done} files; Failed processing 0 files")
    return 0


_BAD_LIST: Final = "The data is invalid."


_CACLS: Final = {"F": "F", "C": "M", "R": "RX", "W": "W", "N": "N"}


def cacls(process: Process) -> int:
    """The old tool: /G grants, /P replaces, /R removes, /D denies; without /E the list is replaced."""
    words = process.argv[1:]
    try:
        if not words:
            raise Misused(1, "The data is invalid.")
        path, verb = words[0], ""
        descriptor = process.files.descriptor(path)
        edit = any(word.lower() == "/e" for word in words)
        if len(words) == 1:
            process.print_line(acl_lines(process, path).replace(" (", "("))
            return 0
        if not edit:
            descriptor = descriptor._replace(aces=(), protected=True)
        for word in words[1:]:
            lower = word.lower()
            if lower in ("/g", "/p", "/r", "/d"):
                verb = lower
            elif not word.startswith("/"):
                descriptor = _old_change(process, descriptor, verb, word)
        process.files.set_descriptor(path, descriptor)
    except Misused as error:
        process.complain(str(error).partition(": ")[2] or str(error))
        return error.code
    except OSError as error:
        process.complain(texts.windows_message(error))
        return 2
    process.print_line(
        (
            f"processed {'dir' if process.files.is_directory(path) else 'file'}: "
            f"{process.files.absolute(path)}"
        ),
    )
    return 0


def _old_change(
    process: Process, descriptor: SecurityDescriptor, verb: str, word: str
) -> SecurityDescriptor:
    name, _, letter = word.rpartition(":") if verb in ("/g", "/p") else (word, "", "")
    sid = _sid(process, name)
    if verb == "/r":
        return without_entries(descriptor, sid)
    mask = parse_rights(_CACLS.get(letter.upper(), "F"))[0]
    flags = 3 if process.files.is_directory(process.argv[1]) else 0
    return granted(descriptor, Ace(sid, mask, verb == "/d", flags), verb == "/p")


async def takeown(process: Process) -> int:
    words = process.argv[1:]
    lower = [word.lower() for word in words]
    if "/f" not in lower or lower.index("/f") + 1 >= len(words):
        process.complain(
            'ERROR: Invalid syntax. Mandatory option "f" is missing.\r\nType "TAKEOWN /?" '
            "for usage."
        )
        return 1
    given = words[lower.index("/f") + 1]
    account, accounts = process.context.windows.account, process.context.windows.system.accounts
    owner = ADMINISTRATORS if "/a" in lower else account.sid
    shown_owner = (
        "the administrators group" if "/a" in lower else f'user "{accounts.name_of(account.sid)}"'
    )
    code = 0
    for start in matching(process, given) or [given]:
        for path in _below(process, start, "/r" in lower):
            await process.breathe()
            try:
                tree = process.files
                kind = "file (or folder)"
                tree.take_ownership(path, owner)
                process.print_line(
                    f'\r\nSUCCESS: The {kind}: "{tree.absolute(path)}" now owned by {shown_owner}.',
                )
            except FileNotFoundError:
                process.complain("ERROR: The system cannot find the file specified.")
                code = 1
            except OSError:
                process.complain("ERROR: Access is denied.")
                code = 1
    return code


def attrib(process: Process) -> int:
    on = "".join(word[1:].upper() for word in process.argv[1:] if word.startswith("+"))
    off = "".join(word[1:].upper() for word in process.argv[1:] if word.startswith("-"))
    switches = {word.lower() for word in process.argv[1:] if word.startswith("/")}
    paths = [word for word in process.argv[1:] if word[:1] not in "+-/"] or ["*"]
    if not set(on + off) <= set("RASH"):
        wrong = next(
            word
            for word in process.argv[1:]
            if word[:1] in "+-" and not set(word[1:].upper()) <= set("RASH")
        )
        process.complain(f"Invalid switch - {wrong}")
        return 1
    files = process.files
    for given in paths:
        found = [path for path in matching(process, given) if files.exists(path)]
        if "/s" in switches:
            directory, mask = ntpath.split(given.replace("/", "\\"))
            tops = [
                path for path, state in files.walk(directory or ".") if state.kind == "directory"
            ]
            found = [
                path
                for top in tops
                for path in matching(process, ntpath.join(top, mask))
                if files.exists(path)
            ]
        if "*" in given and "/d" not in switches:
            found = [path for path in found if not files.is_directory(path)]
        if not found:
            process.print_line(f"File not found - {given}")
        for path in found:
            try:
                if on or off:
                    files.set_attributes(path, on, off)
                else:
                    letters = files.attributes(path)
                    shown_letters = "".join(
                        letter if letter in letters else " " for letter in "A  SHR"
                    )
                    process.print_line(f"{shown_letters:<21}{files.absolute(path)}")
            except OSError as error:
                process.print_line(
                    f"{texts.windows_message(error).rstrip('.')} - {files.absolute(path)}"
                )
    return 0


COMMANDS: dict[str, Command] = {
    "attrib": attrib,
    "cacls": cacls,
    "icacls": icacls,
    "takeown": takeown,
}
