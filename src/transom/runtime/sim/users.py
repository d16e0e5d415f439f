"""Who a container's process is: on Linux by numbers and the image's password file, on Windows by account names."""

from __future__ import annotations

from typing import NamedTuple

from transom.hosts.styles import User as FileUser
from transom.hosts.trees import File
from transom.hosts.windows import accounts
from transom.runtime.api import ContainerConfig
from transom.runtime.sim.catalogue import Spec

# Of the images in the catalogue, all in one file.
_KNOWN = {
    "root": (0, "/root", "/bin/sh"), "daemon": (1, "/usr/sbin", "/usr/sbin/nologin"), "bin": (2, "/bin", "/usr/sbin/nologin"),
    "www-data": (33, "/var/www", "/usr/sbin/nologin"), "curl_user": (100, "/home/curl_user", "/bin/sh"),
    "nginx": (101, "/nonexistent", "/bin/false"), "redis": (999, "/home/redis", "/usr/sbin/nologin"),
    "node": (1000, "/home/node", "/bin/sh"), "mssql": (10001, "/home/mssql", "/bin/sh"),
    "memcache": (11211, "/home/memcache", "/usr/sbin/nologin"), "nobody": (65534, "/nonexistent", "/usr/sbin/nologin"),
}  # fmt: skip
_NAMES = {uid: name for name, (uid, _, _) in _KNOWN.items()}
_UNLISTED = 1000  # the user of an image that nobody knows

PASSWORD_FILE = File(
    "".join(f"{name}:x:{uid}:{uid}:{name}:{home}:{shell}\n" for name, (uid, home, shell) in _KNOWN.items()).encode()
)
GROUP_FILE = File("".join(f"{name}:x:{uid}:\n" for name, (uid, _, _) in _KNOWN.items()).encode())


class Identity(NamedTuple):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    windows_administrator: bool = False

    def file_user(self, windows: bool) -> FileUser | None:
        """None may do everything."""
        if windows:
            return None if self.windows_administrator else FileUser(1)
        return None if self.uid == 0 else FileUser(self.uid, self.gid, frozenset(self.groups))


_ROOT = Identity("root", 0, 0, (), "/root")


def on_linux(config: ContainerConfig, spec: Spec) -> Identity:
    """The container's user, else the image's."""
    linux = config.linux
    image_user, _, image_group = spec.user.partition(":")
    asked = image_user
    if linux is not None:
        if linux.run_as_user is not None:
            asked = str(linux.run_as_user)
        elif linux.run_as_user_name:
            asked = linux.run_as_user_name
    groups = linux.supplemental_groups if linux is not None else ()
    group = linux.run_as_group if linux is not None and linux.run_as_group is not None else _number(image_group)
    if asked in ("", "0", "root") and not group and not groups:
        return _ROOT
    if asked.isdigit():
        uid = int(asked)
        name = _NAMES.get(uid, asked)
    else:
        name = asked or "root"
        uid = _KNOWN[name][0] if name in _KNOWN else _UNLISTED
    home = _KNOWN[name][1] if name in _KNOWN else "/"
    if group is None:
        group = uid if name in _KNOWN else 0
    return Identity(name, uid, group, groups, home)


def _number(text: str) -> int | None:
    if not text:
        return None
    return int(text) if text.isdigit() else _KNOWN.get(text, (_UNLISTED,))[0]


def on_windows(config: ContainerConfig, spec: Spec, computer: str) -> Identity | None:
    """None: there is no such account."""
    asked = (config.windows.run_as_user_name if config.windows is not None else "") or spec.user or "ContainerAdministrator"
    local = tuple(name for name in spec.info.options.get("users", "").split(",") if name)
    found = accounts.find(asked, computer, local)
    if found is None:
        return None
    return Identity(found.name, 0, 0, (), found.profile, found.administrator)
