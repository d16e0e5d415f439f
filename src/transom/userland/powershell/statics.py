"""Static members of .NET's classes for files, paths, directories, regular expressions and dates."""

from __future__ import annotations

import calendar
import ntpath
import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from transom.machines.styles import windows_error_code
from transom.userland.limits import bounded
from transom.userland.powershell.operators import expression, time_span
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_items,
    to_number,
    to_text,
)

Static = Callable[[PowerShellSession, "list[Any] | None"], Any]


def method_failed(name: str, count: int, why: str, error: OSError | None = None) -> PowerShellError:
    inner = exception_of(error) if error is not None else "IOException"
    return PowerShellError(
        f'Exception calling "{name}" with "{count}" argument(s): "{why}"',
        "NotSpecified: (:) [], MethodInvocationException",
        inner,
        inner=inner,
    )


def exception_of(error: OSError) -> str:
    """The exception of .NET for a failure of the file system."""
    if isinstance(error, FileNotFoundError):
        missing_folder = windows_error_code(error) == 3
        return "DirectoryNotFoundException" if missing_folder else "FileNotFoundException"
    if windows_error_code(error) == 206:
        return "PathTooLongException"
    if isinstance(error, PermissionError | IsADirectoryError):
        return "UnauthorizedAccessException"
    return "IOException"


