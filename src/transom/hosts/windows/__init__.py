"""Windows machines and what only they have: a registry, accounts by name, a page file."""

from transom.hosts.windows.host import WindowsHost

__all__ = ["WindowsHost"]
