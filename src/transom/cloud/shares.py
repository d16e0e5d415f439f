"""A file share that a server exports over SMB to all nodes: azureFile, and the shares of SMB
drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.cloud.content import DiskContent
from transom.machines.styles import WINDOWS

USUAL_SIZE: Final = 100 << 30


class ShareError(Exception):
    """The server rejects the request. `code` is the errno of Linux that mount.cifs reports."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class FileShare:
    """`\\\\server\\name`. A share without a password is open to every client that names a user."""

    def __init__(
        self, server: str, name: str, content: DiskContent, size: int = USUAL_SIZE
    ) -> None:
        self.server = server.lower()
        self.name = name
        self.content = content
        self.size = size
        self.offline = False  # a fault: the server does not respond
        self.accounts: dict[str, str] = {}  # user -> password; empty: the first mount sets it

    @property
    def path(self) -> str:
        return f"\\\\{self.server}\\{self.name}"

    style = WINDOWS

    def connect(self, user: str, password: str) -> None:
        """Raises ShareError."""
        if self.offline:
            raise ShareError(112, "Host is down")
        known = {name.lower(): secret for name, secret in self.accounts.items()}
        if not known:
            self.accounts[user] = password
        elif known.get(user.lower()) != password:
            raise ShareError(13, "Permission denied")

    def record(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "name": self.name,
            "size": self.size,
            "offline": self.offline,
            "accounts": self.accounts,
        }

    def restore(self, record: Mapping[str, Any]) -> None:
        self.offline = record["offline"]
        self.accounts = dict(record["accounts"])
