"""hostname, whoami, tasklist, nltest, reg and their like, as Windows prints them."""

from __future__ import annotations

import json
import ntpath
import time

from transom.hosts.windows.host import version_keys
from transom.hosts.windows.registry import Registry, Value
from transom.runtime.sim.program_api import ProcessEntry, real
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.process import Process
from transom.runtime.sim.programs.win import texts
from transom.windows import builds


def _say(process: Process, text: str = "") -> None:
    process.write(text + "\r\n")


def hostname(process: Process) -> int:
    _say(process, process.context.hostname)
    return 0


def whoami(process: Process) -> int:
    context = process.context
    arguments = [argument.lower() for argument in process.argv[1:]]
    name = context.user
    if "\\" not in name:
        system = {"system": "nt authority", "network service": "nt authority", "local service": "nt authority"}
        domain = system.get(name.lower(), "user manager" if name.lower().startswith("container") else context.hostname)
        name = f"{domain}\\{name}"
    name = name.lower()
    if "/user" in arguments:
        known = {"containeradministrator": "S-1-5-93-2-1", "containeruser": "S-1-5-93-2-2",
                 "administrator": "S-1-5-21-3623811015-3361044348-30300820-500"}  # fmt: skip
        sid = known.get(name.rpartition("\\")[2], "S-1-5-18")
        _say(process, "\r\nUSER INFORMATION\r\n----------------\r\n")
        width = len(name)
        _say(process, f"{'User Name':<{width}} SID\r\n{'=' * width} {'=' * len(sid)}\r\n{name} {sid}")
        return 0
    _say(process, name)
    return 0


def _image_name(entry: ProcessEntry) -> str:
    name = ntpath.basename(entry.argv[0].strip('"').replace("/", "\\"))
    return name if "." in name else name + ".exe"


def _all_processes(process: Process) -> list[tuple[str, int, int]]:
    """With the system's own that every Windows container has. Name, pid, memory."""
    rows = [(_image_name(entry), entry.pid, max(entry.memory, 4 << 20)) for entry in process.context.processes.list()]
    if process.context.machine is not None or real(process.context) is not None:
        return [("System Idle Process", 0, 8 << 10), ("System", 4, 140 << 10), *rows]
    fixed = [("System Idle Process", 0, 8 << 10), ("System", 4, 140 << 10), ("smss.exe", 872, 1200 << 10), ("csrss.exe",
    908, 4500 << 10),
             ("wininit.exe", 944, 5200 << 10), ("services.exe", 980, 6400 << 10), ("lsass.exe", 996, 11 << 20),
             ("svchost.exe", 1012, 12 << 20), ("CExecSvc.exe", 1020, 5 << 20)]  # fmt: skip
    return fixed + rows


def tasklist(process: Process) -> int:
    arguments = [argument.lower() for argument in process.argv[1:]]
    rows = _all_processes(process)
    wanted = ""
    for index, argument in enumerate(arguments):
        if argument == "/fi" and index + 1 < len(arguments):
            wanted = arguments[index + 1]
    if wanted:
        field, _, value = wanted.partition(" eq ")
        column = {"imagename": 0, "pid": 1}.get(field.strip())
        rows = [row for row in rows if column is None or str(row[column]).lower() == value]
        if not rows:
            _say(process, "INFO: No tasks are running which match the specified criteria.")
            return 0
    if "csv" in arguments:
        if "/nh" not in arguments:
            _say(process, '"Image Name","PID","Session Name","Session#","Mem Usage"')
        for name, pid, memory in rows:
            _say(process, f'"{name}","{pid}","Services","2","{memory >> 10:,} K"')
        return 0
    if "/nh" not in arguments:
        _say(process)
        _say(process, "Image Name                     PID Session Name        Session#    Mem Usage")
        _say(process, "========================= ======== ================ =========== ============")
    for name, pid, memory in rows:
        _say(process, f"{name[:25]:<25} {pid:>8} {'Services':<16} {2:>11} {f'{memory >> 10:,}':>10} K")
    return 0


