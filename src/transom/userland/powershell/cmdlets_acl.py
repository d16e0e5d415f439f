"""Cmdlets for access control lists: Get-Acl, Set-Acl and their objects."""

from __future__ import annotations

from typing import Any, Final

from transom.machines.security import ADMINISTRATORS, Ace, SecurityDescriptor, sorted_aces
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PowerShellError, PsObject, to_bool, to_items, to_text
from transom.userland.windows.acls import granted, inheritance
from transom.userland.windows.rights import net_flags, net_rights, parse_net_flags, parse_net_rights
from transom.userland.windows.sddl import dacl_text, sid_text

FILE, DIRECTORY = (
    "System.Security.AccessControl.FileSecurity",
    "System.Security.AccessControl.DirectorySecurity",
)
RULE: Final = "System.Security.AccessControl.FileSystemAccessRule"
ACCOUNT: Final = "System.Security.Principal.NTAccount"


def account_object(name: Any) -> PsObject:
    return PsObject(ACCOUNT, {"Value": to_text(name)}, to_text(name))


def identifier_object(sid: Any) -> PsObject:
    kind = "System.Security.Principal.SecurityIdentifier"
    return PsObject(kind, {"Value": to_text(sid)}, to_text(sid))


class AclObject(PsObject):
    """A list that a script holds; Set-Acl applies it to a file."""

    __slots__ = ("descriptor", "evaluator")

    def __init__(
        self, kind: str, path: str, descriptor: SecurityDescriptor, evaluator: PowerShellSession
    ) -> None:
        super().__init__(
            kind,
            {"Path": path, "Owner": "", "Group": "", "Access": "", "Audit": "", "Sddl": ""},
            kind,
        )
        self.descriptor = descriptor
        self.evaluator = evaluator

    def get(self, name: str) -> Any:
        accounts = self.evaluator.process.context.windows.system.accounts
        match name.lower():
            case "owner":
                return accounts.name_of(self.descriptor.owner)
            case "group":
                return accounts.name_of(ADMINISTRATORS)
            case "access":
                return [rule_object(self.evaluator, ace) for ace in self.descriptor.aces]
            case "accesstostring":
                return "\n".join(
                    (
                        f"{accounts.name_of(a.sid)} {'Deny ' if a.deny else 'Allow'}  "
                        f"{net_rights(a.mask)}"
                    )
                    for a in self.descriptor.aces
                )
            case "areaccessrulesprotected":
                return self.descriptor.protected
            case "sddl":
                return sddl(self.descriptor)
        return super().get(name)


def sddl(descriptor: SecurityDescriptor) -> str:
    return f"O:{sid_text(descriptor.owner)}G:BA{dacl_text(descriptor)}"


def rule_object(evaluator: PowerShellSession, ace: Ace) -> PsObject:
    name = evaluator.process.context.windows.system.accounts.name_of(ace.sid)
    flags, propagation = net_flags(ace.flags)
    return PsObject(
        RULE,
        {
            "FileSystemRights": net_rights(ace.mask),
            "AccessControlType": "Deny" if ace.deny else "Allow",
            "IdentityReference": PsObject(ACCOUNT, {"Value": name}, name),
            "IsInherited": ace.inherited,
            "InheritanceFlags": flags,
            "PropagationFlags": propagation,
        },
        RULE,
    )


def new_rule(evaluator: PowerShellSession, arguments: list[Any]) -> PsObject:
    """`New-Object System.Security.AccessControl.FileSystemAccessRule(who, rights, [inheritance,
    propagation,] kind)`.
    """
    words = [
        ", ".join(to_text(one) for one in to_items(a)) if isinstance(a, list) else to_text(a)
        for a in arguments
    ]
    if len(words) not in (3, 5):
        raise PowerShellError(
            'Cannot find an overload for "FileSystemAccessRule" and the argument count: '
            f'"{len(words)}".'
        )
    who, rights, kind = words[0], words[1], words[-1]
    inherit, propagate = (words[2], words[3]) if len(words) == 5 else ("None", "None")
    try:
        parse_net_rights(rights), parse_net_flags(inherit, propagate)
    except KeyError as error:
        raise PowerShellError(
            f'Cannot convert argument "fileSystemRights", with value: "{error.args[0]}", for '
            '"FileSystemAccessRule" to type '
            '"System.Security.AccessControl.FileSystemRights".'
        ) from None
    return PsObject(
        RULE,
        {
            "FileSystemRights": rights,
            "AccessControlType": kind,
            "IdentityReference": PsObject(ACCOUNT, {"Value": who}, who),
            "IsInherited": False,
            "InheritanceFlags": inherit,
            "PropagationFlags": propagate,
        },
        RULE,
    )


def _ace(evaluator: PowerShellSession, rule: Any, method: str) -> Ace:
    if not isinstance(rule, PsObject) or rule.kind != RULE:
        raise PowerShellError(
            f'Cannot find an overload for "{method}" and the argument count: "1".'
        )
    sid = evaluator.process.context.windows.system.accounts.sid_of(
        to_text(rule.get("IdentityReference"))
    )
    if sid is None:
        raise PowerShellError(
            (
                f'Exception calling "{method}" with "1" argument(s): "Some or all identity '
                'references could not be translated."'
            ),
            "NotSpecified: (:) [], MethodInvocationException",
            "IdentityNotMappedException",
        )
    flags = parse_net_flags(
        to_text(rule.get("InheritanceFlags")), to_text(rule.get("PropagationFlags"))
    )
    deny = to_text(rule.get("AccessControlType")).lower() == "deny"
    mask = parse_net_rights(to_text(rule.get("FileSystemRights")))
    return Ace(sid, mask & ~0x100000 if deny else mask, deny, flags)


