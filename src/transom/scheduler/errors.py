"""Errors of the scheduler. Depends on nothing."""

from __future__ import annotations


class SchedulingError(Exception):
    """An extension point failed, which is not the same as a pod that fits on no node."""


class SchedulerConfigError(ValueError):
    """The configuration is invalid; the message has the reason."""
