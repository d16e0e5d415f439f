"""Which shells a Linux image has."""

from __future__ import annotations

from transom.userland.api import ProgramContext


def has_shell(context: ProgramContext, name: str) -> bool:
    image = context.image
    if image.userland == "busybox" and name == "bash":  # a package that few such images have
        return "bash" in image.name or "bash" in image.cmd or image.program == "agnhost"
    missing = {"any": "", "gnu": "ash", "busybox": "dash"}.get(image.userland)
    return missing is not None and name != missing
