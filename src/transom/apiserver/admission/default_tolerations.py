"""DefaultTolerationSeconds: by default, a pod tolerates an unreachable or not-ready node for five
minutes.
"""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource

SECONDS = 300
_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds(MutatingPlugin):
    name = "DefaultTolerationSeconds"
    thread_safe = True

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Pod" and operation in ("CREATE", "UPDATE") and not subresource

    def admit(self, attributes: Attributes) -> None:
        spec = attributes.obj["spec"]
        given = spec.get("tolerations") or []
        covered = {t.get("key", "") for t in given if t.get("effect", "") in ("", "NoExecute")}
        if "" in covered:
            return
        missing = [key for key in _KEYS if key not in covered]
        if missing:
            spec["tolerations"] = [
                *given,
                *(
                    {
                        "key": key,
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": SECONDS,
                    }
                    for key in missing
                ),
            ]
