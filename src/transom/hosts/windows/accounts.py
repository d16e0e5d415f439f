"""Who a process in a Windows container can be.

Every container has the two accounts that the User Manager gives it and the system's own; an image can add local ones. A name
that is not there makes the start of the process fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class User(NamedTuple):
    name: str
    domain: str
    sid: str
    administrator: bool = False

    @property
    def profile(self) -> str:
        r"""`C:\Users\ContainerUser`; the system's accounts have theirs elsewhere."""
        return _PROFILES.get(self.sid, rf"C:\Users\{self.name}")

    @property
    def whoami(self) -> str:
        return rf"{self.domain}\{self.name}".lower()


ADMINISTRATOR: Final = User("ContainerAdministrator", "User Manager", "S-1-5-93-2-1", True)
USER: Final = User("ContainerUser", "User Manager", "S-1-5-93-2-2")

_PROFILES: Final = {
    "S-1-5-18": r"C:\Windows\system32\config\systemprofile",
    "S-1-5-19": r"C:\Windows\ServiceProfiles\LocalService",
    "S-1-5-20": r"C:\Windows\ServiceProfiles\NetworkService",
}
_SYSTEM: Final = (
    User("SYSTEM", "NT AUTHORITY", "S-1-5-18", True),
    User("LOCAL SERVICE", "NT AUTHORITY", "S-1-5-19"),
    User("NETWORK SERVICE", "NT AUTHORITY", "S-1-5-20"),
)
_ALIASES: Final = {"LocalService": "LOCAL SERVICE", "NetworkService": "NETWORK SERVICE", "LocalSystem": "SYSTEM"}
_WELL_KNOWN: Final = {user.name.lower(): user for user in (ADMINISTRATOR, USER, *_SYSTEM)} | {
    alias.lower(): next(user for user in _SYSTEM if user.name == name) for alias, name in _ALIASES.items()
}


def find(name: str, computer: str = "", local: Iterable[str] = ()) -> User | None:
    r"""By a name as `runAsUserName` has it: `ContainerUser`, `NT AUTHORITY\SYSTEM`, `.\web`. Case does not count.

    `local` are the accounts of the image; `computer` is the container's name, which is their domain.
    """
    domain, _, account = name.rpartition("\\")
    account, domain = account.lower(), domain.lower()
    known = _WELL_KNOWN.get(account)
    if known is not None and domain in ("", known.domain.lower()):
        return known
    for number, mine in enumerate(local):
        if mine.lower() == account and domain in ("", ".", computer.lower()):
            administrator = account == "administrator"
            return User(mine, computer, f"S-1-5-21-0-0-0-{500 if administrator else 1000 + number}", administrator)
    return None
