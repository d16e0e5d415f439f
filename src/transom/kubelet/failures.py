"""Errors that stop a pod, a container or a volume."""

from __future__ import annotations

from transom.kit.lazy_dataclass import dataclass


class ContainerFailure(Exception):
    """A container cannot proceed. `reason` goes into `state.waiting.reason`
    (CreateContainerConfigError, ErrImagePull ...), `str()` is the message.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VolumeFailure(Exception):
    """A volume cannot be set up now; the text is the event's."""


class ClaimFailure(Exception):
    """The devices of a pod's resource claims cannot be prepared or released now."""


@dataclass(frozen=True, slots=True)
class PodRejection:
    """The node rejects the pod, which becomes Failed with this reason and message."""

    reason: str
    message: str
