"""The root folder that a Windows container has as a Linux one: links, mount points, Wine's helpers, and /etc with one account.

It is read-only, and the same for all containers of a node with the same account and the same name servers: they share it. It
goes with the node.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from transom.hosts.windows.accounts import User
from transom.network.api import DnsConfig
from transom.runtime.wine import accounts
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.standin import unix_half

_RECIPE: Final = 1  # to be raised with every change of what is made here: nodes outlive a new version
_LINKS: Final = ("bin", "lib", "lib64", "sbin")
_HELPERS: Final = ("init", "wdns.so")
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


def root(
    folder: Path, mount_points: tuple[str, ...], home: str, hosts: str, user: User, helpers: Helpers, dns: DnsConfig
) -> Path:
    """Below `folder`, made if it is not there. `mount_points` have no slash in front, `hosts` is where that file really is.
    Raises OSError."""
    number = accounts.unix_id(user)
    files = {
        "passwd": f"{_NAME.sub('_', user.name)}:x:{number}:{number}::{home}:/bin/sh\n",
        "group": f"users:x:{number}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": resolver(dns),
    }
    start = unix_half.script()
    parts = (str(_RECIPE), helpers.hash(_HELPERS), hosts, *mount_points, *files.values(), start)
    made = folder / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    if not made.is_dir():
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="making-", dir=folder))
        try:
            _fill(fresh, mount_points, hosts, helpers, files)
            _add_program(fresh / unix_half.START, start)
            fresh.rename(made)
        except OSError:
            shutil.rmtree(fresh)
            if not made.is_dir():  # by somebody else meanwhile
                raise
    return made


def _fill(at: Path, mount_points: tuple[str, ...], hosts: str, helpers: Helpers, files: dict[str, str]) -> None:
    at.chmod(0o755)
    for name in ("etc", *mount_points):
        (at / name).mkdir(parents=True, exist_ok=True)
    (at / "tmp").chmod(0o1777)  # runc gives what is mounted there the mode of the mount point
    for name in _LINKS:
        (at / name).symlink_to(f"usr/{name}")
    for name in _HELPERS:
        path = helpers.get(name)
        if path is not None:
            shutil.copyfile(path, at / name)
            (at / name).chmod(0o755)
    for name, content in files.items():
        (at / "etc" / name).write_text(content)
    (at / "etc" / "hosts").symlink_to(hosts)


def _add_program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


def resolver(dns: DnsConfig) -> str:
    """Windows has one suffix, the first, and knows no options."""
    lines = [f"nameserver {server}\n" for server in dns.servers[:3]]
    return "".join([*lines, *(f"search {suffix}\n" for suffix in dns.searches[:1]), "options timeout:2 attempts:2\n"])
