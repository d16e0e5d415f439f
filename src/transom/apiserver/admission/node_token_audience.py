"""The part of NodeRestriction that asks the authorizer: the audiences of the tokens, and the
signers of the certificates, that a kubelet requests for its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from transom.apiserver.admission.node_restriction import Find
from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.authorization.node import node_name
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.resources import Resource
from transom.kit.goquote import go_quote
from transom.machinery.objects import Object
from transom.machinery.pod_references import projected_sources

FindDriver = Callable[[str], Object | None]
Decide = Callable[[UserInfo, RequestInfo], Decision]
_AUDIENCE_VERB = "request-serviceaccounts-token-audience"
_SIGNER_VERB = "request-serviceaccounts-podcertificate-signer"


class NodeTokenAudience(MutatingPlugin):
    """Runs after NodeRestriction, which has checked that the pod is on the node."""

    name = "NodeRestriction"
    thread_safe = False

    def __init__(self, find: Find, find_driver: FindDriver, decide: Decide) -> None:
        """`find_driver` finds a CSIDriver by name."""
        self._find = find
        self._find_driver = find_driver
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        token = operation == "CREATE" and subresource == "token"
        return token and resource.kind.key == "/ServiceAccount"

    def admit(self, attributes: Attributes) -> None:
        """The audience must be one that the pod uses, or that the node may request."""
        user, spec = attributes.ctx.user, attributes.obj.get("spec") or {}
        if node_name(user) is None:
            return
        audiences = spec.get("audiences") or []
        if len(audiences) > 1:
            raise attributes.forbidden("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        pod = self._find("pods", attributes.namespace, spec["boundObjectRef"]["name"])
        if pod is not None and audience in self._audiences(pod):
            return
        request_info = RequestInfo(
            True, "", _AUDIENCE_VERB, "", "v1", attributes.namespace, audience, attributes.name
        )
        if not self._decide(user, request_info).allowed:
            raise attributes.forbidden(
                f"audience {go_quote(audience)} not found in pod spec volume, {user.name} is not "
                "authorized to request tokens for this audience"
            )

    def _audiences(self, pod: Object) -> Iterator[str]:
        for source in projected_sources(pod["spec"]):
            if "serviceAccountToken" in source:
                yield source["serviceAccountToken"].get("audience") or ""
        for volume in pod["spec"].get("volumes") or ():
            name = self._driver_name(pod, volume)
            driver = self._find_driver(name) if name else None
            for request in ((driver or {}).get("spec") or {}).get("tokenRequests") or ():
                yield request.get("audience") or ""

    def _driver_name(self, pod: Object, volume: Object) -> str:
        """The CSI driver of a volume, or ""."""
        if "csi" in volume:
            return str(volume["csi"].get("driver") or "")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if "ephemeral" in volume:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        if not claim:
            return ""
        found = self._find("persistentvolumeclaims", pod["metadata"]["namespace"], claim) or {}
        name = (found.get("spec") or {}).get("volumeName") or ""
        bound = (self._find("persistentvolumes", "", name) or {}) if name else {}
        return str(((bound.get("spec") or {}).get("csi") or {}).get("driver") or "")


class NodePodCertificateSigner(MutatingPlugin):
    """Runs after NodeRestriction, which has checked that the pod is on the node."""

    name = "NodeRestriction"
    thread_safe = False

    def __init__(self, find: Find, decide: Decide) -> None:
        self._find = find
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = "certificates.k8s.io/PodCertificateRequest"
        return operation == "CREATE" and not subresource and resource.kind.key == key

    def admit(self, attributes: Attributes) -> None:
        """The signer must be one that the pod names, or that the node may use."""
        user, spec = attributes.ctx.user, attributes.obj.get("spec") or {}
        if node_name(user) is None:
            return
        namespace, signer = attributes.namespace, spec.get("signerName") or ""
        pod = self._find("pods", namespace, spec["podName"])
        sources = [] if pod is None else projected_sources(pod["spec"])
        if any((one.get("podCertificate") or {}).get("signerName") == signer for one in sources):
            return
        # As in the names of ClusterTrustBundles: rules of roles cannot contain slashes.
        request_info = RequestInfo(
            True,
            "",
            _SIGNER_VERB,
            "certificates.k8s.io",
            attributes.resource.version,
            namespace,
            signer.replace("/", ":"),
            spec.get("serviceAccountName") or "",
        )
        if not self._decide(user, request_info).allowed:
            raise attributes.forbidden(
                f"pod {go_quote(namespace + '/' + spec['podName'])} does not mount a podCertificate "
                f"projected volume for signer {go_quote(signer)}"
            )
