"""The machine of a simulated node."""

from __future__ import annotations

from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost

SimHost = LinuxHost | WindowsHost
