r"""Accounts of a Windows machine or container: the built-in ones, and the local ones of its account
database (SAM).

Each machine and each container has its own database. A process cannot start as an unknown user, and
no access control list can contain one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machines import security

_MAX_ACCOUNTS: Final = 4096


class WindowsUser(NamedTuple):
    name: str
    domain: str
    sid: str
    administrator: bool = False
    groups: frozenset[str] = frozenset()
    """SIDs of groups in addition to those that all accounts belong to."""

    @property
    def profile(self) -> str:
        r"""`C:\Users\ContainerUser`; system accounts have theirs elsewhere."""
        return _PROFILES.get(self.sid, rf"C:\Users\{self.name}")

    @property
    def whoami(self) -> str:
        return rf"{self.domain}\{self.name}".lower()

    @property
    def sids(self) -> frozenset[str]:
        """All identities that apply in access control lists."""
        own = {self.sid, security.EVERYONE, security.AUTHENTICATED, security.USERS, *self.groups}
        return frozenset(own | {security.ADMINISTRATORS} if self.administrator else own)


ADMINISTRATOR: Final = WindowsUser("ContainerAdministrator", "User Manager", "S-1-5-93-2-1", True)
USER: Final = WindowsUser("ContainerUser", "User Manager", "S-1-5-93-2-2")

_PROFILES: Final = {
    "S-1-5-18": r"C:\Windows\system32\config\systemprofile",
    "S-1-5-19": r"C:\Windows\ServiceProfiles\LocalService",
    "S-1-5-20": r"C:\Windows\ServiceProfiles\NetworkService",
}
SYSTEM: Final = WindowsUser("SYSTEM", "NT AUTHORITY", security.SYSTEM, True)
LOCAL_SERVICE: Final = WindowsUser("LOCAL SERVICE", "NT AUTHORITY", "S-1-5-19")
NETWORK_SERVICE: Final = WindowsUser("NETWORK SERVICE", "NT AUTHORITY", "S-1-5-20")
_SYSTEM: Final = (SYSTEM, LOCAL_SERVICE, NETWORK_SERVICE)
_ALIASES: Final = {
    "LocalService": "LOCAL SERVICE",
    "NetworkService": "NETWORK SERVICE",
    "LocalSystem": "SYSTEM",
}
_WELL_KNOWN: Final = {user.name.lower(): user for user in (ADMINISTRATOR, USER, *_SYSTEM)} | {
    alias.lower(): next(user for user in _SYSTEM if user.name == name)
    for alias, name in _ALIASES.items()
}
_GROUPS: Final = {  # not groups of the database, by name
    ("", "Everyone"): security.EVERYONE,
    ("", "CREATOR OWNER"): security.CREATOR_OWNER,
    ("NT AUTHORITY", "Authenticated Users"): security.AUTHENTICATED,
    ("NT AUTHORITY", "INTERACTIVE"): "S-1-5-4",
    ("NT AUTHORITY", "SERVICE"): "S-1-5-6",
    ("NT AUTHORITY", "NETWORK"): "S-1-5-2",
    ("NT SERVICE", "TrustedInstaller"): security.TRUSTED_INSTALLER,
    ("APPLICATION PACKAGE AUTHORITY", "ALL APPLICATION PACKAGES"): "S-1-15-2-1",
}
_BUILTIN_GROUPS: Final = (
    (
        "Administrators",
        544,
        "Administrators have complete and unrestricted access to the computer/domain",
    ),
    (
        "Backup Operators",
        551,
        "Backup Operators can override security restrictions for the sole purpose of backing up or "
        "restoring files",
    ),
    ("Event Log Readers", 573, "Members of this group can read event logs from local machine"),
    (
        "Guests",
        546,
        "Guests have the same access as members of the Users group by default, except for "
        "the Guest account which "
        "is further restricted",
    ),
    ("IIS_IUSRS", 568, "Built-in group used by Internet Information Services."),
    (
        "Network Configuration Operators",
        556,
        "Members in this group can have some administrative privileges to manage "
        "configuration of networking features",
    ),
    (
        "Performance Log Users",
        559,
        "Members of this group may schedule logging of performance counters",
    ),
    (
        "Performance Monitor Users",
        558,
        "Members of this group can access performance counter data locally and remotely",
    ),
    (
        "Power Users",
        547,
        (
            "Power Users are included for backwards compatibility and possess limited "
            "administrative powers"
        ),
    ),
    ("Remote Desktop Users", 555, "Members in this group are granted the right to logon remotely"),
    (
        "Remote Management Users",
        580,
        "Members of this group can access WMI resources over management protocols",
    ),
    (
        "Users",
        545,
        "Users are prevented from making accidental or intentional system-wide changes and "
        "can run most "
        "applications",
    ),
)
_BUILTIN_USERS: Final = (
    ("Administrator", 500, True, "Built-in account for administering the computer/domain"),
    ("DefaultAccount", 503, False, "A user account managed by the system."),
    ("Guest", 501, False, "Built-in account for guest access to the computer/domain"),
    (
        "WDAGUtilityAccount",
        504,
        False,
        (
            "A user account managed and used by the system for Windows Defender Application "
            "Guard scenarios."
        ),
    ),
)


@dataclass(slots=True, eq=False)
class LocalUser:
    name: str
    sid: str
    password: str = ""
    enabled: bool = True
    full_name: str = ""
    description: str = ""
    password_expires: bool = True
    created: float = 0.0
    password_set: float = 0.0  # 0: when it was created
    expires: float = 0.0  # the account; 0: never
    last_logon: float = 0.0
    may_change_password: bool = True

    def set_password(self, password: str, now: float) -> None:
        self.password, self.password_set = password, now

    @property
    def password_changed(self) -> float:
        return self.password_set or self.created

    def password_end(self, maximum_days: int) -> float:
        """When its password expires; 0: never."""
        if not self.password_expires or not maximum_days:
            return 0.0
        return self.password_changed + maximum_days * 86400.0


@dataclass(slots=True, eq=False)
class LocalGroup:
    name: str
    sid: str
    description: str = ""
    members: list[str] = field(default_factory=list)
    """SIDs."""


class AccountPolicy(NamedTuple):
    """The rules for passwords, as `net accounts` shows and changes them."""

    minimum_days: int = 0
    maximum_days: int = 42  # 0: unlimited
    minimum_length: int = 0
    history: int = 0
    lockout_threshold: int = 0  # 0: never
    lockout_minutes: int = 30
    lockout_window: int = 30


class AccountError(Exception):
    """`code` is the Windows error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


