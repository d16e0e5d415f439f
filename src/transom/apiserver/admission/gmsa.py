"""Group managed service accounts: what the admission webhooks of kubernetes-sigs/windows-gmsa do, built in.

A pod names a GMSACredentialSpec; its contents are copied into the pod, and the pod's service account must have the verb
`use` on it. Refusals read as if the webhook had answered. Whoever installs that webhook himself gets its answers alone.

One rule is softer here: contents without a name are refused only where there is a GMSACredentialSpec. In a cluster that
has none nobody manages credentials as resources, and there Kubernetes without the webhook takes such pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from transom.apiserver import gmsa
from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.context import User
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.apiserver.webhooks.review import denial
from transom.machinery import gojson, serviceaccounts
from transom.machinery.errors import ApiError
from transom.machinery.field import go_quote
from transom.machinery.objects import Object, same_json

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

WEBHOOK: Final = "admission-webhook.windows-gmsa.sigs.k8s.io"
# Label of a namespace whose pods are left alone: that of the project's script, and that of its chart.
_EXEMPTING: Final = (("gmsa-webhook", "disabled"), ("windows.k8s.io/disabled", "true"))
_NAME, _CONTENTS = "gmsaCredentialSpecName", "gmsaCredentialSpec"
_FORBIDDEN, _NOT_FOUND, _NO_CONTENTS, _UNPROCESSABLE, _INTERNAL = 403, 404, 417, 422, 500


class Options(NamedTuple):
    """The Windows options of a pod or of one of its containers."""

    kind: str  # as the texts call it
    name: str
    given: Object


def windows_options(pod: Object) -> Iterator[Options]:
    """Init containers are not looked at, as the webhook does not."""
    spec = pod["spec"]
    given = (spec.get("securityContext") or {}).get("windowsOptions")
    if given is not None:
        yield Options("pod", pod["metadata"].get("name", ""), given)
    for container in spec.get("containers") or ():
        given = (container.get("securityContext") or {}).get("windowsOptions")
        if given is not None:
            yield Options("container", container["name"], given)


def _concerned(pod: Object) -> bool:
    return any(_NAME in options.given or _CONTENTS in options.given for options in windows_options(pod))


class WindowsGmsa:
    name = "WindowsGmsa"

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._decide = server.security.decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Pod" and operation in ("CREATE", "UPDATE") and not subresource

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.operation != "CREATE" or not _concerned(attributes.obj):
            return None
        if self._server.admission_webhooks.mutating.has(WEBHOOK) or self._exempt(attributes.namespace):
            return None
        return self._inline(attributes.obj)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        if not _concerned(attributes.obj):
            return None
        if self._server.admission_webhooks.validating.has(WEBHOOK) or self._exempt(attributes.namespace):
            return None
        if attributes.operation == "UPDATE":
            check_unchanged(attributes.obj, attributes.old or {})
            return None
        return self._check(attributes.obj, attributes.namespace)

    def _exempt(self, namespace: str) -> bool:
        found = self._server.find_core("namespaces", "", namespace)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        return any(labels.get(key) == value for key, value in _EXEMPTING)

    async def _inline(self, pod: Object) -> None:
        for options in list(windows_options(pod)):
            name = options.given.get(_NAME)
            if name is not None and options.given.get(_CONTENTS) is None:
                options.given[_CONTENTS] = await self._contents(name)

    async def _check(self, pod: Object, namespace: str) -> None:
        account = pod["spec"].get("serviceAccountName", "")
        for kind, owner, given in list(windows_options(pod)):
            name, contents = given.get(_NAME), given.get(_CONTENTS)
            if name is None:
                if contents is not None and self._managed():
                    raise _refused(_UNPROCESSABLE, f"{kind} {go_quote(owner)} has a GMSA cred spec set, but does not "
                                                   "define the name of the corresponding resource")
                continue
            self._check_right(account, namespace, name)
            if contents is None:
                continue
            mismatch = _difference(contents, await self._contents(name))
            if mismatch is not None:
                raise _refused(_UNPROCESSABLE, f"the GMSA cred spec contents for {kind} {go_quote(owner)} does not match "
                                               f"the contents of GMSA resource {go_quote(name)}{mismatch}")

    def _check_right(self, account: str, namespace: str, name: str) -> None:
        user = User(serviceaccounts.user_name(namespace, account), serviceaccounts.group_names(namespace))
        asked = RequestInfo(True, "", "use", gmsa.GROUP, gmsa.VERSION, namespace, gmsa.PLURAL, name)
        decision = self._decide(user, asked)
        if decision.allowed is not True:
            why = f", reason: {go_quote(decision.reason)}" if decision.reason else ""
            raise _refused(_FORBIDDEN, f"service account {go_quote(account)} is not authorized to `use` GMSA cred spec "
                                       f"{go_quote(name)}{why}")

    def _resource(self) -> Resource | None:
        return self._server.resources.find(gmsa.GROUP, gmsa.VERSION, gmsa.PLURAL)

    def _managed(self) -> bool:
        resource = self._resource()
        return resource is not None and self._server.storage.store.count(resource.key_prefix("")) > 0

    async def _contents(self, name: str) -> str:
        """The contents of a credential spec as the JSON text that pods carry."""
        resource = self._resource()
        if resource is None:
            raise _irretrievable(name, "the server could not find the requested resource")
        if not name:
            raise _irretrievable(name, "name is required")
        storage = self._server.storage
        record = storage.store.get(resource.key("", name))
        if record is None:
            raise _refused(_NOT_FOUND, f"cred spec {name} does not exist")
        try:
            spec = storage.decode(resource, await storage.readable(resource, record))
        except ApiError as problem:  # of a conversion webhook
            raise _irretrievable(name, problem.message) from None
        if spec.get(gmsa.FIELD, "") == "":
            raise _refused(_NO_CONTENTS, f"cred spec {name} does not have a {gmsa.FIELD} key")
        return gojson.marshal(spec[gmsa.FIELD]).decode()


def check_unchanged(pod: Object, old: Object) -> None:
    """What a pod may do as whom is settled when it is made."""
    before = {(options.kind, options.name): options.given for options in windows_options(old)}
    for kind, owner, given in windows_options(pod):
        was = before.get((kind, owner), {})
        changed = [word for word, key in (("name", _NAME), ("contents", _CONTENTS)) if given.get(key) != was.get(key)]
        if changed:
            raise _refused(_FORBIDDEN, f"cannot update an existing pod's GMSA settings (GMSA {' and '.join(changed)} "
                                       f"modified on {kind} {go_quote(owner)})")


def _difference(given: str, stored: str) -> str | None:
    """None when both are the same JSON object, else what is to be said of the difference: often nothing."""
    if given == stored:
        return None
    mistake = gojson.syntax_error(given.encode())
    value = None if mistake else orjson.loads(given)
    if mistake is None and not isinstance(value, dict | None):
        kind = gojson.kind_of(given.strip().encode())
        mistake = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    if mistake is not None:
        return f": unable to parse {go_quote(given)} as a JSON object: {mistake}"
    return None if same_json(value, orjson.loads(stored)) else ""


def _irretrievable(name: str, why: str) -> ApiError:
    return _refused(_INTERNAL, f"unable to retrieve the contents of cred spec {name}: {why}")


def _refused(code: int, why: str) -> ApiError:
    return denial(WEBHOOK, {"code": code, "message": why})
