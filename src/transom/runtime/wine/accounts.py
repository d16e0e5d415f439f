"""The user of a container's process, and its Unix id: administrators are 0, all other accounts
share one id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from transom.machines.windows import accounts
from transom.machines.windows.accounts import WindowsUser
from transom.runtime.api import ContainerConfig
from transom.runtime.wine.environment import netbios_name
from transom.runtime.wine.template import USER_ID

DEFAULT: Final = "ContainerAdministrator"
_NOT_ACCOUNTS: Final = frozenset({"public", "default", "default user", "all users"})


def find_wine_account(
    config: ContainerConfig, image: Mapping[str, Any], layers: Iterable[Path], hostname: str
) -> WindowsUser | None:
    """None: the account does not exist.

    The accounts of an image are in hives of its registry, which Wine cannot read. So they are
    inferred: from the image's own `WindowsUser`, and from profiles in its layers.
    """
    by_image = str(image.get("User") or "")
    requested = (
        (config.windows.run_as_user_name if config.windows is not None else "")
        or by_image
        or DEFAULT
    )
    local = {by_image.rpartition("\\")[2]: None} if by_image else {}
    for layer in layers:
        users = layer / "Users"
        if users.is_dir() and not users.is_symlink():
            local |= {name: None for name in os.listdir(users) if name.lower() not in _NOT_ACCOUNTS}
    return accounts.find_windows_user(requested, netbios_name(hostname), local)


def unix_id(user: WindowsUser) -> int:
    """An unprivileged user has only one id, which is 0 in containers."""
    return 0 if user.administrator or os.geteuid() != 0 else USER_ID
