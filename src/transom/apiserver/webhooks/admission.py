"""The webhooks of admission put together: what is configured now, and how to call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.admission.webhook_matching import GROUP, Hooks
from transom.apiserver.webhooks.dispatch import Dispatch

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer


class AdmissionWebhooks:
    """Nothing is called before `start`: what the server makes for itself when it starts must not depend on others."""

    def __init__(self, server: ApiServer) -> None:
        self.dispatch = Dispatch(server.webhooks, server.clock, server.options.rng)
        self.mutating = self._hooks(server, "mutatingwebhookconfigurations")
        self.validating = self._hooks(server, "validatingwebhookconfigurations")

    def _hooks(self, server: ApiServer, plural: str) -> Hooks:
        configurations = server.resource(GROUP, "v1", plural)
        return Hooks(server.storage, server.resources, configurations, server.resource("", "v1", "namespaces"))

    def start(self) -> None:
        self.mutating.start()
        self.validating.start()

    def stop(self) -> None:
        self.mutating.stop()
        self.validating.stop()
