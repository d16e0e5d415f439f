"""Who a container's process is, and what Unix makes of it: administrators are 0, everybody else has one number."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from transom.hosts.windows import accounts
from transom.hosts.windows.accounts import User
from transom.runtime.api import ContainerConfig
from transom.runtime.wine.environment import computer_name
from transom.runtime.wine.template import USER_ID

DEFAULT: Final = "ContainerAdministrator"
_NOBODY: Final = frozenset({"public", "default", "default user", "all users"})


def find(config: ContainerConfig, image: Mapping[str, Any], layers: Iterable[Path], hostname: str) -> User | None:
    """None: there is no such account.

    The accounts of an image are in hives of its registry, which Wine cannot read. So they are known by what else tells of
    them: the image's own `User`, and profiles in its layers.
    """
    by_image = str(image.get("User") or "")
    asked = (config.windows.run_as_user_name if config.windows is not None else "") or by_image or DEFAULT
    local = {by_image.rpartition("\\")[2]: None} if by_image else {}
    for layer in layers:
        users = layer / "Users"
        if users.is_dir():
            local |= {name: None for name in os.listdir(users) if name.lower() not in _NOBODY}
    return accounts.find(asked, computer_name(hostname), local)


def unix_id(user: User) -> int:
    """Who is not root here has one number only, which is 0 in containers."""
    return 0 if user.administrator or os.geteuid() != 0 else USER_ID
