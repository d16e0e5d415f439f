"""Cmdlets for local users and groups: Get-LocalUser, New-LocalUser, Add-LocalGroupMember and
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.machines.windows.accounts import (
    AccountDatabase,
    AccountError,
    AccountPolicy,
    LocalGroup,
    LocalUser,
)
from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    SecretObject,
    to_bool,
    to_items,
    to_text,
)

_SPACE = "Microsoft.PowerShell.Commands."


def _database(call: CmdletCall) -> AccountDatabase:
    found: AccountDatabase = call.process.context.windows.system.accounts
    return found


def _date(moment: float) -> DateTime | None:
    return DateTime(moment) if moment else None


def _user_object(user: LocalUser, policy: AccountPolicy) -> PsObject:
    sid = PsObject("System.Security.Principal.SecurityIdentifier", {"Value": user.sid}, user.sid)
    return PsObject(
        _SPACE + "LocalUser",
        {
            "Name": user.name,
            "Enabled": user.enabled,
            "Description": user.description,
            "FullName": user.full_name,
            "SID": sid,
            "PasswordLastSet": _date(user.password_changed) if user.password else None,
            "PasswordExpires": _date(user.password_end(policy.maximum_days)),
            "PasswordChangeableDate": _date(user.password_changed + policy.minimum_days * 86400.0),
            "LastLogon": _date(user.last_logon),
            "AccountExpires": _date(user.expires),
            "PasswordRequired": True,
            "UserMayChangePassword": user.may_change_password,
            "PrincipalSource": "Local",
            "ObjectClass": "User",
        },
        user.name,
    )


def _group_object(group: LocalGroup) -> PsObject:
    sid = PsObject("System.Security.Principal.SecurityIdentifier", {"Value": group.sid}, group.sid)
    return PsObject(
        _SPACE + "LocalGroup",
        {
            "Name": group.name,
            "Description": group.description,
            "SID": sid,
            "PrincipalSource": "Local",
            "ObjectClass": "Group",
        },
        group.name,
    )


def _not_found(call: CmdletCall, kind: str, name: str) -> None:
    call.fail(
        f"{kind} {name} was not found.",
        f"ObjectNotFound: ({name}:String) [{call.cmdlet.name}], {kind}NotFoundException",
        f"{kind}NotFound",
    )


def _names(call: CmdletCall) -> list[str]:
    given = [
        value.get("Name") if isinstance(value, PsObject) else value for value in call.input or []
    ]
    picked = [
        *to_items(call.get("Name")),
        *to_items(call.get("SID")),
        *to_items(call.get("InputObject")),
        *given,
    ]
    return [
        to_text(one.get("Name") if isinstance(one, PsObject) and one.get("Name") else one)
        for one in picked
    ]


def _demand(call: CmdletCall) -> None:
    if not call.process.context.windows.account.administrator:
        raise PowerShellError(
            "Access denied.",
            f"PermissionDenied: (:) [{call.cmdlet.name}], AccessDeniedException",
            f"AccessDenied,{_SPACE}{call.cmdlet.name.replace('-', '')}Command",
        )


def _get_users(call: CmdletCall) -> None:
    names = _names(call)
    for user in _database(call).users():
        if not names or any(
            matches_wildcard(user.name, name) or user.sid == name for name in names
        ):
            call.emit(_user_object(user, _database(call).policy))
    for name in names:
        if "*" not in name and not any(
            name.lower() in (u.name.lower(), u.sid.lower()) for u in _database(call).users()
        ):
            _not_found(call, "User", name)


def secure_text(value: Any) -> str:
    """The text of a secure string."""
    return value.secret if isinstance(value, SecretObject) else to_text(value)


_WEAK_PASSWORD: Final = 2245


def _new_user(call: CmdletCall) -> None:
    _demand(call)
    name = call.text("Name")
    if not call.has("Password") and not call.has("NoPassword"):
        raise PowerShellError(
            "Cannot process command because of one or more missing mandatory parameters: Password.",
            "InvalidArgument: (:) [New-LocalUser], ParameterBindingException",
            "MissingMandatoryParameter,Microsoft.PowerShell.Commands.NewLocalUserCommand",
        )
    try:
        user = _database(call).add_user(
            name, secure_text(call.get("Password")), created=call.process.context.clock.time()
        )
    except AccountError as error:
        if error.code == _WEAK_PASSWORD:
            call.fail(
                "Unable to update the password. The value provided for the new password does not "
                "meet the length, complexity, or history requirements of the domain.",
                f"InvalidArgument: ({name}:String) [New-LocalUser], InvalidPasswordException",
                "InvalidPassword",
            )
            return
        exists = error.code == 2224
        call.fail(
            f"User {name} already exists."
            if exists
            else f"Cannot validate argument on parameter 'Name'. {error.text}",
            f"ResourceExists: ({name}:String) [New-LocalUser], UserExistsException"
            if exists
            else "InvalidData: (:) [New-LocalUser], ParameterBindingValidationException",
            "UserExists" if exists else "ParameterArgumentValidationError",
        )
        return
    user.enabled = not call.has("Disabled")
    user.full_name, user.description = call.text("FullName"), call.text("Description")
    user.password_expires = not call.has("PasswordNeverExpires")
    user.may_change_password = not call.has("UserMayNotChangePassword")
    user.expires = _expiry(call)
    call.emit(_user_object(user, _database(call).policy))


def _each_user(change: Callable[[CmdletCall, LocalUser], None]) -> Callable[[CmdletCall], None]:
    def run(call: CmdletCall) -> None:
        _demand(call)
        for name in _names(call):
            try:
                change(call, _database(call).user(name))
            except AccountError as error:
                if error.code == 2221:
                    _not_found(call, "User", name)
                else:
                    call.fail(
                        error.text,
                        (
                            f"InvalidOperation: ({name}:String) [{call.cmdlet.name}], "
                            "InvalidOperationException"
                        ),
                        "InvalidOperation",
                    )

    return run


def _expiry(call: CmdletCall) -> float:
    """-AccountExpires; 0: never."""
    if not call.has("AccountExpires"):
        return 0.0
    moment: DateTime = cast_value("datetime", call.get("AccountExpires"))
    return moment.moment


def _set_user(call: CmdletCall, user: LocalUser) -> None:
    user.full_name, user.description = (
        call.text("FullName", user.full_name),
        call.text("Description", user.description),
    )
    if call.has("PasswordNeverExpires"):
        user.password_expires = not to_bool(call.get("PasswordNeverExpires"))
    if call.has("UserMayChangePassword"):
        user.may_change_password = to_bool(call.get("UserMayChangePassword"))
    if call.has("AccountExpires") or call.has("AccountNeverExpires"):
        user.expires = _expiry(call)
    if call.has("Password"):
        user.set_password(secure_text(call.get("Password")), call.process.context.clock.time())


def _enable(call: CmdletCall, user: LocalUser) -> None:
    user.enabled = call.cmdlet.name.startswith("Enable")


def _get_groups(call: CmdletCall) -> None:
    names = _names(call)
    found = [
        g
        for g in _database(call).groups()
        if not names or any(matches_wildcard(g.name, n) or g.sid == n for n in names)
    ]
    for group in found:
        call.emit(_group_object(group))
    for name in names:
        if not found and "*" not in name:
            _not_found(call, "Group", name)


def _new_group(call: CmdletCall) -> None:
    _demand(call)
    try:
        call.emit(
            _group_object(_database(call).add_group(call.text("Name"), call.text("Description")))
        )
    except AccountError:
        name = call.text("Name")
        call.fail(
            f"Group {name} already exists.",
            f"ResourceExists: ({name}:String) [New-LocalGroup], GroupExistsException",
            "GroupExists",
        )


def _remove_group(call: CmdletCall) -> None:
    _demand(call)
    for name in _names(call):
        try:
            _database(call).remove_group(name)
        except AccountError:
            _not_found(call, "Group", name)


def _members(call: CmdletCall) -> None:
    database = _database(call)
    try:
        group = database.group(call.text("Group", call.text("Name")))
    except AccountError:
        _not_found(call, "Group", call.text("Group", call.text("Name")))
        return
    for sid in group.members:
        kind = "Group" if sid in (one.sid for one in database.groups()) else "User"
        shown = database.name_of(sid)
        properties = {"ObjectClass": kind, "Name": shown, "PrincipalSource": "Local", "SID": sid}
        call.emit(PsObject(_SPACE + "LocalPrincipal", properties, shown))


def _change_members(call: CmdletCall) -> None:
    _demand(call)
    database, group = _database(call), call.text("Group", call.text("Name"))
    adding = call.cmdlet.name.startswith("Add")
    for one in [*to_items(call.get("Member")), *(call.input or [])]:
        member = to_text(one.get("Name")) if isinstance(one, PsObject) else to_text(one)
        try:
            (database.join if adding else database.leave)(group, member)
        except AccountError as error:
            kind = {
                1376: "GroupNotFound",
                1387: "PrincipalNotFound",
                1378: "MemberExists",
                1377: "MemberNotFound",
            }[error.code]
            shown = {
                "GroupNotFound": f"Group {group} was not found.",
                "PrincipalNotFound": f"Principal {member} was not found.",
                "MemberExists": f"{member} is already a member of group {group}.",
                "MemberNotFound": f"Member {member} was not found in group {group}.",
            }[kind]
            call.fail(
                shown,
                f"ObjectNotFound: ({member}:String) [{call.cmdlet.name}], {kind}Exception",
                kind,
            )


def _to_secure(call: CmdletCall) -> None:
    value = call.text("String", to_text(call.input[-1]) if call.input else "")
    if not call.has("AsPlainText"):
        raise PowerShellError(
            "Input string was not in a correct format.",
            "InvalidArgument: (:) [ConvertTo-SecureString], FormatException",
            "ImportSecureString_InvalidArgument_CryptographicError,"
            "Microsoft.PowerShell.Commands.ConvertToSecureStringCommand",
        )
    if not value:
        raise PowerShellError(
            "Cannot bind argument to parameter 'String' because it is an empty string.",
            "InvalidData: (:) [ConvertTo-SecureString], ParameterBindingValidationException",
            "ParameterArgumentValidationErrorEmptyStringNotAllowed,"
            "Microsoft.PowerShell.Commands.ConvertToSecureStringCommand",
        )
    call.emit(SecretObject("System.Security.SecureString", {"Length": len(value)}, value))


CMDLETS = (
    cmdlet_row("Get-LocalUser", _get_users, "Name", "", "SID"),
    cmdlet_row(
        "New-LocalUser",
        _new_user,
        "Name",
        "NoPassword Disabled AccountNeverExpires PasswordNeverExpires UserMayNotChangePassword",
        "Password FullName Description AccountExpires",
    ),
    cmdlet_row(
        "Set-LocalUser",
        _each_user(_set_user),
        "Name",
        "AccountNeverExpires",
        "Password FullName Description SID InputObject PasswordNeverExpires UserMayChangePassword "
        "AccountExpires",
    ),
    cmdlet_row("Enable-LocalUser", _each_user(_enable), "Name", "", "SID InputObject"),
    cmdlet_row("Disable-LocalUser", _each_user(_enable), "Name", "", "SID InputObject"),
    cmdlet_row(
        "Remove-LocalUser",
        _each_user(lambda call, user: _database(call).remove_user(user.name)),
        "Name",
        "",
        "SID InputObject",
    ),
    cmdlet_row(
        "Rename-LocalUser",
        _each_user(lambda call, user: _database(call).rename_user(user.name, call.text("NewName"))),
        "Name NewName",
        "",
        "SID InputObject",
    ),
    cmdlet_row("Get-LocalGroup", _get_groups, "Name", "", "SID"),
    cmdlet_row("New-LocalGroup", _new_group, "Name", "", "Description"),
    cmdlet_row("Remove-LocalGroup", _remove_group, "Name", "", "SID InputObject"),
    cmdlet_row("Get-LocalGroupMember", _members, "Group Member", "", "Name SID"),
    cmdlet_row("Add-LocalGroupMember", _change_members, "Group Member", "", "Name SID"),
    cmdlet_row("Remove-LocalGroupMember", _change_members, "Group Member", "", "Name SID"),
    cmdlet_row(
        "ConvertTo-SecureString", _to_secure, "String SecureKey", "AsPlainText Force", "Key"
    ),
)
