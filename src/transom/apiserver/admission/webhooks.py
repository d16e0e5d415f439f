"""The configured admission webhooks, and how to call them."""

from __future__ import annotations

import random

from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.request_authorizer import Decide
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.webhooks.client import WebhookClient
from transom.apiserver.webhooks.dispatch import WebhookDispatcher
from transom.apiserver.webhooks.matching import GROUP, WebhookConfigurations
from transom.kit.clock import Clock


class AdmissionWebhooks:
    """No webhook is called before `start`: the server's own writes at start-up must not depend on
    them.
    """

    def __init__(
        self,
        objects: ObjectStore,
        resources: ResourceRegistry,
        client: WebhookClient,
        clock: Clock,
        rng: random.Random,
        decide: Decide,
    ) -> None:
        namespaces = resources.require("", "v1", "namespaces")
        self.dispatch = WebhookDispatcher(client, clock, rng, decide)
        self.mutating = WebhookConfigurations(
            objects,
            resources,
            resources.require(GROUP, "v1", "mutatingwebhookconfigurations"),
            namespaces,
        )
        self.validating = WebhookConfigurations(
            objects,
            resources,
            resources.require(GROUP, "v1", "validatingwebhookconfigurations"),
            namespaces,
        )

    def start(self) -> None:
        self.mutating.start()
        self.validating.start()

    def stop(self) -> None:
        self.mutating.stop()
        self.validating.stop()
