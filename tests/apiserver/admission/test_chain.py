"""The order of the plugins, and who is asked about what."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.apiserver.admission.support import PODS, pod, run
from tests.apiserver.harness import Api

from transom.apiserver.admission import order
from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.admission.chain import Chain
from transom.apiserver.context import Context, User
from transom.apiserver.resources import Resources

ORDER = [
    "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "Priority",
    "DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection", "PersistentVolumeClaimResize",
    "RuntimeClass", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
    "DefaultIngressClass", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ResourceQuota",
]


def test_the_order_is_that_of_kubernetes() -> None:
    async def body(api: Api) -> None:
        names = [plugin.name for plugin in order.plugins(api.server)]
        assert [name for name in names if name != "RoleEscalation"] == ORDER
        assert names.index("RoleEscalation") > names.index("MutatingAdmissionWebhook")

    run(body)


class Recorder:
    def __init__(self, name: str, log: list[str], kinds: tuple[str, ...] = ()) -> None:
        self.name = name
        self._log = log
        self._kinds = kinds

    def handles(self, resource: Any, operation: str, subresource: str) -> bool:
        return not self._kinds or resource.kind.key in self._kinds

    def admit(self, attributes: Attributes) -> None:
        self._log.append(f"{self.name} admits")

    async def validate(self, attributes: Attributes) -> None:
        self._log.append(f"{self.name} validates")


def test_a_request_passes_the_links_that_want_it_in_order() -> None:
    log: list[str] = []
    chain = Chain([Recorder("one", log), Recorder("two", log, ("/Node",)), Recorder("three", log, ("/Pod",))])
    pods = Resources().find("", "v1", "pods")
    assert pods is not None
    attributes = Attributes("CREATE", pods, "", "default", "p", {"metadata": {}}, None, Context(User("u"), 0))

    async def body() -> None:
        for _ in range(2):  # the second time from memory
            await chain.admit(attributes)
            await chain.validate(attributes)

    asyncio.run(body())
    assert log == ["one admits", "three admits", "one validates", "three validates"] * 2


def test_a_refusal_names_the_object_even_when_its_name_is_to_come() -> None:
    async def body(api: Api) -> None:
        nameless = {**pod(priorityClassName="ghost"), "metadata": {"generateName": "web-"}}
        status, answer = await api.call("POST", PODS, nameless)
        assert status == 403
        assert answer["message"] == 'pods "web-" is forbidden: no PriorityClass with name ghost was found'
        assert answer["details"] == {"name": "web-", "kind": "pods"}

    run(body)
