"""The user of a container's process: on Linux by numbers and the image's password file, on Windows
by account names.
"""

from __future__ import annotations

from collections.abc import Mapping

from transom.kit.named_tuple import NamedTuple
from transom.machines import security
from transom.machines.styles import FileUser
from transom.machines.trees import TreeFile
from transom.machines.windows import accounts
from transom.runtime.api import ContainerConfig
from transom.runtime.sim.catalogue import CatalogueImage

# The users of all images in the catalogue, combined.
_KNOWN = {
    "root": (0, "/root", "/bin/sh"),
    "daemon": (1, "/usr/sbin", "/usr/sbin/nologin"),
    "bin": (2, "/bin", "/usr/sbin/nologin"),
    "www-data": (33, "/var/www", "/usr/sbin/nologin"),
    "curl_user": (100, "/home/curl_user", "/bin/sh"),
    "nginx": (101, "/nonexistent", "/bin/false"),
    "redis": (999, "/home/redis", "/usr/sbin/nologin"),
    "node": (1000, "/home/node", "/bin/sh"),
    "mssql": (10001, "/home/mssql", "/bin/sh"),
    "memcache": (11211, "/home/memcache", "/usr/sbin/nologin"),
    "nobody": (65534, "/nonexistent", "/usr/sbin/nologin"),
}
_NAMES = {uid: name for name, (uid, _, _) in _KNOWN.items()}
_UNLISTED = 1000  # the user of an unlisted image

PASSWORD_FILE = TreeFile(
    "".join(
        f"{name}:x:{uid}:{uid}:{name}:{home}:{shell}\n"
        for name, (uid, home, shell) in _KNOWN.items()
    ).encode()
)
GROUP_FILE = TreeFile(
    "".join(f"{name}:x:{uid}:\n" for name, (uid, _, _) in _KNOWN.items()).encode()
)


class _GroupMember(NamedTuple):
    """A user of an image, whom its group file lists in a group besides its own."""

    user: str
    uid: int
    group: str
    gid: int


def _group_member(options: Mapping[str, str]) -> _GroupMember | None:
    """The option `member` of an image: USER:UID:GROUP:GID."""
    if "member" not in options:
        return None
    user, uid, group, gid = options["member"].split(":")
    return _GroupMember(user, int(uid), group, int(gid))


def account_files(options: Mapping[str, str]) -> dict[str, TreeFile]:
    """The password and group files of an image that has users of its own."""
    found = _group_member(options)
    if found is None:
        return {}
    user, uid, group, gid = found
    accounts = [
        line for line in PASSWORD_FILE.data.decode().splitlines() if line.split(":")[2] != str(uid)
    ]
    accounts.append(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/sh")
    groups = GROUP_FILE.data.decode() + f"{user}:x:{uid}:\n{group}:x:{gid}:{user}\n"
    return {
        "/etc/passwd": TreeFile("".join(f"{line}\n" for line in accounts).encode()),
        "/etc/group": TreeFile(groups.encode()),
    }


class ContainerIdentity(NamedTuple):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    account: accounts.WindowsUser | None = None
    """On Windows."""

    def file_user(self) -> FileUser | None:
        """None: unrestricted."""
        if self.account is not None:
            return file_user(self.account)
        return None if self.uid == 0 else FileUser(self.uid, self.gid, frozenset(self.groups))


def file_user(account: accounts.WindowsUser) -> FileUser:
    """Files that administrators create belong to the Administrators group."""
    owner = security.ADMINISTRATORS if account.administrator else account.sid
    return FileUser(1, sids=account.sids, sid=owner)


_ROOT = ContainerIdentity("root", 0, 0, (), "/root")


def linux_identity(config: ContainerConfig, spec: CatalogueImage) -> ContainerIdentity:
    """The container's user, otherwise the image's."""
    linux = config.linux
    image_user, _, image_group = spec.user.partition(":")
    requested = image_user
    if linux is not None:
        if linux.run_as_user is not None:
            requested = str(linux.run_as_user)
        elif linux.run_as_user_name:
            requested = linux.run_as_user_name
    groups = linux.supplemental_groups if linux is not None else ()
    member = _group_member(spec.info.options)
    if (
        member is not None
        and requested in (member.user, str(member.uid))
        and not (linux is not None and linux.strict_groups)
    ):
        groups = (*dict.fromkeys((member.gid, *groups)),)
    group = (
        linux.run_as_group
        if linux is not None and linux.run_as_group is not None
        else _number(image_group)
    )
    if requested in ("", "0", "root") and not group and not groups:
        return _ROOT
    if requested.isdigit():
        uid = int(requested)
        name = member.user if member and member.uid == uid else _NAMES.get(uid, requested)
    else:
        name = requested or "root"
        uid = _KNOWN[name][0] if name in _KNOWN else _UNLISTED
    home = _KNOWN[name][1] if name in _KNOWN else "/"
    if group is None:
        group = uid if name in _KNOWN or (member is not None and member.uid == uid) else 0
    return ContainerIdentity(name, uid, group, groups, home)


def _number(text: str) -> int | None:
    if not text:
        return None
    return int(text) if text.isdigit() else _KNOWN.get(text, (_UNLISTED,))[0]


def local_accounts(spec: CatalogueImage) -> tuple[str, ...]:
    """Accounts that an image provides."""
    return tuple(name for name in spec.info.options.get("users", "").split(",") if name)


def windows_identity(account: accounts.WindowsUser) -> ContainerIdentity:
    return ContainerIdentity(account.name, 0, 0, (), account.profile, account)


def windows_container_identity(
    config: ContainerConfig, spec: CatalogueImage, computer: str, seed: str
) -> ContainerIdentity | None:
    """None: the account does not exist. `seed` is that of the container's account database."""
    requested = (
        (config.windows.run_as_user_name if config.windows is not None else "")
        or spec.user
        or "ContainerAdministrator"
    )
    found = accounts.find_windows_user(requested, computer, local_accounts(spec), seed)
    return windows_identity(found) if found is not None else None