def taskkill(process: Process) -> int:
    arguments = process.argv[1:]
    force = any(argument.lower() == "/f" for argument in arguments)
    code = 0
    for index, argument in enumerate(arguments[:-1]):
        value = arguments[index + 1]
        found: list[tuple[str, int]] = []
        if argument.lower() == "/pid":
            found = [(_image_name(e), e.pid) for e in process.context.processes.list() if str(e.pid) == value]
            missing = f'ERROR: The process "{value}" not found.'
        elif argument.lower() == "/im":
            found = [
                (_image_name(e), e.pid) for e in process.context.processes.list() if _image_name(e).lower() == value.lower()
            ]
            missing = f'ERROR: The process "{value}" not found.'
        else:
            continue
        for name, pid in found:
            process.context.processes.signal(pid, "SIGKILL" if force else "CTRL_CLOSE_EVENT")
            done = "has been terminated." if force else "sent termination signal."
            said = (
                f'SUCCESS: The process "{name}" with PID {pid} {done}'
                if argument.lower() == "/im"
                else f"SUCCESS: The process with PID {pid} {done}"
            )
            _say(process, said)
        if not found:
            process.complain(missing)
            code = 128
    return code


def _credential_spec(process: Process) -> dict[str, str]:
    """The domain join of the container's credential spec; empty without one."""
    try:
        spec = json.loads(process.context.credential_spec or "{}")
    except ValueError:
        return {}
    joined = spec.get("DomainJoinConfig") if isinstance(spec, dict) else None
    return {key: str(value) for key, value in joined.items()} if isinstance(joined, dict) else {}


def nltest(process: Process) -> int:
    arguments = [argument.lower() for argument in process.argv[1:]]
    joined = _credential_spec(process)
    query = next((argument for argument in arguments if argument.startswith("/")), "")
    domain = joined.get("DnsName", "")
    success = "The command completed successfully"
    if query == "/parentdomain":
        if not domain:
            process.complain("Getting parent domain failed: Status = 1722 0x6ba RPC_S_SERVER_UNAVAILABLE")
            return 1
        _say(process, f"{domain}. (1)")
        _say(process, success)
        return 0
    if query == "/query":
        if not domain:
            process.complain("I_NetLogonControl failed: Status = 1722 0x6ba RPC_S_SERVER_UNAVAILABLE")
            return 1
        _say(process, "Flags: 0")
        _say(process, "Connection Status = 0 0x0 NERR_Success")
        _say(process, success)
        return 0
    if query.startswith(("/sc_verify", "/sc_query", "/dsgetdc")):
        if not domain or query.partition(":")[2] not in ("", domain.lower(), joined.get("NetBiosName", "").lower()):
            process.complain("I_NetLogonControl failed: Status = 1355 0x54b ERROR_NO_SUCH_DOMAIN")
            return 1
        _say(process, f"Flags: b0 HAS_IP  HAS_TIMESERV\r\nTrusted DC Name \\\\dc1.{domain}")
        _say(process, "Trusted DC Connection Status Status = 0 0x0 NERR_Success")
        _say(process, success)
        return 0
    process.complain("Usage: nltest [/OPTIONS]")
    return 1


def systeminfo(process: Process) -> int:
    context = process.context
    build = builds.by_name(context.build)
    product = build.product if build is not None else "Windows Server Datacenter"
    number = context.build.split(".")[2]
    rows = (
        ("Host Name", context.hostname.upper()),
        ("OS Name", f"Microsoft {product}"),
        ("OS Version", f"10.0.{number} N/A Build {number}"),
        ("OS Manufacturer", "Microsoft Corporation"),
        ("OS Configuration", "Standalone Server"),
        ("OS Build Type", "Multiprocessor Free"),
        ("System Type", "x64-based PC"),
        ("Processor(s)", f"{context.cpus} Processor(s) Installed."),
        ("Windows Directory", "C:\\Windows"),
        ("System Directory", "C:\\Windows\\system32"),
        ("Time Zone", "(UTC) Coordinated Universal Time"),
        ("Total Physical Memory", f"{context.memory_limit >> 20:,} MB"),
        ("Domain", _credential_spec(process).get("DnsName", "WORKGROUP")),
    )
    _say(process)
    for name, value in rows:
        _say(process, f"{name + ':':<26} {value}")
    return 0


