"""net user, net localgroup, whoami and runas: the accounts of the container or the machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from transom.kit.argv import parse_command_line
from transom.kit.named_tuple import NamedTuple
from transom.machines import security
from transom.machines.windows.accounts import AccountDatabase, AccountError, LocalUser, WindowsUser
from transom.machines.windows.time_zones import offset_seconds
from transom.userland.api import ProgramContext
from transom.userland.files import FileView
from transom.userland.process import Command, Process

_DAY: Final = 86400.0
_DONE: Final = "The command completed successfully.\r\n"
_COLUMN: Final = 25


def _refused(process: Process, error: AccountError) -> int:
    if error.code < 2100:
        process.complain(f"System error {error.code} has occurred.\r\n\r\n{error.text}\r\n")
    else:
        process.complain(
            f"{error.text}\r\n\r\nMore help is available by typing NET HELPMSG {error.code}.\r\n"
        )
    return 2


def _denied() -> AccountError:
    return AccountError(5, "Access is denied.")


def demand_administrator(context: ProgramContext) -> None:
    if not context.windows.account.administrator:
        raise _denied()


def create_profile(context: ProgramContext, user: WindowsUser) -> None:
    """Creates the profile directory of a user who logs on for the first time."""
    FileView(context, "C:\\").make_profile(user.profile, user.sid)


_NO_DOMAIN: Final = (
    "System error 1355 has occurred.\r\n\r\n"
    "The specified domain either does not exist or could not be contacted.\r\n"
)


def net_user(process: Process, words: Sequence[str]) -> int:
    """`words` follow `net user`."""
    database = process.context.windows.system.accounts
    plain = [word for word in words if not word.startswith("/")]
    switches = {
        word.lower().partition(":")[0]: word.partition(":")[2]
        for word in words
        if word.startswith("/")
    }
    try:
        if "/domain" in switches:
            process.print_line(
                "The request will be processed at a domain controller for domain WORKGROUP.\r\n"
            )
            process.complain(_NO_DOMAIN)
            return 2
        if not plain:
            _list(
                process,
                f"User accounts for \\\\{process.context.windows.system.computer_name}",
                [u.name for u in database.users()],
            )
            return 0
        if not switches and len(plain) == 1:
            _show_user(process, database, database.user(plain[0]))
            return 0
        demand_administrator(process.context)
        if "/delete" in switches or "/del" in switches:
            database.remove_user(plain[0])
        else:
            _change_user(process, database, plain, switches)
    except AccountError as error:
        return _refused(process, error)
    process.print_line(_DONE)
    return 0


def _change_user(
    process: Process, database: AccountDatabase, plain: Sequence[str], switches: dict[str, str]
) -> None:
    password = plain[1] if len(plain) > 1 else ""
    if password == "*" or "/random" in switches:
        password = f"{process.context.rng.getrandbits(40):010x}"
        if "/random" in switches:
            process.print_line(f"Password for {plain[0]} is: {password}\r\n")
    if "/add" in switches:
        user = database.add_user(plain[0], password, created=process.context.clock.time())
    else:
        user = database.user(plain[0])
        if password:
            database.check_password(password)
            user.set_password(password, process.context.clock.time())
    if "/active" in switches:
        user.enabled = switches["/active"].lower() in ("yes", "y")
    if "/passwordchg" in switches:
        user.may_change_password = switches["/passwordchg"].lower() in ("yes", "y")
    user.full_name = switches.get("/fullname", user.full_name).strip('"')
    user.description = switches.get("/comment", user.description).strip('"')
    expires = switches.get("/expires", "")
    if expires:
        user.expires = _expiry(expires)


def _expiry(text: str) -> float:
    """`never` or `12/31/2026`. Raises AccountError."""
    if text.lower() == "never":
        return 0.0
    for shape in ("%m/%d/%Y", "%m/%d/%y", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, shape).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    raise AccountError(3952, "The /EXPIRES option was entered incorrectly.")


def _list(process: Process, title: str, names: Sequence[str]) -> None:
    process.print_line(f"\r\n{title}\r\n\r\n{'-' * 79}")
    for start in range(0, len(names), 3):
        process.print_line("".join(f"{name:<{_COLUMN}}" for name in names[start : start + 3]))
    process.print_line(_DONE)


def _local_moment(process: Process, moment: float) -> str:
    offset = offset_seconds(process.context.windows.system.registry, moment)
    return time.strftime("%-m/%-d/%Y %-I:%M:%S %p", time.gmtime(moment + offset))


def _show_user(process: Process, database: AccountDatabase, user: LocalUser) -> None:
    changed = user.password_set or user.created
    when, policy = _local_moment(process, changed), database.policy
    lasts = user.password_expires and policy.maximum_days
    groups = [group.name for group in database.groups() if user.sid in group.members]
    rows = (
        ("User name", user.name),
        ("Full Name", user.full_name),
        ("Comment", user.description),
        ("User's comment", ""),
        ("Country/region code", "000 (System Default)"),
        ("Account active", "Yes" if user.enabled else "No"),
        ("Account expires", _local_moment(process, user.expires) if user.expires else "Never"),
        ("", ""),
        ("Password last set", when),
        (
            "Password expires",
            _local_moment(process, changed + policy.maximum_days * _DAY) if lasts else "Never",
        ),
        ("Password changeable", _local_moment(process, changed + policy.minimum_days * _DAY)),
        ("Password required", "Yes"),
        ("User may change password", "Yes" if user.may_change_password else "No"),
        ("", ""),
        ("Workstations allowed", "All"),
        ("Logon script", ""),
        ("User profile", ""),
        ("Home directory", ""),
        ("Last logon", _local_moment(process, user.last_logon) if user.last_logon else "Never"),
        ("", ""),
        ("Logon hours allowed", "All"),
        ("", ""),
        ("Local Group Memberships", "".join(f"*{name:<21}" for name in groups).rstrip()),
        ("Global Group memberships", "*None"),
    )
    for name, value in rows:
        process.print_line(f"{name:<28} {value}".rstrip())
    process.print_line(_DONE)


def net_localgroup(process: Process, words: Sequence[str]) -> int:
    database = process.context.windows.system.accounts
    plain = [word for word in words if not word.startswith("/")]
    switches = {
        word.lower().partition(":")[0]: word.partition(":")[2]
        for word in words
        if word.startswith("/")
    }
    try:
        if not plain:
            _list_groups(process, database)
            return 0
        if not switches:
            _show_group(process, database, plain[0])
            return 0
        demand_administrator(process.context)
        remove = "/delete" in switches or "/del" in switches
        for member in plain[1:]:
            (database.leave if remove else database.join)(plain[0], member)
        if len(plain) == 1 and remove:
            database.remove_group(plain[0])
        elif len(plain) == 1 and "/add" in switches:
            database.add_group(plain[0], switches.get("/comment", "").strip('"'))
        elif len(plain) == 1:
            database.group(plain[0]).description = switches.get("/comment", "").strip('"')
    except AccountError as error:
        return _refused(process, error)
    process.print_line(_DONE)
    return 0


def _list_groups(process: Process, database: AccountDatabase) -> None:
    process.print_line(
        f"\r\nAliases for \\\\{process.context.windows.system.computer_name}\r\n\r\n{'-' * 79}",
    )
    for group in database.groups():
        process.print_line(f"*{group.name}")
    process.print_line(_DONE)


def _show_group(process: Process, database: AccountDatabase, name: str) -> None:
    group = database.group(name)
    process.print_line(
        (
            f"Alias name     {group.name}\r\nComment        "
            f"{group.description}\r\n\r\nMembers\r\n\r\n{'-' * 79}"
        ),
    )
    for sid in group.members:
        shown = database.name_of(sid)
        process.print_line(shown.removeprefix(f"{database.computer}\\"))
    process.print_line(_DONE)


_POLICY: Final = {
    "/minpwage": "minimum_days",
    "/maxpwage": "maximum_days",
    "/minpwlen": "minimum_length",
    "/uniquepw": "history",
    "/lockoutthreshold": "lockout_threshold",
    "/lockoutduration": "lockout_minutes",
    "/lockoutwindow": "lockout_window",
}


def net_accounts(process: Process, words: Sequence[str]) -> int:
    """The rules for passwords."""
    database = process.context.windows.system.accounts
    policy = database.policy
    try:
        for word in words:
            name, _, value = word.lower().partition(":")
            if name not in _POLICY:
                raise AccountError(3505, "The option is unknown.")
            demand_administrator(process.context)
            number = "0" if value in ("unlimited", "never") else value
            if not number.isdigit() or int(number) > 999:
                raise AccountError(3952, f"The value for {name.upper()} is not valid.")
            policy = policy._replace(**{_POLICY[name]: int(number)})
    except AccountError as error:
        return _refused(process, error)
    database.policy = policy
    if not words:
        limit = policy.lockout_threshold
        rows = (
            ("Force user logoff how long after time expires?:", "Never"),
            ("Minimum password age (days):", str(policy.minimum_days)),
            ("Maximum password age (days):", str(policy.maximum_days or "Unlimited")),
            ("Minimum password length:", str(policy.minimum_length)),
            ("Length of password history maintained:", str(policy.history or "None")),
            ("Lockout threshold:", str(limit or "Never")),
            ("Lockout duration (minutes):", str(policy.lockout_minutes)),
            ("Lockout observation window (minutes):", str(policy.lockout_window)),
            ("Computer role:", "SERVER"),
        )
        for label, shown in rows:
            process.print_line(f"{label:<54} {shown}")
    process.print_line(_DONE)
    return 0


# ---- whoami and runas ----

_PRIVILEGES: Final = (
    ("SeChangeNotifyPrivilege", "Bypass traverse checking", False),
    ("SeImpersonatePrivilege", "Impersonate a client after authentication", False),
    ("SeCreateGlobalPrivilege", "Create global objects", False),
    ("SeIncreaseWorkingSetPrivilege", "Increase a process working set", False),
    ("SeBackupPrivilege", "Back up files and directories", True),
    ("SeRestorePrivilege", "Restore files and directories", True),
    ("SeShutdownPrivilege", "Shut down the system", True),
    ("SeDebugPrivilege", "Debug programs", True),
    ("SeSecurityPrivilege", "Manage auditing and security log", True),
    ("SeTakeOwnershipPrivilege", "Take ownership of files or other objects", True),
)
_ON_BY_DEFAULT: Final = frozenset(
    ("SeChangeNotifyPrivilege", "SeImpersonatePrivilege", "SeCreateGlobalPrivilege")
)


class WhoamiSection(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def _write_section(process: Process, section: WhoamiSection, form: str, *, header: bool) -> None:
    if form == "csv":
        shown = section.rows if not header else (section.columns, *section.rows)
        for row in shown:
            process.print_line(",".join(f'"{cell}"' for cell in row))
        return
    if header:
        process.print_line(f"\r\n{section.title}\r\n{'-' * len(section.title)}\r\n")
    if form == "list":
        width = max(map(len, section.columns)) + 1
        for row in section.rows:
            for name, cell in zip(section.columns, row, strict=True):
                process.print_line(f"{name + ':':<{width}} {cell}".rstrip())
            if len(section.rows) > 1:
                process.print_line()
        return
    cells = (section.columns, *section.rows)
    widths = [max(len(row[i]) for row in cells) for i in range(len(section.columns))]
    top = (section.columns, ["=" * width for width in widths]) if header else ()
    for row in (*top, *section.rows):
        process.print_line(
            " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
        )


def _user_section(context: ProgramContext) -> WhoamiSection:
    account = context.windows.account
    return WhoamiSection("USER INFORMATION", ("User Name", "SID"), [(account.whoami, account.sid)])


def _group_section(context: ProgramContext) -> WhoamiSection:
    account, database = context.windows.account, context.windows.system.accounts
    default = "Mandatory group, Enabled by default, Enabled group"
    rows = []
    for sid in sorted(account.sids - {account.sid}, key=lambda one: (one.count("-"), one)):
        name = database.name_of(sid)
        kind = "Alias" if sid.startswith(("S-1-5-32-", "S-1-5-21-")) else "Well-known group"
        owner = ", Group owner" if sid == security.ADMINISTRATORS else ""
        rows.append((name, kind, sid, default + owner))
    level = (
        "System"
        if account.sid == security.SYSTEM
        else "High"
        if account.administrator
        else "Medium"
    )
    number = {"System": "16384", "High": "12288", "Medium": "8192"}[level]
    rows.append((rf"Mandatory Label\{level} Mandatory Level", "Label", f"S-1-16-{number}", ""))
    return WhoamiSection("GROUP INFORMATION", ("Group Name", "Type", "SID", "Attributes"), rows)


def _privilege_section(context: ProgramContext) -> WhoamiSection:
    administrator = context.windows.account.administrator
    rows = [
        (name, text, "Enabled" if name in _ON_BY_DEFAULT or administrator else "Disabled")
        for name, text, restricted in _PRIVILEGES
        if administrator or not restricted
    ]
    columns = ("Privilege Name", "Description", "State")
    return WhoamiSection("PRIVILEGES INFORMATION", columns, rows)


_SECTIONS: Final = {"/user": _user_section, "/groups": _group_section, "/priv": _privilege_section}
_FORMATS: Final = ("table", "list", "csv")
_USAGE_HINT: Final = 'Type "WHOAMI /?" for usage.'


def windows_whoami(process: Process) -> int:
    context = process.context
    form, wanted, header, given = "table", [], True, [w.lower() for w in process.argv[1:]]
    words = iter(given)
    for word in words:
        if word in _SECTIONS:
            wanted.append(_SECTIONS[word])
        elif word == "/all":
            wanted = list(_SECTIONS.values())
        elif word == "/nh":
            header = False
        elif word == "/fo":
            form = next(words, "")
            if form not in _FORMATS:
                process.complain(
                    f"ERROR: Invalid syntax. '{form}' value is not allowed for '/fo' option.\r\n"
                    + _USAGE_HINT
                    if form
                    else f"ERROR: Invalid syntax. Value expected for '/fo'.\r\n{_USAGE_HINT}"
                )
                return 1
        elif word in ("/upn", "/fqdn"):
            process.complain(
                "ERROR: Unable to get "
                + ("User Principal Name (UPN)" if word == "/upn" else "Fully Qualified Domain Name")
                + " as the current logged-on user\r\n       is not a domain user."
            )
            return 1
        else:
            process.complain(f"ERROR: Invalid argument/option - '{word}'.\r\n{_USAGE_HINT}")
            return 1
    if not header and form == "list":
        process.complain(
            f"ERROR: Invalid syntax. /NH option is not allowed for LIST format.\r\n{_USAGE_HINT}"
        )
        return 1
    if not wanted:
        if given:
            process.complain(f"ERROR: Invalid syntax.\r\n{_USAGE_HINT}")
            return 1
        process.print_line(context.windows.account.whoami)
    for section in wanted:
        _write_section(process, section(context), form, header=header)
    return 0


async def runas(process: Process) -> int:
    context = process.context
    given = next(
        (word.partition(":")[2] for word in process.argv[1:] if word.lower().startswith("/user:")),
        "",
    )
    line = next((word for word in process.argv[1:] if not word.startswith("/")), "")
    if not given or not line:
        process.print_line(
            "RUNAS USAGE:\r\n\r\nRUNAS [ [/noprofile | /profile] [/env] [/savecred | "
            "/netonly] ]\r\n"
            "        /user:<UserName> program",
        )
        return 1
    database = context.windows.system.accounts
    process.write(f"Enter the password for {given}: ")
    password = (await process.stdin.readline()).decode("utf-8", "replace").rstrip("\r\n")
    process.print_line()
    account = database.identity(given)
    local = next(
        (user for user in database.users() if account is not None and user.sid == account.sid), None
    )
    if account is None or local is None or local.password != password or not local.enabled:
        why = (
            "1326: The user name or password is incorrect."
            if local is None or local.enabled
            else "1331: This user can't sign in because this account is currently disabled."
        )
        process.complain(f"RUNAS ERROR: Unable to run - {line}\r\n{why}")
        return 1
    process.print_line(f'Attempting to start {line} as user "{database.name_of(account.sid)}" ...')
    create_profile(context, account)
    env = {
        **process.env,
        "USERNAME": account.name,
        "USERDOMAIN": account.domain,
        "USERPROFILE": account.profile,
    }
    try:
        context.windows.launch(
            parse_command_line(line, " \t"), account, env, process.cwd, lambda _data: None
        )
    except OSError:
        process.complain(
            f"RUNAS ERROR: Unable to run - {line}\r\n2: The system cannot find the file specified."
        )
        return 1
    return 0


COMMANDS: dict[str, Command] = {"runas": runas, "whoami": windows_whoami}
