"""hostname, nltest, timeout and others, as Windows prints them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from transom.userland.process import Command, Process
from transom.userland.windows import texts
from transom.userland.windows.clock import wall_clock_time
from transom.userland.windows.domain import credential_spec

SYSTEM32 = r"C:\Windows\System32"


def windows_hostname(process: Process) -> int:
    process.print_line(process.context.network.hostname)
    return 0


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
    if query.startswith(("/sc_verify", "/sc_query", "/sc_reset", "/dsgetdc")):
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
    words = process.argv[1:]
    switches = {word[1:].lower() for word in words if word.startswith("/")}
    if "r" in switches:
        at = next(index for index, word in enumerate(words) if word.lower() == "/r")
        patterns = [word for word in words[:at] + words[at + 2 :] if not word.startswith("/")]
        return _where_below(process, (words[at + 1 :] or [""])[0], patterns, switches)
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
                code = 1
                if "q" not in switches:
                    process.complain("INFO: Could not find files for the given pattern(s).")
        _show_found(process, list(dict.fromkeys(found)), switches)
    return code


def _show_found(process: Process, paths: Sequence[str], switches: set[str]) -> None:
    """/Q shows nothing, /F quotes, /T adds size and time."""
    for path in paths if "q" not in switches else ():
        shown = f'"{path}"' if "f" in switches else path
        if "t" in switches:
            try:
                state = process.files.stat(path)
                size, when = state.size, wall_clock_time(process.context, state.mtime)
            except OSError:  # a program of Windows that is not a file here
                size, when = 0, wall_clock_time(process.context, 0.0)
            shown = f"{size:>10}   {texts.date_time(when)}  {shown}"
        process.print_line(shown)


def _where_below(process: Process, top: str, patterns: Sequence[str], switches: set[str]) -> int:
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
    _show_found(process, found, switches)
    if not found and "q" not in switches:
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
    "timeout": windows_timeout,
    "where": windows_where,
}
