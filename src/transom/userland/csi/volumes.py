"""Access to volumes for CSI drivers and their sidecars."""

from __future__ import annotations

import errno

from transom.userland.api import ProgramContext, VolumeAccess


def volumes_of(context: ProgramContext) -> VolumeAccess:
    """Raises OSError where programs cannot mount volumes: they run in simulated containers only."""
    if context.volumes is None:
        raise OSError(errno.ENOTSUP, "CSI drivers run in simulated containers only")
    return context.volumes