def io_message(path: str, full: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if windows_error_code(error) == 3:
            return f"Could not find a part of the path '{full}'."
        return f"Could not find file '{full}'."
    if windows_error_code(error) == 206:
        return (
            "The specified path, file name, or both are too long. The fully qualified file "
            "name must be less than 260 "
            "characters, and the directory name must be less than 248 characters."
        )
    if isinstance(error, PermissionError | IsADirectoryError):
        return f"Access to the path '{full}' is denied."
    return error.strerror or str(error)


def _on_file(name: str, work: Callable[[Any, list[Any]], Any]) -> Static:
    """A method whose first argument is a path; its errors are .NET's."""

    def run(evaluator: PowerShellSession, given: list[Any] | None) -> Any:
        arguments = given or [""]
        files = evaluator.process.files
        try:
            return work(files, arguments)
        except OSError as error:
            path = to_text(arguments[0])
            raise method_failed(
                name, len(arguments), io_message(path, files.absolute(path), error), error
            ) from None

    return run


def _lines(data: str) -> list[str]:
    return data.replace("\r\n", "\n").removesuffix("\n").split("\n") if data else []


def _joined(values: Any) -> bytes:
    return "".join(to_text(one) + "\r\n" for one in to_items(values)).encode()


def _copy(files: Any, a: list[Any]) -> None:
    if files.exists(to_text(a[1])) and not (len(a) > 2 and a[2]):
        raise OSError(17, f"The file '{files.absolute(to_text(a[1]))}' already exists.")
    files.copy(to_text(a[0]), to_text(a[1]))


def _delete(files: Any, a: list[Any]) -> None:
    if files.exists(to_text(a[0])):
        files.remove(to_text(a[0]))


def _listed(files: Any, a: list[Any], wanted: str) -> list[str]:
    top, mask = to_text(a[0]), to_text(a[1]).lower() if len(a) > 1 else "*"
    deep = len(a) > 2 and to_text(a[2]).lower() == "alldirectories"
    found = (
        [path for path, _ in files.walk(top)][1:]
        if deep
        else [files.join(top, name) for name in files.listdir(top)]
    )
    return [
        path
        for path in found
        if fnmatchcase(files.base(path).lower(), "*" if mask == "*.*" else mask)
        and (wanted == "any" or files.is_directory(path) == (wanted == "directory"))
    ]


def _make_directory(files: Any, a: list[Any]) -> PsObject:
    files.mkdir(to_text(a[0]), parents=True)
    full = files.absolute(to_text(a[0]))
    return PsObject(
        "System.IO.DirectoryInfo",
        {"FullName": full, "Name": files.base(full), "Exists": True},
        files.base(full),
    )


_FILES: Final[dict[tuple[str, str], Callable[[Any, list[Any]], Any]]] = {
    ("io.file", "ReadAllText"): lambda files, a: files.text(to_text(a[0])),
    ("io.file", "ReadAllLines"): lambda files, a: _lines(files.text(to_text(a[0]))),
    ("io.file", "ReadLines"): lambda files, a: _lines(files.text(to_text(a[0]))),
    ("io.file", "ReadAllBytes"): lambda files, a: list(files.read(to_text(a[0]))),
    ("io.file", "WriteAllText"): lambda files, a: files.write(
        to_text(a[0]), to_text(a[1]).encode()
    ),
    ("io.file", "WriteAllLines"): lambda files, a: files.write(to_text(a[0]), _joined(a[1])),
    ("io.file", "WriteAllBytes"): lambda files, a: files.write(
        to_text(a[0]), bytes(int(to_number(b)) & 0xFF for b in to_items(a[1]))
    ),
    ("io.file", "AppendAllText"): lambda files, a: files.append(
        to_text(a[0]), to_text(a[1]).encode()
    ),
    ("io.file", "AppendAllLines"): lambda files, a: files.append(to_text(a[0]), _joined(a[1])),
    ("io.file", "Exists"): lambda files, a: (
        files.exists(to_text(a[0])) and not files.is_directory(to_text(a[0]))
    ),
    ("io.file", "Delete"): _delete,
    ("io.file", "Copy"): _copy,
    ("io.file", "Move"): lambda files, a: files.rename(to_text(a[0]), to_text(a[1])),
    ("io.file", "GetAttributes"): lambda files, a: (
        ", ".join(
            {"A": "Archive", "S": "System", "H": "Hidden", "R": "ReadOnly"}[c]
            for c in files.attributes(to_text(a[0]))
        )
        or "Normal"
    ),
    ("io.directory", "Exists"): lambda files, a: files.is_directory(to_text(a[0])),
    ("io.directory", "CreateDirectory"): _make_directory,
    ("io.directory", "Delete"): lambda files, a: files.remove(
        to_text(a[0]), recursive=len(a) > 1 and bool(a[1])
    ),
    ("io.directory", "Move"): lambda files, a: files.rename(to_text(a[0]), to_text(a[1])),
    ("io.directory", "GetFiles"): lambda files, a: _listed(files, a, "file"),
    ("io.directory", "GetDirectories"): lambda files, a: _listed(files, a, "directory"),
    ("io.directory", "GetFileSystemEntries"): lambda files, a: _listed(files, a, "any"),
    ("io.directory", "EnumerateFiles"): lambda files, a: _listed(files, a, "file"),
    ("io.directory", "GetCurrentDirectory"): lambda files, a: files.cwd,
    ("io.path", "GetFullPath"): lambda files, a: files.absolute(to_text(a[0])),
}
_PATHS: Final[dict[str, Callable[[list[str]], Any]]] = {
    "combine": lambda a: ntpath.join(*a),
    "getfilename": lambda a: ntpath.basename(a[0]),
    "getfilenamewithoutextension": lambda a: ntpath.splitext(ntpath.basename(a[0]))[0],
    "getdirectoryname": lambda a: ntpath.dirname(a[0]),
    "getextension": lambda a: ntpath.splitext(a[0])[1],
    "changeextension": lambda a: (
        ntpath.splitext(a[0])[0] + ("." if a[1] and not a[1].startswith(".") else "") + a[1]
    ),
    "getpathroot": lambda a: (
        ntpath.splitdrive(a[0])[0] + ("\\" if a[0][2:3] in ("\\", "/") else "")
    ),
    "ispathrooted": lambda a: a[0].startswith(("\\", "/")) or a[0][1:2] == ":",
    "hasextension": lambda a: bool(ntpath.splitext(a[0])[1]),
    "getinvalidfilenamechars": lambda a: list('"<>|:*?\\/'),
    "directoryseparatorchar": lambda a: "\\",
    "altdirectoryseparatorchar": lambda a: "/",
    "pathseparator": lambda a: ";",
}


def _temporary(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    folder = evaluator.env.get("TEMP", r"C:\Windows\Temp")
    path = rf"{folder}\tmp{evaluator.process.context.rng.getrandbits(16):04X}.tmp"
    evaluator.process.files.mkdir(folder, parents=True)
    evaluator.process.files.write(path, b"")
    return path


# ---- regular expressions ----


def match_object(found: Any) -> PsObject:
    if found is None:
        return PsObject(
            "System.Text.RegularExpressions.Match",
            {"Success": False, "Value": "", "Groups": []},
            "",
        )
    names = {number: name for name, number in found.re.groupindex.items()}
    groups = [
        PsObject(
            "System.Text.RegularExpressions.Group",
            {
                "Success": one is not None,
                "Name": names.get(number, str(number)),
                "Index": max(found.start(number), 0),
                "Length": len(one or ""),
                "Value": one or "",
            },
            one or "",
        )
        for number, one in enumerate((found[0], *found.groups()))
    ]
    return PsObject(
        "System.Text.RegularExpressions.Match",
        {
            "Groups": groups,
            "Success": True,
            "Name": "0",
            "Index": found.start(),
            "Length": len(found[0]),
            "Value": found[0],
        },
        found[0],
    )


def all_matches(subject: str, pattern: str, *, fold: bool = False) -> list[PsObject]:
    out: list[PsObject] = []
    position, compiled = 0, expression(pattern, fold=fold)
    while position <= len(subject) and len(out) < 10_000:
        found = compiled.search(subject[position:])
        if found is None:
            break
        made = match_object(found)
        made.properties["Index"] = position + found.start()
        out.append(made)
        position += max(found.end(), 1)
    return out


def _replace(a: list[str]) -> str:
    template = re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", a[2].replace("\\", "\\\\"))
    return str(expression(a[1], fold=False).sub(template, a[0]))


REGEX_TYPE: Final = "System.Text.RegularExpressions.Regex"
_REGEX: Final[dict[str, Callable[[list[str]], Any]]] = {
    "match": lambda a: match_object(expression(a[1], fold=False).search(a[0])),
    "matches": lambda a: all_matches(a[0], a[1]),
    "ismatch": lambda a: expression(a[1], fold=False).search(a[0]) is not None,
    "replace": _replace,
    "split": lambda a: expression(a[1], fold=False).split(a[0]),
    "escape": lambda a: re.escape(a[0]),
}

# ---- dates ----

_SHAPES: Final = (
    ("yyyy", "%Y"),
    ("MMM", "%b"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("hh", "%I"),
    ("mm", "%M"),
    ("ss", "%S"),
    ("tt", "%p"),
    ("yy", "%y"),
)


def _exact(evaluator: PowerShellSession, a: list[Any] | None) -> DateTime:
    given = [to_text(one) for one in a or ["", ""]]
    shape = re.sub(
        "|".join(name for name, _ in _SHAPES), lambda match: dict(_SHAPES)[match[0]], given[1]
    )
    try:
        return DateTime(float(calendar.timegm(time.strptime(given[0], shape))))
    except ValueError:
        raise method_failed(
            "ParseExact", len(given), "String was not recognized as a valid DateTime."
        ) from None


def parse_time_span(shown: str) -> PsObject:
    """`[-][days.]hours:minutes[:seconds[.fraction]]`, or a number of days."""
    found = _TIME_SPAN.fullmatch(shown.strip())
    if found is None:
        raise PowerShellError(
            f'Cannot convert value "{shown}" to type "System.TimeSpan". Error: "String was not '
            'recognized as a valid TimeSpan."',
            "InvalidArgument: (:) [], RuntimeException",
            "InvalidCastParseTargetInvocation",
        )
    if found["only"] is not None:
        seconds = float(found["only"]) * 86400
    else:
        seconds = float(found["days"] or 0) * 86400 + float(found["hours"]) * 3600
        seconds += float(found["minutes"]) * 60 + float(found["seconds"] or 0)
    return time_span(-seconds if found["sign"] else seconds)


_TIME_SPAN: Final = re.compile(
    r"(?P<sign>-)?(?:(?P<only>\d+)|(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d+)"
    r"(?::(?P<seconds>\d+(?:\.\d+)?))?)"
)


def _span_of(seconds: float) -> Static:
    return lambda evaluator, a: time_span(float(to_number((a or [0])[0])) * seconds)


def add_months(moment: float, months: int) -> DateTime:
    now = time.gmtime(moment)
    year, month = divmod(now.tm_year * 12 + now.tm_mon - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise PowerShellError(
            "The added or subtracted value results in an un-representable DateTime."
        )
    day = min(now.tm_mday, calendar.monthrange(year, month + 1)[1])
    seconds = calendar.timegm((year, month + 1, day, now.tm_hour, now.tm_min, now.tm_sec, 0, 0, 0))
    return DateTime(seconds + moment % 1)


# ---- the environment ----

_FOLDERS: Final = {
    "system": r"C:\Windows\system32",
    "windows": r"C:\Windows",
    "programfiles": r"C:\Program Files",
    "commonapplicationdata": r"C:\ProgramData",
}
_OWN_FOLDERS: Final = {
    "userprofile": "",
    "mydocuments": r"\Documents",
    "desktop": r"\Desktop",
    "applicationdata": r"\AppData\Roaming",
    "localapplicationdata": r"\AppData\Local",
}


def _folder(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    name = to_text((a or [""])[0]).lower()
    if name in _OWN_FOLDERS:
        return evaluator.process.context.windows.account.profile + _OWN_FOLDERS[name]
    return _FOLDERS.get(name, "")


def _random_name(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    return f"{evaluator.process.context.rng.getrandbits(55):011x}"[:8] + ".tmp"


def _domain(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    return evaluator.process.context.windows.account.domain


def _ticks(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    return int(evaluator.process.context.clock.monotonic() * 1000) & 0x7FFFFFFF


def _held(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    return evaluator.allocated + (8 << 20)


def _hex(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    return "-".join(f"{int(to_number(one)) & 0xFF:02X}" for one in to_items((a or [[]])[0]))


def _words(table: dict[str, Callable[[list[str]], Any]], name: str) -> Static:
    def run(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
        try:
            return table[name]([to_text(one) for one in a or [""]])
        except IndexError:
            raise PowerShellError(
                f'Cannot find an overload for "{name}" and the argument count: "{len(a or [])}".'
            ) from None

    return run


def _replace_matches(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
    """`[regex]::Replace(text, pattern, replacement)`; a script block gets each match."""
    words = a or []
    if len(words) < 3 or not isinstance(words[2], ScriptBlock):
        return _words(_REGEX, "replace")(evaluator, a)
    return _replace_by_script(evaluator, to_text(words[0]), to_text(words[1]), words[2])


async def _replace_by_script(
    evaluator: PowerShellSession, text: str, pattern: str, block: ScriptBlock
) -> str:
    out, end = "", 0
    for found in all_matches(text, pattern):
        start, value = int(found.properties["Index"]), to_text(found.get("Value"))
        made = await evaluator.invoke_with(block, [found])
        out = bounded(out + text[end:start] + "".join(to_text(one) for one in made))
        end = start + len(value)
    return bounded(out + text[end:])


STATICS: Final[dict[tuple[str, str], Static]] = {
    **{(kind, name.lower()): _on_file(name, work) for (kind, name), work in _FILES.items()},
    **{("io.path", name): _words(_PATHS, name) for name in _PATHS},
    **{("regex", name): _words(_REGEX, name) for name in _REGEX},
    **{("text.regularexpressions.regex", name): _words(_REGEX, name) for name in _REGEX},
    ("regex", "replace"): _replace_matches,
    ("text.regularexpressions.regex", "replace"): _replace_matches,
    ("io.path", "gettempfilename"): _temporary,
    ("io.path", "gettemppath"): lambda evaluator, a: (
        evaluator.env.get("TEMP", "C:\\Windows\\Temp") + "\\"
    ),
    ("io.path", "getrandomfilename"): _random_name,
    ("datetime", "parseexact"): _exact,
    ("timespan", "fromdays"): _span_of(86400),
    ("timespan", "fromhours"): _span_of(3600),
    ("timespan", "fromminutes"): _span_of(60),
    ("timespan", "fromseconds"): _span_of(1),
    ("timespan", "frommilliseconds"): _span_of(0.001),
    ("timespan", "parse"): lambda evaluator, a: parse_time_span(to_text((a or [""])[0])),
    ("timespan", "zero"): lambda evaluator, a: time_span(0),
    ("datetime", "daysinmonth"): lambda evaluator, a: calendar.monthrange(
        *(int(to_number(one)) for one in (a or [1, 1])[:2])
    )[1],
    ("datetime", "isleapyear"): lambda evaluator, a: calendar.isleap(int(to_number((a or [1])[0]))),
    ("datetime", "minvalue"): lambda evaluator, a: DateTime(-62135596800.0),
    ("environment", "is64bitprocess"): lambda evaluator, a: True,
    ("environment", "is64bitoperatingsystem"): lambda evaluator, a: True,
    ("environment", "currentdirectory"): lambda evaluator, a: evaluator.process.cwd,
    ("environment", "systemdirectory"): lambda evaluator, a: r"C:\Windows\system32",
    ("environment", "userdomainname"): _domain,
    ("environment", "tickcount"): _ticks,
    ("environment", "getfolderpath"): _folder,
    ("environment", "getlogicaldrives"): lambda evaluator, a: [
        drive + "\\" for drive in evaluator.process.files.drives()
    ],
    ("io.directory", "getlogicaldrives"): lambda evaluator, a: [
        drive + "\\" for drive in evaluator.process.files.drives()
    ],
    ("bitconverter", "tostring"): _hex,
    ("gc", "gettotalmemory"): _held,
}


def _of_regex(name: str) -> Callable[..., Any]:
    """A method of a Regex object, like the static one with the object's pattern."""

    def run(evaluator: PowerShellSession, target: PsObject, a: list[Any]) -> Any:
        return STATICS["regex", name](evaluator, [*a[:1], target.text, *a[1:]])

    return run


METHODS: Final = {(REGEX_TYPE, name): _of_regex(name) for name in _REGEX if name != "escape"}
