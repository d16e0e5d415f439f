"""Windows machines and their specifics: a registry, accounts by name, a page file."""

from transom.machines.windows.host import WindowsHost

__all__ = ["WindowsHost"]