def registry_of(process: Process) -> Registry:
    """What the container's registry says by itself: its version. A machine has one of its own."""
    if process.context.machine is not None:
        return process.context.machine.host.registry
    build = builds.by_name(process.context.build) or builds.DEFAULT
    registry = Registry(version_keys(build))
    parameters = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
    registry.set(parameters, "Hostname", process.context.hostname)
    registry.set(parameters, "SearchList", ",".join(process.context.dns.searches))
    return registry


def _shown(value: Value) -> tuple[str, str]:
    if isinstance(value, int):
        return "REG_DWORD", f"0x{value:x}"
    if isinstance(value, bytes):
        return "REG_BINARY", value.hex().upper()
    if isinstance(value, tuple):
        return "REG_MULTI_SZ", "\\0".join(value)
    return "REG_SZ", value


def _full_key(key: str) -> str:
    roots = {"HKLM": "HKEY_LOCAL_MACHINE", "HKCU": "HKEY_CURRENT_USER", "HKU": "HKEY_USERS", "HKCR": "HKEY_CLASSES_ROOT"}
    root, _, rest = key.partition("\\")
    return f"{roots.get(root.upper(), root)}\\{rest}" if rest else roots.get(root.upper(), root)


def reg(process: Process) -> int:
    arguments = process.argv[1:]
    if len(arguments) < 2 or arguments[0].lower() != "query":
        if arguments and arguments[0].lower() in ("add", "delete"):
            _say(process, "The operation completed successfully.")
            return 0
        process.complain('ERROR: Invalid syntax.\r\nType "REG /?" for usage.')
        return 1
    key = arguments[1].rstrip("\\")
    registry = registry_of(process)
    wanted = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a.lower() == "/v"), None)
    if not registry.exists(key):
        process.complain("ERROR: The system was unable to find the specified registry key or value.")
        return 1
    values = registry.values(key) or {}
    rows = [(name, value) for name, value in values.items() if wanted is None or name.lower() == wanted.lower()]
    if wanted is not None and not rows:
        process.complain("ERROR: The system was unable to find the specified registry key or value.")
        return 1
    _say(process)
    _say(process, _full_key(key))
    for name, value in rows:
        kind, shown = _shown(value)
        _say(process, f"    {name or '(Default)'}    {kind}    {shown}")
    _say(process)
    if wanted is None:
        for name in registry.keys(key):
            _say(process, f"{_full_key(key)}\\{name}")
    return 0


async def timeout(process: Process) -> int:
    arguments = [argument for argument in process.argv[1:] if argument.lower() not in ("/t", "-t")]
    quiet = any(argument.lower() == "/nobreak" for argument in arguments)
    numbers = [argument for argument in arguments if argument.lstrip("-").isdigit()]
    if not numbers:
        process.complain(
            "ERROR: Invalid syntax. Default option is not allowed more than '1' time(s).\r\nType \"TIMEOUT /?\" for usage."
        )
        return 1
    seconds = int(numbers[0])
    if seconds < -1 or seconds > 99999:
        process.complain("ERROR: Invalid value for timeout (/T) specified. Valid range is -1 to 99999 seconds.")
        return 1
    what = ", press CTRL+C to quit ..." if quiet else ", press a key to continue ..."
    process.write(f"\r\nWaiting for {max(seconds, 0):2d} seconds{what}")
    await process.sleep(10.0**9 if seconds < 0 else float(seconds))
    _say(process)
    return 0


def where(process: Process) -> int:
    from transom.runtime.sim.programs.win import launch

    code = 0
    for name in process.argv[1:]:
        if name.startswith("/"):
            continue
        try:
            launch.find(process.context, name, process.cwd)
        except OSError:
            process.complain("INFO: Could not find files for the given pattern(s).")
            code = 1
            continue
        base = name if "." in name else name + ".exe"
        folder = r"C:\Windows\System32\WindowsPowerShell\v1.0" if base.lower() == "powershell.exe" else r"C:\Windows\System32"
        _say(process, f"{folder}\\{base}")
    return code