def _add(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> None:
    target.descriptor = granted(target.descriptor, _ace(evaluator, arguments[0], "AddAccessRule"))


def _set(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> None:
    target.descriptor = granted(
        target.descriptor, _ace(evaluator, arguments[0], "SetAccessRule"), replace=True
    )


def _remove(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> bool:
    ace = _ace(evaluator, arguments[0], "RemoveAccessRule")
    before = target.descriptor.aces
    kept = []
    for one in before:
        if not one.inherited and one.sid == ace.sid and one.deny == ace.deny:
            left = one.mask & ~ace.mask
            if left & ~0x120080:
                kept.append(one._replace(mask=left | 0x100000))
        else:
            kept.append(one)
    target.descriptor = target.descriptor._replace(aces=tuple(kept))
    return target.descriptor.aces != before


def _purge(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> None:
    sid = evaluator.process.context.windows.system.accounts.sid_of(to_text(arguments[0]))
    aces = tuple(ace for ace in target.descriptor.aces if ace.inherited or ace.sid != sid)
    target.descriptor = target.descriptor._replace(aces=aces)


def _protect(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> None:
    protected, keep = to_bool(arguments[0]), to_bool(arguments[1]) if len(arguments) > 1 else True
    target.descriptor = inheritance(
        target.descriptor, "e" if not protected else "d" if keep else "r"
    )


def _set_owner(evaluator: PowerShellSession, target: AclObject, arguments: list[Any]) -> None:
    sid = evaluator.process.context.windows.system.accounts.sid_of(to_text(arguments[0]))
    if sid is None:
        raise PowerShellError(
            'Exception calling "SetOwner" with "1" argument(s): "Some or all identity '
            'references could not be translated."'
        )
    target.descriptor = target.descriptor._replace(owner=sid)


def translate_account(
    evaluator: PowerShellSession, target: PsObject, arguments: list[Any]
) -> PsObject:
    """Translates an account's name to its identifier, or back."""
    accounts = evaluator.process.context.windows.system.accounts
    if target.kind == ACCOUNT:
        sid = accounts.sid_of(to_text(target.get("Value")))
        if sid is None:
            raise PowerShellError(
                'Exception calling "Translate" with "1" argument(s): "Some or all identity '
                "references could not be "
                'translated."',
                "NotSpecified: (:) [], MethodInvocationException",
                "IdentityNotMappedException",
            )
        return PsObject("System.Security.Principal.SecurityIdentifier", {"Value": sid}, sid)
    name = accounts.name_of(to_text(target.get("Value")))
    return PsObject(ACCOUNT, {"Value": name}, name)


METHODS: Final = {
    (kind, name): method
    for kind in (FILE, DIRECTORY)
    for name, method in {
        "addaccessrule": _add,
        "setaccessrule": _set,
        "resetaccessrule": _set,
        "removeaccessrule": _remove,
        "purgeaccessrules": _purge,
        "setaccessruleprotection": _protect,
        "setowner": _set_owner,
    }.items()
} | {
    (ACCOUNT, "translate"): translate_account,
    ("System.Security.Principal.SecurityIdentifier", "translate"): translate_account,
}


def _failed(call: CmdletCall, path: str, error: OSError) -> None:
    full = call.process.files.absolute(path)
    if isinstance(error, FileNotFoundError):
        call.fail(
            f"Cannot find path '{full}' because it does not exist.",
            f"ObjectNotFound: (:) [{call.cmdlet.name}], ItemNotFoundException",
            "GetAcl_PathNotFound_Exception",
        )
    else:
        call.fail(
            "Attempted to perform an unauthorized operation.",
            f"PermissionDenied: ({full}:String) [{call.cmdlet.name}], UnauthorizedAccessException",
            "System.UnauthorizedAccessException",
        )


def _paths(call: CmdletCall) -> list[str]:
    given = (
        to_items(call.get("Path", call.get("LiteralPath")))
        or (call.input if not call.has("Path") else [])
        or ["."]
    )
    return [
        to_text(one.get("FullName") or one) if isinstance(one, PsObject) else to_text(one)
        for one in given
    ]


def _get_acl(call: CmdletCall) -> None:
    for path in _paths(call):
        try:
            descriptor = call.process.files.descriptor(path)
        except OSError as error:
            _failed(call, path, error)
            continue
        kind = DIRECTORY if call.process.files.is_directory(path) else FILE
        full = call.process.files.absolute(path)
        call.emit(
            AclObject(
                kind, rf"Microsoft.PowerShell.Core\FileSystem::{full}", descriptor, call.evaluator
            )
        )


def _set_acl(call: CmdletCall) -> None:
    acl = call.get("AclObject", call.input[-1] if call.input else None)
    if not isinstance(acl, AclObject):
        raise PowerShellError(
            "AclObject",
            "InvalidArgument: (:) [Set-Acl], ArgumentException",
            "SetAcl_AclObject,Microsoft.PowerShell.Commands.SetAclCommand",
        )
    for path in [to_text(one) for one in to_items(call.get("Path", call.get("LiteralPath")))]:
        try:
            call.process.files.set_descriptor(
                path, acl.descriptor._replace(aces=sorted_aces(acl.descriptor.aces))
            )
        except OSError as error:
            _failed(call, path, error)


CMDLETS = (
    cmdlet_row("Get-Acl", _get_acl, "Path", "Audit", "LiteralPath"),
    cmdlet_row("Set-Acl", _set_acl, "Path AclObject", "Passthru", "LiteralPath"),
)
