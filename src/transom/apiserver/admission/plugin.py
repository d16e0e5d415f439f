"""The interfaces of admission plugins. A plugin is mutating, validating, or both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import ClassVar

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource


class AdmissionPlugin(ABC):
    """A `thread_safe` plugin reads nothing but the request and single stored objects
    (`ObjectStore.find`), so it runs in the worker thread when the object is large. Other plugins
    that examine a whole object return an awaitable of `ObjectStore.compute` for a large one.
    """

    name: ClassVar[str]
    thread_safe: ClassVar[bool]

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        """Whether the plugin handles such requests; the chain calls this once for each kind of
        request.
        """
        return True


class MutatingPlugin(AdmissionPlugin):
    @abstractmethod
    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        """May change the object; raises an error to reject the request."""


class ValidatingPlugin(AdmissionPlugin):
    @abstractmethod
    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raises an error to reject the request."""
