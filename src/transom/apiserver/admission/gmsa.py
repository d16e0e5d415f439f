"""Group managed service accounts: built-in equivalent of the admission webhooks of
kubernetes-sigs/windows-gmsa.

A pod names a GMSACredentialSpec; its contents are copied into the pod, and the pod's service
account must have the verb `use` on it. Rejections have the webhook's texts. If the webhook itself
is installed, it replaces this plugin.

One rule is less strict: contents without a name are rejected only if a GMSACredentialSpec exists. A
cluster without any does not manage credentials as resources, and Kubernetes without the webhook
accepts such pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Final

import orjson

from transom.apiserver.admission import gmsa_resource as gmsa
from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.admission.webhooks import AdmissionWebhooks
from transom.apiserver.authorization.chain import Authorizer
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.objectstore import FindCore, ObjectStore
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.webhooks.review import webhook_denial
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors, gojson, serviceaccounts
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, same_json

WEBHOOK: Final = "admission-webhook.windows-gmsa.sigs.k8s.io"
# Namespace labels that exempt pods: that of the project's script, and that of its chart.
_EXEMPTING: Final = (("gmsa-webhook", "disabled"), ("windows.k8s.io/disabled", "true"))
# the maximum number of characters of credential specs in one pod
_MOST_CONTENTS: Final = 2 * 1024 * 1024
_NAME, _CONTENTS = "gmsaCredentialSpecName", "gmsaCredentialSpec"
_FORBIDDEN, _NOT_FOUND, _NO_CONTENTS, _UNPROCESSABLE, _INTERNAL = 403, 404, 417, 422, 500


class GmsaOptions(NamedTuple):
    """The Windows options of a pod or of one of its containers."""

    kind: str  # as used in messages
    name: str
    given: Object


def gmsa_options_of(pod: Object) -> Iterator[GmsaOptions]:
    """Init containers are not checked; the webhook does not check them either."""
    spec = pod["spec"]
    given = (spec.get("securityContext") or {}).get("windowsOptions")
    if given is not None:
        yield GmsaOptions("pod", pod["metadata"].get("name", ""), given)
    for container in spec.get("containers") or ():
        given = (container.get("securityContext") or {}).get("windowsOptions")
        if given is not None:
            yield GmsaOptions("container", container["name"], given)


def _concerned(pod: Object) -> bool:
    return any(
        _NAME in options.given or _CONTENTS in options.given for options in gmsa_options_of(pod)
    )


class WindowsGmsa(MutatingPlugin, ValidatingPlugin):
    name = "WindowsGmsa"
    thread_safe = False

    def __init__(
        self,
        objects: ObjectStore,
        resources: ResourceRegistry,
        find: FindCore,
        decide: Authorizer,
        hooks: AdmissionWebhooks,
    ) -> None:
        self._objects = objects
        self._resources = resources
        self._find = find
        self._decide = decide
        self._hooks = hooks

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Pod" and operation in ("CREATE", "UPDATE") and not subresource

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.operation != "CREATE" or not _concerned(attributes.obj):
            return None
        if self._hooks.mutating.has(WEBHOOK) or self._exempt(attributes.namespace):
            return None
        return self._inline(attributes.obj)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        if not _concerned(attributes.obj):
            return None
        if self._hooks.validating.has(WEBHOOK) or self._exempt(attributes.namespace):
            return None
        if attributes.operation == "UPDATE":
            check_gmsa_unchanged(attributes.obj, attributes.old or {})
            return None
        return self._check(attributes.obj, attributes.namespace)

    def _exempt(self, namespace: str) -> bool:
        found = self._find("namespaces", "", namespace)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        return any(labels.get(key) == value for key, value in _EXEMPTING)

    async def _inline(self, pod: Object) -> None:
        known: dict[str, str] = {}
        size = 0
        for options in list(gmsa_options_of(pod)):
            name = options.given.get(_NAME)
            if name is not None and options.given.get(_CONTENTS) is None:
                if name not in known:
                    known[name] = await self._contents(name)
                size += len(known[name])
                if size > _MOST_CONTENTS:  # such a pod could not be stored
                    raise errors.too_large(_MOST_CONTENTS)
                options.given[_CONTENTS] = known[name]

    async def _check(self, pod: Object, namespace: str) -> None:
        account = pod["spec"].get("serviceAccountName", "")
        known: dict[str, str] = {}
        for kind, owner, given in list(gmsa_options_of(pod)):
            name, contents = given.get(_NAME), given.get(_CONTENTS)
            if name is None:
                if contents is not None and self._managed():
                    raise _refused(
                        _UNPROCESSABLE,
                        f"{kind} {go_quote(owner)} has a GMSA cred spec set, but does not "
                        "define the name of the corresponding resource",
                    )
                continue
            if name not in known:
                self._check_right(account, namespace, name)
                known[name] = await self._contents(name) if contents is not None else ""
            if contents is None:
                continue
            mismatch = _difference(contents, known[name] or await self._contents(name))
            if mismatch is not None:
                raise _refused(
                    _UNPROCESSABLE,
                    f"the GMSA cred spec contents for {kind} {go_quote(owner)} does not match "
                    f"the contents of GMSA resource {go_quote(name)}{mismatch}",
                )

    def _check_right(self, account: str, namespace: str, name: str) -> None:
        user = UserInfo(
            serviceaccounts.user_name(namespace, account), serviceaccounts.group_names(namespace)
        )
        request_info = RequestInfo(
            True, "", "use", gmsa.GROUP, gmsa.VERSION, namespace, gmsa.PLURAL, name
        )
        decision = self._decide(user, request_info)
        if decision.allowed is not True:
            why = f", reason: {go_quote(decision.reason)}" if decision.reason else ""
            raise _refused(
                _FORBIDDEN,
                f"service account {go_quote(account)} is not authorized to `use` GMSA cred spec "
                f"{go_quote(name)}{why}",
            )

    def _resource(self) -> Resource | None:
        return self._resources.find(gmsa.GROUP, gmsa.VERSION, gmsa.PLURAL)

    def _managed(self) -> bool:
        resource = self._resource()
        return resource is not None and self._objects.store.count(resource.key_prefix("")) > 0

    async def _contents(self, name: str) -> str:
        """The contents of a credential spec as the JSON text for pods."""
        resource = self._resource()
        if resource is None:
            raise _irretrievable(name, "the server could not find the requested resource")
        if not name:
            raise _irretrievable(name, "name is required")
        objects = self._objects
        record = objects.store.get(resource.key("", name))
        if record is None:
            raise _refused(_NOT_FOUND, f"cred spec {name} does not exist")
        try:
            spec = objects.decode(resource, await objects.readable(resource, record))
        except ApiError as problem:  # from a conversion webhook
            raise _irretrievable(name, problem.message) from None
        if spec.get(gmsa.FIELD, "") == "":
            raise _refused(_NO_CONTENTS, f"cred spec {name} does not have a {gmsa.FIELD} key")
        return gojson.marshal(spec[gmsa.FIELD]).decode()


def check_gmsa_unchanged(pod: Object, old: Object) -> None:
    """The identity of a pod is immutable after its creation."""
    before = {(options.kind, options.name): options.given for options in gmsa_options_of(old)}
    for kind, owner, given in gmsa_options_of(pod):
        was = before.get((kind, owner), {})
        changed = [
            word
            for word, key in (("name", _NAME), ("contents", _CONTENTS))
            if given.get(key) != was.get(key)
        ]
        if changed:
            raise _refused(
                _FORBIDDEN,
                f"cannot update an existing pod's GMSA settings (GMSA {' and '.join(changed)} "
                f"modified on {kind} {go_quote(owner)})",
            )


def _difference(given: str, stored: str) -> str | None:
    """None if both are the same JSON object, otherwise a description of the difference, which is
    often empty.
    """
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
    return webhook_denial(WEBHOOK, {"code": code, "message": why})
