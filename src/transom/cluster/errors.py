"""What can go wrong between a person and a cluster: a sentence on what happened, and one on what to do about it."""

from __future__ import annotations


class ClusterError(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