NO_MAPPING: Final = "No mapping between account names and security IDs was done."


class AccountDatabase:
    """The local users and groups of one machine or container. `seed` determines its security
    identifier.
    """

    def __init__(
        self, computer: str, seed: str, local: Iterable[str] = (), *, created: float = 0.0
    ) -> None:
        self.computer = computer
        self.machine_sid = machine_sid(seed)
        self._next = 1000
        self._users: dict[str, LocalUser] = {}
        self._groups: dict[str, LocalGroup] = {}
        self.policy = AccountPolicy()
        for name, number, text in _BUILTIN_GROUPS:
            self._groups[name.lower()] = LocalGroup(name, f"S-1-5-32-{number}", text)
        for name, number, enabled, text in _BUILTIN_USERS:
            user = LocalUser(
                name, f"{self.machine_sid}-{number}", "", enabled, "", text, False, created
            )
            self._users[name.lower()] = user
        self._groups["administrators"].members.append(self._users["administrator"].sid)
        self._groups["users"].members += ["S-1-5-4", security.AUTHENTICATED]
        self._groups["guests"].members.append(self._users["guest"].sid)
        for name in local:
            if name.lower() not in self._users:
                self.add_user(name, created=created)

    # Persistence

    def save(self) -> Any:
        """As JSON has it."""
        users = [
            [
                u.name,
                u.sid,
                u.password,
                u.enabled,
                u.full_name,
                u.description,
                u.password_expires,
                u.created,
                u.password_set,
                u.expires,
                u.last_logon,
                u.may_change_password,
            ]
            for u in self._users.values()
        ]
        groups = [[g.name, g.sid, g.description, list(g.members)] for g in self._groups.values()]
        policy = self.policy._asdict()
        return {"next": self._next, "users": users, "groups": groups, "policy": policy}

    def restore(self, saved: Any) -> None:
        self._next = int(saved["next"])
        self._users = {row[0].lower(): LocalUser(*row) for row in saved["users"]}
        self._groups = {row[0].lower(): LocalGroup(*row) for row in saved["groups"]}
        self.policy = AccountPolicy(**saved.get("policy", {}))

    # Users

    def users(self) -> list[LocalUser]:
        return sorted(self._users.values(), key=lambda user: user.name.lower())

    def user(self, name: str) -> LocalUser:
        """By its name, or by its SID. Raises AccountError."""
        found = self._users.get(name.lower()) or next(
            (u for u in self._users.values() if u.sid == name), None
        )
        if found is None:
            raise AccountError(2221, "The user name could not be found.")
        return found

    def add_user(self, name: str, password: str = "", *, created: float = 0.0) -> LocalUser:
        if not name or len(name) > 20 or any(c in '"/\\[]:;|=,+*?<>' for c in name):
            raise AccountError(2202, "The user name or group name parameter is invalid.")
        if name.lower() in self._users or name.lower() in self._groups:
            raise AccountError(2224, "The account already exists.")
        self.check_password(password)
        user = LocalUser(name, self._new_sid(), password, created=created)
        self._users[name.lower()] = user
        self._groups["users"].members.append(user.sid)
        return user

    def check_password(self, password: str) -> None:
        """Raises AccountError for one that the policy forbids."""
        if len(password) < self.policy.minimum_length:
            raise AccountError(
                2245,
                "The password does not meet the password policy requirements. Check the minimum "
                "password length, password complexity and password history requirements.",
            )

    def remove_user(self, name: str) -> None:
        user = self.user(name)
        if user.sid.rpartition("-")[2] in ("500", "501"):
            raise AccountError(1371, "Cannot perform this operation on built-in accounts.")
        del self._users[user.name.lower()]
        for group in self._groups.values():
            if user.sid in group.members:
                group.members.remove(user.sid)

    def rename_user(self, name: str, new: str) -> None:
        user = self.user(name)
        if new.lower() in self._users or new.lower() in self._groups:
            raise AccountError(2224, "The account already exists.")
        del self._users[user.name.lower()]
        user.name = new
        self._users[new.lower()] = user

    # Groups

    def groups(self) -> list[LocalGroup]:
        return sorted(self._groups.values(), key=lambda group: group.name.lower())

    def group(self, name: str) -> LocalGroup:
        found = self._groups.get(name.lower()) or next(
            (g for g in self._groups.values() if g.sid == name), None
        )
        if found is None:
            raise AccountError(1376, "The specified local group does not exist.")
        return found

    def add_group(self, name: str, description: str = "") -> LocalGroup:
        if name.lower() in self._groups or name.lower() in self._users:
            raise AccountError(1379, "The specified local group already exists.")
        group = LocalGroup(name, self._new_sid(), description)
        self._groups[name.lower()] = group
        return group

    def remove_group(self, name: str) -> None:
        group = self.group(name)
        if group.sid.startswith("S-1-5-32-"):
            raise AccountError(1371, "Cannot perform this operation on built-in accounts.")
        del self._groups[group.name.lower()]

    def join(self, group_name: str, member: str) -> None:
        group, sid = self.group(group_name), self.sid_of(member)
        if sid is None:
            raise AccountError(
                1387,
                (
                    "A new member could not be added to a local group because the member does "
                    "not exist."
                ),
            )
        if sid in group.members:
            raise AccountError(1378, "The specified account name is already a member of the group.")
        group.members.append(sid)

    def leave(self, group_name: str, member: str) -> None:
        group, sid = self.group(group_name), self.sid_of(member)
        if sid is None or sid not in group.members:
            raise AccountError(1377, "The specified account name is not a member of the group.")
        group.members.remove(sid)

    # Names and identifiers

    def sid_of(self, name: str) -> str | None:
        r"""For a name as users write it: `web`, `.\web`, `BUILTIN\Users`, `NT AUTHORITY\SYSTEM`,
        `*S-1-5-32-545`.
        """
        if name.upper().startswith(("S-1-", "*S-1-")):
            return name.lstrip("*").upper()
        domain, _, account = name.lower().rpartition("\\")
        known = _WELL_KNOWN.get(account)
        if known is not None and domain in ("", known.domain.lower()):
            return known.sid
        for (above, group), sid in _GROUPS.items():
            if group.lower() == account and domain in ("", above.lower()):
                return sid
        local = self._groups.get(account)
        if local is not None and domain in (
            "",
            ".",
            "builtin" if local.sid.startswith("S-1-5-32-") else self.computer.lower(),
        ):
            return local.sid
        user = self._users.get(account)
        return user.sid if user is not None and domain in ("", ".", self.computer.lower()) else None

    def name_of(self, sid: str) -> str:
        """With its domain; the identifier itself for an unknown account, as on a volume of another
        machine.
        """
        for (domain, group), known in _GROUPS.items():
            if known == sid:
                return rf"{domain}\{group}" if domain else group
        for user in (ADMINISTRATOR, USER, *_SYSTEM):
            if user.sid == sid:
                return rf"{user.domain}\{user.name}"
        for group_ in self._groups.values():
            if group_.sid == sid:
                return (
                    rf"{'BUILTIN' if sid.startswith('S-1-5-32-') else self.computer}\{group_.name}"
                )
        return next(
            (rf"{self.computer}\{user.name}" for user in self._users.values() if user.sid == sid),
            sid,
        )

    def identity(self, name: str) -> WindowsUser | None:
        """A user that a process can run as; None when the account does not exist."""
        domain, _, account = name.lower().rpartition("\\")
        known = _WELL_KNOWN.get(account)
        if known is not None and domain in ("", known.domain.lower()):
            return known._replace(groups=frozenset(self._groups_of(known.sid)))
        local = self._users.get(account)
        if local is None or domain not in ("", ".", self.computer.lower()):
            return None
        groups = frozenset(self._groups_of(local.sid))
        return WindowsUser(
            local.name, self.computer, local.sid, security.ADMINISTRATORS in groups, groups
        )

    def _groups_of(self, sid: str) -> Iterator[str]:
        return (group.sid for group in self._groups.values() if sid in group.members)

    def _new_sid(self) -> str:
        if len(self._users) + len(self._groups) >= _MAX_ACCOUNTS:
            raise AccountError(
                1450, "Insufficient system resources exist to complete the requested service."
            )
        self._next += 1
        return f"{self.machine_sid}-{self._next - 1}"


def machine_sid(seed: str) -> str:
    digest = hashlib.blake2b(seed.encode(), digest_size=12).digest()
    return "S-1-5-21-" + "-".join(str(int.from_bytes(digest[i : i + 4], "big")) for i in (0, 4, 8))


def find_windows_user(
    name: str, computer: str = "", local: Iterable[str] = (), seed: str = ""
) -> WindowsUser | None:
    r"""By a name as in `runAsUserName`: `ContainerUser`, `NT AUTHORITY\SYSTEM`, `.\web`.
    Case-insensitive.

    `local` are the accounts of the image; `computer` is the container's name, which is their
    domain.
    """
    domain, _, account = name.rpartition("\\")
    known = _WELL_KNOWN.get(account.lower())
    if known is not None and domain.lower() in ("", known.domain.lower()):
        return known
    names = list(local)
    if account.lower() not in (one.lower() for one in names):
        return None
    return AccountDatabase(computer, seed, names).identity(name)
