"""The Linux root directory of a Windows container: links, mount points, Wine's helpers, and /etc
with one account.

It is read-only and shared by all containers of a node with the same account and the same name
servers. It is removed with the node.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from transom.machines.windows.accounts import WindowsUser
from transom.network.api import DnsConfig
from transom.runtime.wine import accounts
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.standin import unix_half

_RECIPE: Final = 1  # increment with every change of the content: nodes outlive a new version
_LINKS: Final = ("bin", "lib", "lib64", "sbin")
_HELPERS: Final = ("init", "wdns.so")
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


def prefix_root(
    folder: Path,
    mount_points: tuple[str, ...],
    home: str,
    hosts: str,
    user: WindowsUser,
    helpers: Helpers,
    dns: DnsConfig,
) -> Path:
    """Below `folder`, created if missing. `mount_points` have no leading slash, `hosts` is the real
    path of that file. Raises OSError.
    """
    number = accounts.unix_id(user)
    files = {
        "passwd": f"{_NAME.sub('_', user.name)}:x:{number}:{number}::{home}:/bin/sh\n",
        "group": f"users:x:{number}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": root_resolver(dns),
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
            if not made.is_dir():  # by another process in the meantime
                raise
    return made


def _fill(
    at: Path, mount_points: tuple[str, ...], hosts: str, helpers: Helpers, files: dict[str, str]
) -> None:
    at.chmod(0o755)
    for name in ("etc", *mount_points):
        (at / name).mkdir(parents=True, exist_ok=True)
    (at / "tmp").chmod(0o1777)  # runc gives the mount the mode of its mount point
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


def root_resolver(dns: DnsConfig) -> str:
    """Windows uses one suffix, the first, and has no options."""
    lines = [f"nameserver {server}\n" for server in dns.servers[:3]]
    return "".join(
        [
            *lines,
            *(f"search {suffix}\n" for suffix in dns.searches[:1]),
            "options timeout:2 attempts:2\n",
        ]
    )
