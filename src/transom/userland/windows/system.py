"""hostname, tasklist, taskkill, nltest, timeout and others, as Windows prints them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from transom.userland.api import ProcessEntry
from transom.userland.process import Command, Process
from transom.userland.windows import wmi
from transom.userland.windows.domain import credential_spec
from transom.userland.windows.priorities import sessions_of
from transom.userland.windows.wmi import image_name

SYSTEM32 = r"C:\Windows\System32"


def windows_hostname(process: Process) -> int:
    process.print_line(process.context.network.hostname)
    return 0


def _all_processes(process: Process) -> list[tuple[str, int, int, int]]:
    """Name, pid, memory, session."""
    session = sessions_of(process.context)
    rows = wmi.wmi_processes(process.context)
    if rows and rows[0].pid:  # Wine does not show them
        rows = [entry._replace(memory=max(entry.memory, 4 << 20)) for entry in rows]
        first = ProcessEntry(0, 0, "", ("System Idle Process",), 0.0, 8 << 10, system=True)
        kernel = ProcessEntry(4, 0, "", ("System",), 0.0, 140 << 10, system=True)
        rows = [first, kernel, *rows]
    return [
        (
            wmi.image_name(entry) if entry.pid > 4 else entry.argv[0],
            entry.pid,
            entry.memory,
            session(entry),
        )
        for entry in rows
    ]


def tasklist(process: Process) -> int:
    arguments = [argument.lower() for argument in process.argv[1:]]
    rows = _all_processes(process)
    for index, argument in enumerate(arguments[:-1]):
        if argument == "/fi":
            rows = [row for row in rows if _meets(row, arguments[index + 1])]
    if "/fi" in arguments and not rows:
        process.print_line("INFO: No tasks are running which match the specified criteria.")
        return 0
    if "/m" in arguments:
        _with_modules(process, rows, arguments)
        return 0
    if "/svc" in arguments:
        _with_services(process, rows, "/nh" in arguments)
        return 0
    if "list" in arguments or "/v" in arguments:
        _in_detail(process, rows, arguments)
        return 0
    if "csv" in arguments:
        if "/nh" not in arguments:
            process.print_line('"Image Name","PID","Session Name","Session#","Mem Usage"')
        for name, pid, memory, session in rows:
            process.print_line(f'"{name}","{pid}","Services","{session}","{memory >> 10:,} K"')
        return 0
    if "/nh" not in arguments:
        process.print_line()
        process.print_line(
            "Image Name                     PID Session Name        Session#    Mem Usage"
        )
        process.print_line(
            "========================= ======== ================ =========== ============"
        )
    for name, pid, memory, session in rows:
        process.print_line(
            f"{name[:25]:<25} {pid:>8} {'Services':<16} {session:>11} {f'{memory >> 10:,}':>10} K",
        )
    return 0


_COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
}


def _meets(row: tuple[str, int, int, int], condition: str) -> bool:
    """`imagename eq cmd*`, `pid gt 1000`, `memusage gt 4096`, `session eq 0`."""
    field, operator, value = ([*condition.split(None, 2), "", "", ""])[:3]
    compare = _COMPARISONS.get(operator)
    if compare is None:
        return True
    if field == "imagename":
        same = fnmatchcase(row[0].lower(), value.strip('"'))
        return same == (operator == "eq")
    numbers = {"pid": row[1], "memusage": row[2] >> 10, "session": row[3]}
    if field not in numbers or not value.isdigit():
        return True
    return bool(compare(numbers[field], int(value)))


def _in_detail(
    process: Process, rows: list[tuple[str, int, int, int]], arguments: list[str]
) -> None:
    """/fo list and /v: with the account, the CPU time and the window of each process."""
    context = process.context
    entries = {entry.pid: entry for entry in wmi.wmi_processes(context)}
    table = []
    for name, pid, memory, session in rows:
        entry = entries.get(pid)
        fields = [
            ("Image Name", name),
            ("PID", str(pid)),
            ("Session Name", "Services"),
            ("Session#", str(session)),
            ("Mem Usage", f"{memory >> 10:,} K"),
        ]
        if "/v" in arguments:
            account = context.windows.system.accounts.identity(entry.user) if entry else None
            cpu = int(entry.cpu) if entry else 0
            fields += [
                ("Status", "Unknown"),
                ("User Name", rf"{account.domain}\{account.name}" if account else "N/A"),
                ("CPU Time", f"{cpu // 3600}:{cpu // 60 % 60:02d}:{cpu % 60:02d}"),
                ("Window Title", "N/A"),
            ]
        table.append(fields)
    if "list" in arguments:
        for fields in table:
            process.print_line()
            for name, value in fields:
                process.print_line(f"{name + ':':<13} {value}")
        return
    heading = [name for name, _ in table[0]] if table else []
    lines = [[value for _, value in fields] for fields in table]
    if "csv" in arguments:
        for line in lines if "/nh" in arguments else [heading, *lines]:
            process.print_line(",".join(f'"{cell}"' for cell in line))
        return
    widths = (25, 8, 16, 11, 12, 15, 50, 12, 72)
    right = (False, True, False, True, True, False, False, True, False)
    rule = ["=" * width for width in widths]
    if "/nh" not in arguments:
        process.print_line()
    for line in lines if "/nh" in arguments else [heading, rule, *lines]:
        cells = [
            cell[:width].rjust(width) if end else cell[:width].ljust(width)
            for cell, width, end in zip(line, widths, right, strict=False)
        ]
        process.print_line(" ".join(cells).rstrip())


_MODULES = ("ntdll.dll", "KERNEL32.DLL", "KERNELBASE.dll")  # that every program loads


def _with_modules(
    process: Process, rows: list[tuple[str, int, int, int]], arguments: list[str]
) -> None:
    """`/m [pattern]`"""
    after = arguments[arguments.index("/m") + 1 :]
    pattern = after[0] if after and not after[0].startswith("/") else "*"
    found = [name for name in _MODULES if fnmatchcase(name.lower(), pattern)]
    process.print_line("\r\nImage Name                     PID Modules")
    process.print_line("========================= ======== " + "=" * 44)
    for name, pid, *_ in rows:
        shown = ", ".join((name, *found)) if pid > 4 and pattern == "*" else ", ".join(found)
        if pid <= 4:
            shown = "N/A" if pattern == "*" else ""
        if shown:
            process.print_line(f"{name[:25]:<25} {pid:>8} {shown}")


def _with_services(process: Process, rows: list[tuple[str, int, int, int]], bare: bool) -> None:
    services: dict[int, list[str]] = {}
    for service in process.context.windows.system.services.all():
        if service.pid:
            services.setdefault(service.pid, []).append(service.name)
    if not bare:
        process.print_line("\r\nImage Name                     PID Services")
        process.print_line(
            "========================= ======== ============================================",
        )
    for name, pid, *_ in rows:
        process.print_line(f"{name[:25]:<25} {pid:>8} {', '.join(services.get(pid, [])) or 'N/A'}")


def _tree_of(entries: Sequence[ProcessEntry], first: ProcessEntry) -> list[ProcessEntry]:
    """A process after those that it has started."""
    below = [one for one in entries if one.parent == first.pid and one.pid != first.pid]
    return [*(each for one in below for each in _tree_of(entries, one)), first]


def _may_end(process: Process, entry: ProcessEntry) -> bool:
    """System processes cannot be ended, and those of other accounts only by administrators."""
    account = process.context.windows.account
    if entry.system or account.administrator:
        return not entry.system
    owner = process.context.windows.system.accounts.identity(entry.user)
    return owner is None or owner.sid == account.sid


def _chosen(process: Process, name: str, value: str) -> list[ProcessEntry]:
    """The processes that an option of taskkill names."""
    entries = list(process.context.processes.list())
    if name == "/pid":
        return [entry for entry in entries if str(entry.pid) == value]
    if name == "/im":
        return [one for one in entries if fnmatchcase(image_name(one).lower(), value.lower())]
    session = sessions_of(process.context)
    return [
        entry
        for entry in entries
        if _meets(
            (image_name(entry), entry.pid, entry.memory, session(entry)), value.strip('"').lower()
        )
    ]


def taskkill(process: Process) -> int:
    arguments = process.argv[1:]
    lower = [argument.lower() for argument in arguments]
    asked = [
        (name, value)
        for name, value in zip(lower, arguments[1:], strict=False)
        if name in ("/pid", "/im", "/fi")
    ]
    if not asked:
        process.complain(
            "ERROR: Invalid syntax. Neither /FI nor /PID nor /IM were specified.\r\n"
            'Type "TASKKILL /?" for usage.'
        )
        return 1
    code, entries = 0, list(process.context.processes.list())
    for name, value in asked:
        found = _chosen(process, name, value)
        if not found:
            process.complain(f'ERROR: The process "{value}" not found.')
            code = 128
        for one in found:
            for entry in _tree_of(entries, one) if "/t" in lower else [one]:
                if not _end_task(process, entry, by_pid=name == "/pid", force="/f" in lower):
                    code = 1
    return code


def _end_task(process: Process, entry: ProcessEntry, *, by_pid: bool, force: bool) -> bool:
    shown = "" if by_pid else f' "{image_name(entry)}"'
    if not _may_end(process, entry):
        process.complain(
            f"ERROR: The process{shown} with PID {entry.pid} could not be terminated.\r\n"
            "Reason: Access is denied."
        )
        return False
    process.context.processes.signal(entry.pid, "SIGKILL" if force else "CTRL_CLOSE_EVENT")
    done = "has been terminated." if force else "sent termination signal."
    process.print_line(f"SUCCESS: The process{shown} with PID {entry.pid} {done}")
    return True


def nltest(process: Process) -> int:
    arguments = [argument.lower() for argument in process.argv[1:]]
    joined = credential_spec(process.context)
    query = next((argument for argument in arguments if argument.startswith("/")), "")
    domain = joined.get("DnsName", "")
    success = "The command completed successfully"
    if query == "/parentdomain":
        if not domain:
            process.complain(
                "Getting parent domain failed: Status = 1722 0x6ba RPC_S_SERVER_UNAVAILABLE"
            )
            return 1
        process.print_line(f"{domain}. (1)")
        process.print_line(success)
        return 0
    if query == "/query":
        if not domain:
            process.complain(
                "I_NetLogonControl failed: Status = 1722 0x6ba RPC_S_SERVER_UNAVAILABLE"
            )
            return 1
        process.print_line("Flags: 0")
        process.print_line("Connection Status = 0 0x0 NERR_Success")
        process.print_line(success)
        return 0
    if query.startswith(("/sc_verify", "/sc_query", "/dsgetdc")):
        if not domain or query.partition(":")[2] not in (
            "",
            domain.lower(),
            joined.get("NetBiosName", "").lower(),
        ):
            process.complain("I_NetLogonControl failed: Status = 1355 0x54b ERROR_NO_SUCH_DOMAIN")
            return 1
        process.print_line(f"Flags: b0 HAS_IP  HAS_TIMESERV\r\nTrusted DC Name \\\\dc1.{domain}")
        process.print_line("Trusted DC Connection Status Status = 0 0x0 NERR_Success")
        process.print_line(success)
        return 0
    process.complain("Usage: nltest [/OPTIONS]")
    return 1


async def windows_timeout(process: Process) -> int:
    arguments = [argument for argument in process.argv[1:] if argument.lower() not in ("/t", "-t")]
    quiet = any(argument.lower() == "/nobreak" for argument in arguments)
    numbers = [argument for argument in arguments if argument.lstrip("-").isdigit()]
    if not numbers:
        process.complain(
            "ERROR: Invalid syntax. Default option is not allowed more than '1' "
            'time(s).\r\nType "TIMEOUT /?" for usage.'
        )
        return 1
    seconds = int(numbers[0])
    if seconds < -1 or seconds > 99999:
        process.complain(
            "ERROR: Invalid value for timeout (/T) specified. Valid range is -1 to 99999 seconds."
        )
        return 1
    what = ", press CTRL+C to quit ..." if quiet else ", press a key to continue ..."
    process.write(f"\r\nWaiting for {max(seconds, 0):2d} seconds{what}")
    await process.sleep(10.0**9 if seconds < 0 else float(seconds))
    process.print_line()
    return 0


def windows_where(process: Process) -> int:
    """Files in the current directory and in the directories of PATH; otherwise one of Windows' own
    programs.
    """
    if len(process.argv) > 2 and process.argv[1].lower() == "/r":
        return _where_below(process, process.argv[2], process.argv[3:])
    code = 0
    path = next((value for key, value in process.env.items() if key.lower() == "path"), "")
    extensions = ["", ".com", ".exe", ".bat", ".cmd"]
    for pattern in (word for word in process.argv[1:] if not word.startswith("/")):
        found: list[str] = []
        for folder in (process.cwd, *path.split(";")):
            names = _names(process, folder.rstrip("\\")) if folder else []
            for name in names:
                if any(
                    fnmatchcase(name.lower(), pattern.lower() + extension)
                    for extension in extensions
                ):
                    found.append(process.files.join(folder.rstrip("\\"), name))
        if not found:
            try:
                process.find_command(pattern)
                base = pattern if "." in pattern else pattern + ".exe"
                folder = (
                    r"C:\Windows\System32\WindowsPowerShell\v1.0"
                    if base.lower() == "powershell.exe"
                    else SYSTEM32
                )
                found = [rf"{folder}\{base}"]
            except OSError:
                process.complain("INFO: Could not find files for the given pattern(s).")
                code = 1
        for one in dict.fromkeys(found):
            process.print_line(one)
    return code


def _where_below(process: Process, top: str, patterns: Sequence[str]) -> int:
    """/R: files below a directory."""
    files = process.files
    if not files.is_directory(top):
        process.complain("ERROR: The system cannot find the file specified.")
        return 1
    found = [
        files.absolute(path)
        for path, state in files.walk(top)
        if state.kind == "file"
        and any(fnmatchcase(files.base(path).lower(), one.lower()) for one in patterns)
    ]
    for path in found:
        process.print_line(path)
    if not found:
        process.complain("INFO: Could not find files for the given pattern(s).")
    return 0 if found else 1


def _names(process: Process, folder: str) -> list[str]:
    try:
        return process.files.listdir(folder)
    except OSError:
        return []


COMMANDS: dict[str, Command] = {
    "hostname": windows_hostname,
    "nltest": nltest,
    "taskkill": taskkill,
    "tasklist": tasklist,
    "timeout": windows_timeout,
    "where": windows_where,
}