def net(process: Process) -> int:
    arguments = [argument.lower() for argument in process.argv[1:]]
    what = arguments[0] if arguments else ""
    if what == "user":
        names = ["Administrator", "DefaultAccount", "Guest", "WDAGUtilityAccount"]
        if len(arguments) > 1:
            if arguments[1] not in (name.lower() for name in names):
                process.complain(
                    "The user name could not be found.\r\n\r\nMore help is available by typing NET HELPMSG 2221.\r\n"
                )
                return 2
            _say(process, f"User name                    {process.argv[2]}")
        else:
            _say(process, "\r\nUser accounts for \\\\\r\n" + "-" * 79)
            _say(process, "".join(f"{name:<25}" for name in names))
    elif what in ("start", "stop") and len(arguments) > 1:
        _say(process, f"The {process.argv[2]} service was {'started' if what == 'start' else 'stopped'} successfully.\r\n")
        return 0
    elif what == "start":
        _say(
            process,
            "These Windows services are started:\r\n\r\n   Container Execution Agent\r\n   DNS "
            "Client\r\n   RPC Endpoint Mapper\r\n",
        )
    elif what == "localgroup":
        _say(process, "\r\nAliases for \\\\\r\n" + "-" * 79 + "\r\n*Administrators\r\n*Users")
    else:
        _say(process, "The syntax of this command is:\r\n\r\nNET\r\n    [ LOCALGROUP | START | STOP | USE | USER ]")
        return 1
    _say(process, "The command completed successfully.\r\n")
    return 0


def sc(process: Process) -> int:
    arguments = process.argv[1:]
    if not arguments or arguments[0].lower() != "query":
        return 0
    name = arguments[1] if len(arguments) > 1 else "cexecsvc"
    known = {"cexecsvc", "dnscache", "rpceptmapper", "w3svc" if process.context.image.program == "iis" else "cexecsvc"}
    if name.lower() not in known:
        _say(
            process,
            "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:\r\n\r\nThe specified service does not "
            "exist as an installed service.\r\n",
        )
        return 1060
    _say(process, f"\r\nSERVICE_NAME: {name}\r\n        TYPE               : 10  WIN32_OWN_PROCESS")
    _say(process, "        STATE              : 4  RUNNING\r\n        WIN32_EXIT_CODE    : 0  (0x0)")
    return 0


def attrib(process: Process) -> int:
    for path in process.argv[1:]:
        if path[:1] in "+-/":
            continue
        try:
            state = process.files.stat(path)
        except OSError:
            process.complain(f"File not found - {path}")
            return 0
        mark = "A  " if state.kind == "file" else "   "
        only = "R" if not state.mode & 0o200 else " "
        _say(process, f"{mark}  {only}               {process.files.absolute(path)}")
    return 0


def icacls(process: Process) -> int:
    paths = [argument for argument in process.argv[1:] if not argument.startswith("/")]
    if not paths or not process.files.exists(paths[0]):
        process.complain(f"{paths[0] if paths else ''}: {texts.NOT_FOUND_FILE}")
        return 2
    if len(process.argv) > 2:
        _say(process, f"processed file: {paths[0]}")
    else:
        _say(
            process,
            f"{paths[0]} NT AUTHORITY\\SYSTEM:(I)(F)\r\n{' ' * len(paths[0])} "
            f"BUILTIN\\Administrators:(I)(F)\r\n{' ' * len(paths[0])} BUILTIN\\Users:(I)(RX)\r\n",
        )
    _say(process, "Successfully processed 1 files; Failed processing 0 files")
    return 0


def tzutil(process: Process) -> int:
    process.write("UTC")
    return 0


def w32tm(process: Process) -> int:
    _say(process, time.strftime("%H:%M:%S", time.gmtime(process.context.clock.time())))
    return 0


def wmic(process: Process) -> int:
    build = process.context.build
    _say(
        process,
        f"BuildNumber  Caption                                    Version\r\n{build.split('.')[2]:<12} "
        f"Microsoft Windows Server Datacenter       {build.rpartition('.')[0]}",
    )
    return 0


COMMANDS: dict[str, Command] = {
    "attrib": attrib,
    "hostname": hostname,
    "icacls": icacls,
    "net": net,
    "nltest": nltest,
    "reg": reg,
    "sc": sc,
    "systeminfo": systeminfo,
    "taskkill": taskkill,
    "tasklist": tasklist,
    "timeout": timeout,
    "tzutil": tzutil,
    "w32tm": w32tm,
    "where": where,
    "whoami": whoami,
    "wmic": wmic,
}
