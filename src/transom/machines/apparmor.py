"""The AppArmor profiles that are loaded in a machine's kernel."""

from __future__ import annotations

from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file

PROFILES = "/sys/kernel/security/apparmor/profiles"


def loaded_profiles(files: Files) -> set[str]:
    """One line per profile: `docker-default (enforce)`."""
    if not files.exists(PROFILES):
        return set()
    lines = read_small_file(files, PROFILES).decode().splitlines()
    return {line.partition("(")[0].strip() for line in lines if "(" in line}
