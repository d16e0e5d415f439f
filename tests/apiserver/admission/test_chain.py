"""The order of the admission plugins, and the requests that each of them sees."""

from __future__ import annotations

from typing import Any

from tests.apiserver.admission.support import PODS, pod, run
from tests.inline_workers import InlineWorkers

from transom.apiserver.admission.chain import AdmissionChain
from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import RequestContext, UserInfo
from transom.apiserver.core.resources import ResourceRegistry

ORDER = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
]


async def test_the_order_is_that_of_kubernetes() -> None:
    async with run() as api:
        names = [plugin.name for plugin in api.server.admission_plugins]
        assert [name for name in names if name != "RoleEscalation"] == ORDER
        assert names.index("RoleEscalation") > names.index("MutatingAdmissionWebhook")


class Recorder(MutatingPlugin, ValidatingPlugin):
    name = ""
    thread_safe = False

    def __init__(self, name: str, log: list[str], kinds: tuple[str, ...] = ()) -> None:
        self._name = name
        self._log = log
        self._kinds = kinds

    def handles(self, resource: Any, operation: str, subresource: str) -> bool:
        return not self._kinds or resource.kind.key in self._kinds

    def admit(self, attributes: Attributes) -> None:
        self._log.append(f"{self._name} admits")

    async def validate(self, attributes: Attributes) -> None:
        self._log.append(f"{self._name} validates")


async def test_a_request_passes_the_links_that_want_it_in_order() -> None:
    log: list[str] = []
    chain = AdmissionChain(
        [Recorder("one", log), Recorder("two", log, ("/Node",)), Recorder("three", log, ("/Pod",))],
        InlineWorkers(),
    )
    pods = ResourceRegistry().find("", "v1", "pods")
    assert pods is not None
    attributes = Attributes(
        "CREATE", pods, "", "default", "p", {"metadata": {}}, None, RequestContext(UserInfo("u"), 0)
    )

    for _ in range(2):  # the second time from memory
        await chain.admit(attributes)
        await chain.validate(attributes)
    assert log == ["one admits", "three admits", "one validates", "three validates"] * 2


async def test_a_refusal_names_the_object_even_when_its_name_is_to_come() -> None:
    async with run() as api:
        nameless = {**pod(priorityClassName="ghost"), "metadata": {"generateName": "web-"}}
        status, answer = await api.call("POST", PODS, nameless)
        assert status == 403
        assert (
            answer["message"]
            == 'pods "web-" is forbidden: no PriorityClass with name ghost was found'
        )
        assert answer["details"] == {"name": "web-", "kind": "pods"}
