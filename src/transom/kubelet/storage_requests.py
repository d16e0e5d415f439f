"""What plugins request from the operating system, and failures of steps other than the usual
one.
"""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.failures import VolumeFailure


class StageFailure(VolumeFailure):
    """A failure of another step than the usual one; `stage` begins the event's text, `reason` is
    the event's.
    """

    def __init__(self, stage: str, message: str, reason: str = "FailedMount") -> None:
        super().__init__(message)
        self.stage = stage
        self.reason = reason


class StorageRequest(NamedTuple):
    """A request to mount a volume of a storage system."""

    kind: str  # the field of the volume source
    source: str
    target: str
    options: tuple[str, ...]
    volume: str
    pod: str
