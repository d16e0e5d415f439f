"""sc and net: the services of a container or a machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from transom.machines.windows import services
from transom.machines.windows.services import NUMBERS, ServiceError, ServiceManager, WindowsService
from transom.userland.process import Command, Process
from transom.userland.windows import accounts, net_commands

_USAGE_ERROR: Final = 1639
_TYPES: Final = ("service", "driver", "all", "own", "share", "interact", "userservice")
_FILTERS: Final = ("type=", "state=", "bufsize=", "ri=", "group=")
_CHANGES: Final = frozenset(
    (
        *("create", "delete", "config", "description", "failure"),
        *("start", "stop", "pause", "continue", "control"),
    )
)
_STARTS: Final[dict[str, services.Start]] = {
    "auto": "auto",
    "demand": "demand",
    "disabled": "disabled",
    "delayed-auto": "auto",
}
_START_NAMES: Final = {
    "auto": "2   AUTO_START",
    "demand": "3   DEMAND_START",
    "disabled": "4   DISABLED",
}
_OPTIONS: Final = (
    "binpath=",
    "displayname=",
    "start=",
    "depend=",
    "obj=",
    "type=",
    "error=",
    "password=",
    "group=",
    "tag=",
)
_USAGE: Final = {
    "create": (
        "Creates a service entry in the registry and Service Database.",
        "[binPath= ] <option1> <option2>...",
    ),
    "config": (
        "Modifies a service entry in the registry and Service Database.",
        "<option1> <option2>...",
    ),
    "failure": ("Changes the actions upon failure.", "<option1> <option2>..."),
    "control": (
        "Sends a CONTROL code to a service.",
        "<value>\r\n        paramchange|netbindadd|netbindremove|netbindenable|netbinddisable|"
        "<user defined control (128 to 255)>",
    ),
}
_VERBS: Final = (
    "query, queryex, start, stop, create, delete, config, qc, description, qdescription, failure,\r\n"
    "        qfailure, enumdepend, getdisplayname, getkeyname, interrogate, control, pause,\r\n"
    "        continue, sdshow"
)
_HELP: Final = (
    "ERROR:  Unrecognized command\r\n\r\nDESCRIPTION:\r\n        SC is a command line "
    "program used for\r\n"
    "        communicating with the Service Control Manager and services.\r\nUSAGE:\r\n"
    f"        sc <server> [command] [service name] <option1> <option2>...\r\n\r\n        {_VERBS}"
)
_NETWORK_CONTROLS: Final = ("netbindadd", "netbindremove", "netbindenable", "netbinddisable")
_USER_CONTROLS: Final = range(128, 256)
_TAKES: Final = "STOPPABLE, NOT_PAUSABLE, ACCEPTS_SHUTDOWN"
_NEW_SERVICE: Final = (
    "D:(A;;CCLCSWRPWPDTLOCRRC;;;SY)(A;;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;BA)(A;;CCLCSWLOCRRC;;;IU)"
    "(A;;CCLCSWLOCRRC;;;SU)"
)
_TAKES_NOTHING: Final = "NOT_STOPPABLE, NOT_PAUSABLE, IGNORES_SHUTDOWN"

Options = Mapping[str, str]


def manager(process: Process) -> ServiceManager:
    return process.context.windows.system.services


class _Misused(Exception):
    """Invalid arguments; the usage of the verb is printed."""


# ---- sc ----


async def sc(process: Process) -> int:
    words = [word for word in process.argv[1:] if not word.startswith("\\\\")]
    verb = words[0].lower() if words else ""
    run = _SC.get(verb)
    if run is None:
        process.print_line(_HELP)
        return _USAGE_ERROR
    function, opening = run
    try:
        if verb in ("query", "queryex") and (not words[1:] or words[1].lower() in _FILTERS):
            filters = _options(words[1:], tuple(_FILTERS))
            kind = filters.get("type", "service").lower()
            if kind not in _TYPES:
                raise _Misused
            if kind != "driver":  # drivers are not simulated: there are none
                which = filters.get("state", "active").lower()
                _all(process, which, extended=verb == "queryex")
            return 0
        if not words[1:]:
            raise _Misused
        if verb in _CHANGES and not process.context.windows.account.administrator:
            raise ServiceError(services.DENIED)
        result = function(process, words[1], words[2:])
        if not isinstance(result, str):
            result = await result
    except _Misused:
        what, rest = _USAGE.get(verb, ("Uses the Service Control Manager.", ""))
        process.print_line(
            (
                f"DESCRIPTION:\r\n        {what}\r\nUSAGE:\r\n        sc <server> {verb} "
                f"[service name] {rest}\r\n"
            ),
        )
        return _USAGE_ERROR
    except ServiceError as error:
        call = opening[0] if error.code == services.MISSING else opening[1]
        process.print_line(f"[SC] {call} FAILED {error.code}:\r\n\r\n{error.text}\r\n")
        return error.code
    process.print_line(result)
    return 0


def _options(words: Sequence[str], known: Sequence[str] = _OPTIONS) -> Options:
    """`name= value` is two words: sc requires the space."""
    if len(words) % 2:
        raise _Misused
    pairs = {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}
    if not pairs.keys() <= set(known):
        raise _Misused
    if pairs.get("start=", "auto").lower() not in _STARTS:
        raise _Misused
    return {name.removesuffix("="): value for name, value in pairs.items()}


def _depends(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split("/") if name)


def _check_account(process: Process, options: Options) -> None:
    """Raises ServiceError for an account that does not exist."""
    if (
        "obj" in options
        and process.context.windows.system.accounts.identity(options["obj"]) is None
    ):
        raise ServiceError(services.INVALID_ACCOUNT)


def _create(process: Process, name: str, words: Sequence[str]) -> str:
    options = _options(words)
    if "binpath" not in options:
        raise _Misused
    _check_account(process, options)
    manager(process).create(
        name,
        options["binpath"],
        display_name=options.get("displayname", ""),
        depends=_depends(options.get("depend", "")),
        start=_STARTS[options.get("start", "demand").lower()],
        account=options.get("obj", "LocalSystem"),
    )
    return "[SC] CreateService SUCCESS"


def _config(process: Process, name: str, words: Sequence[str]) -> str:
    options = _options(words)
    if not options:
        raise _Misused
    service = manager(process).get(name)
    _check_account(process, options)
    service.bin_path = options.get("binpath", service.bin_path)
    service.display_name = options.get("displayname", service.display_name)
    service.account = options.get("obj", service.account)
    if "start" in options:
        service.start = _STARTS[options["start"].lower()]
    if "depend" in options:
        service.depends = _depends(options["depend"])
    manager(process).changed(service)
    return "[SC] ChangeServiceConfig SUCCESS"


def _description(process: Process, name: str, words: Sequence[str]) -> str:
    service = manager(process).get(name)
    service.description = words[0] if words else ""
    manager(process).changed(service)
    return "[SC] ChangeServiceConfig2 SUCCESS"


def _failure(process: Process, name: str, words: Sequence[str]) -> str:
    options = _options(words, ("reset=", "actions=", "reboot=", "command="))
    service = manager(process).get(name)
    actions: list[services.Action] = []
    parts = options.get("actions", "").split("/")
    for what, after in zip(parts[::2], parts[1::2], strict=False):
        if what.lower() not in ("restart", "run", "reboot", "") or not after.isdigit():
            raise _Misused
        actions.append(("restart" if what.lower() == "restart" else "none", int(after)))
    reset = options.get("reset", str(service.reset_seconds)).lower()
    if not reset.isdigit() and reset != "infinite":
        raise _Misused
    if "actions" in options:
        service.recovery = tuple(actions)
    service.reset_seconds = int(reset) if reset.isdigit() else 0
    manager(process).changed(service)
    return "[SC] ChangeServiceConfig2 SUCCESS"


def _query_failure(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    rows = [f"{what.upper()} -- Delay = {after} milliseconds." for what, after in service.recovery]
    lines = [
        "[SC] QueryServiceConfig2 SUCCESS",
        "",
        f"SERVICE_NAME: {service.name}",
        f"        RESET_PERIOD (in seconds)    : {service.reset_seconds}",
        "        REBOOT_MESSAGE               : ",
        "        COMMAND_LINE                 : ",
    ]
    lines += [
        ("        FAILURE_ACTIONS              : " if i == 0 else " " * 39) + row
        for i, row in enumerate(rows)
    ]
    return "\r\n".join(lines)


def _query_description(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    return (
        "[SC] QueryServiceConfig2 SUCCESS\r\n\r\n"
        f"SERVICE_NAME: {service.name}\r\nDESCRIPTION:  {service.description}"
    )


def _dependents(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    wanted = service.name.lower()
    found = [
        other
        for other in manager(process).all()
        if wanted in (needed.lower() for needed in other.depends)
    ]
    shown = "\r\n".join(
        service_status(other, extended=False).replace(
            "        TYPE ", f"DISPLAY_NAME: {other.display_name}\r\n        TYPE ", 1
        )
        for other in found
    )
    return f"[SC] EnumDependentServices: entriesread = {len(found)}\r\n{shown}"


def _display_name(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    return f"[SC] GetServiceDisplayName SUCCESS\r\nName = {service.display_name}"


def _key_name(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    return f"[SC] GetServiceKeyName SUCCESS\r\nName = {service.name}"


def _interrogate(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    if service.state == "STOPPED":
        raise ServiceError(services.NOT_STARTED)
    return service_status(service, extended=False)


def _control(process: Process, name: str, words: Sequence[str]) -> str:
    """Services accept no other controls of the list, and none that users define."""
    service = manager(process).get(name)
    control = words[0].lower() if len(words) == 1 else ""
    if control == "paramchange":
        return service_status(manager(process).reload(name), extended=False)
    defined_by_user = control.isdigit() and int(control) in _USER_CONTROLS
    if control not in _NETWORK_CONTROLS and not defined_by_user:
        raise _Misused
    stopped = service.state == "STOPPED"
    raise ServiceError(services.NOT_STARTED if stopped else services.NOT_VALID)


def _pause(process: Process, name: str, _words: Sequence[str]) -> str:
    """No service can be paused."""
    service = manager(process).get(name)
    stopped = service.state == "STOPPED"
    raise ServiceError(services.NOT_STARTED if stopped else services.NOT_VALID)


def _descriptor(process: Process, name: str, _words: Sequence[str]) -> str:
    """What Windows gives a new service; nothing changes it."""
    manager(process).get(name)
    return f"\r\n{_NEW_SERVICE}"


def _delete(process: Process, name: str, _words: Sequence[str]) -> str:
    manager(process).delete(name)
    return "[SC] DeleteService SUCCESS"


def _query(process: Process, name: str, _words: Sequence[str]) -> str:
    return service_status(manager(process).get(name), extended=False)


def _query_extended(process: Process, name: str, _words: Sequence[str]) -> str:
    return service_status(manager(process).get(name))


def _query_config(process: Process, name: str, _words: Sequence[str]) -> str:
    service = manager(process).get(name)
    return "\r\n".join(
        (
            "[SC] QueryServiceConfig SUCCESS",
            "",
            f"SERVICE_NAME: {service.name}",
            "        TYPE               : 10  WIN32_OWN_PROCESS ",
            f"        START_TYPE         : {_START_NAMES[service.start]}",
            "        ERROR_CONTROL      : 1   NORMAL",
            f"        BINARY_PATH_NAME   : {service.bin_path}",
            "        LOAD_ORDER_GROUP   : ",
            "        TAG                : 0",
            f"        DISPLAY_NAME       : {service.display_name}",
            "        DEPENDENCIES       : "
            + "\r\n                           : ".join(service.depends),
            f"        SERVICE_START_NAME : {service.account}",
        )
    )


async def _start(process: Process, name: str, _words: Sequence[str]) -> str:
    service = await manager(process).start(name)
    return (
        service_status(service, "START_PENDING")
        if service.state == "RUNNING"
        else service_status(service)
    )


async def _stop(process: Process, name: str, _words: Sequence[str]) -> str:
    service = await manager(process).stop(name)
    return service_status(service, "STOP_PENDING", extended=False)


def _all(process: Process, which: str, *, extended: bool) -> None:
    for service in manager(process).all():
        if which == "all" or (service.state == "STOPPED") == (which == "inactive"):
            process.print_line(service_status(service, extended=extended))


def service_status(
    service: WindowsService, state: services.State | None = None, *, extended: bool = True
) -> str:
    """`extended`: with the number of the process."""
    shown = state or service.state
    takes = _TAKES if shown == "RUNNING" else _TAKES_NOTHING
    if shown == "RUNNING" and not service.stoppable:
        takes = f"NOT_{takes}"
    code = 0 if state else service.exit_code
    rows = [
        "",
        f"SERVICE_NAME: {service.name} ",
        "        TYPE               : 10  WIN32_OWN_PROCESS  ",
        f"        STATE              : {NUMBERS[shown]}  {shown} ",
        f"                                ({takes})",
        f"        WIN32_EXIT_CODE    : {code}  (0x{code:x})",
        "        SERVICE_EXIT_CODE  : 0  (0x0)",
        "        CHECKPOINT         : 0x0",
        "        WAIT_HINT          : 0x0",
    ]
    if extended:
        number = service.pid if shown != "STOPPED" else 0
        rows += [f"        PID                : {number or 0}", "        FLAGS              : "]
    return "\r\n".join(rows)


_Verb = Callable[[Process, str, Sequence[str]], str | Awaitable[str]]
# The error texts: for a service that does not exist, and for others.
_SC: Final[Mapping[str, tuple[_Verb, tuple[str, str]]]] = {
    "query": (_query, ("EnumQueryServicesStatus:OpenService", "QueryServiceStatus")),
    "queryex": (_query_extended, ("EnumQueryServicesStatus:OpenService", "QueryServiceStatus")),
    "start": (_start, ("StartService: OpenService", "StartService")),
    "stop": (_stop, ("OpenService", "ControlService")),
    "create": (_create, ("CreateService", "CreateService")),
    "delete": (_delete, ("OpenService", "DeleteService")),
    "config": (_config, ("OpenService", "ChangeServiceConfig")),
    "description": (_description, ("OpenService", "ChangeServiceConfig2")),
    "failure": (_failure, ("OpenService", "ChangeServiceConfig2")),
    "qdescription": (_query_description, ("OpenService", "QueryServiceConfig2")),
    "enumdepend": (_dependents, ("EnumDependentServices: OpenService", "EnumDependentServices")),
    "getdisplayname": (_display_name, ("GetServiceDisplayName", "GetServiceDisplayName")),
    "getkeyname": (_key_name, ("GetServiceKeyName", "GetServiceKeyName")),
    "interrogate": (_interrogate, ("OpenService", "ControlService")),
    "control": (_control, ("OpenService", "ControlService")),
    "pause": (_pause, ("OpenService", "ControlService")),
    "continue": (_pause, ("OpenService", "ControlService")),
    "sdshow": (_descriptor, ("OpenService", "QueryServiceObjectSecurity")),
    "qc": (_query_config, ("OpenService", "QueryServiceConfig")),
    "qfailure": (_query_failure, ("OpenService", "QueryServiceConfig2")),
}


# ---- net ----

_NET_ERRORS: Final = {
    services.MISSING: ("The service name is invalid.", 2185),
    services.RUNS_ALREADY: ("The requested service has already been started.", 2182),
    services.NOT_STARTED: ("The {0} service is not started.", 3521),
    services.TIMEOUT: ("The service is not responding to the control function.", 2186),
}


_NET_USAGE: Final = (
    "The syntax of this command is:\r\n\r\nNET\r\n    [ ACCOUNTS | COMPUTER | CONFIG | "
    "CONTINUE | FILE | GROUP | HELP |\r\n"
    "      HELPMSG | LOCALGROUP | PAUSE | SESSION | SHARE | START |\r\n      STATISTICS | "
    "STOP | TIME | USE | USER | VIEW ]"
)


async def net(process: Process) -> int:
    words = process.argv[1:]
    verb = words[0].lower() if words else ""
    if verb in ("user", "users"):
        return accounts.net_user(process, words[1:])
    if verb == "accounts":
        return accounts.net_accounts(process, words[1:])
    if verb == "localgroup":
        return accounts.net_localgroup(process, words[1:])
    if verb in net_commands.NET:
        return net_commands.NET[verb](process, words[1:])
    if verb not in ("start", "stop") or (verb == "stop" and len(words) < 2):
        process.print_line(_NET_USAGE)
        return 1
    if len(words) < 2:
        names = [
            service.display_name for service in manager(process).all() if service.state == "RUNNING"
        ]
        process.print_line("These Windows services are started:\r\n")
        for name in sorted(names, key=str.lower):
            process.print_line(f"   {name}")
        process.print_line("\r\nThe command completed successfully.\r\n")
        return 0
    try:
        name = manager(process).get(words[1]).display_name
        if verb == "start":
            await manager(process).start(words[1])
        else:
            await manager(process).stop(
                words[1], force="/y" in (word.lower() for word in words[2:])
            )
    except ServiceError as error:
        text, number = _NET_ERRORS.get(
            error.code, (f"System error {error.code} has occurred.\r\n\r\n{error.text}", 0)
        )
        more = f"\r\nMore help is available by typing NET HELPMSG {number}.\r\n" if number else ""
        process.complain(text.format(words[1]) + "\r\n" + more)
        return 2
    doing, done = ("starting", "started") if verb == "start" else ("stopping", "stopped")
    process.print_line(
        f"The {name} service is {doing}.\r\nThe {name} service was {done} successfully.\r\n",
    )
    return 0


COMMANDS: Final[dict[str, Command]] = {"net": net, "sc": sc}
