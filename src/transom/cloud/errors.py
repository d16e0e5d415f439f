"""The error of the emulated cloud provider."""

from __future__ import annotations


class CloudError(Exception):
    """The provider rejects the operation, with its own message. `current_node` is the node that has
    the disk, if that is the reason.
    """

    def __init__(self, message: str, current_node: str = "") -> None:
        super().__init__(message)
        self.current_node = current_node
