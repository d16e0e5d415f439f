"""GMSACredentialSpec: the custom resource for the credential specs of a domain.

The definition is that of kubernetes-sigs/windows-gmsa. The admission plugin controls the use by
pods.
"""

from __future__ import annotations

from typing import Final

from transom.client.api import ApiClient, is_already_exists, is_not_found
from transom.client.resources import builtin_resource
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

GROUP: Final = "windows.k8s.io"
VERSION: Final = "v1"
PLURAL: Final = "gmsacredentialspecs"
FIELD: Final = "credspec"
_DEFINITIONS: Final = builtin_resource("apiextensions.k8s.io/CustomResourceDefinition")
# Groups below k8s.io are reserved; this is the approval of this one.
_APPROVAL: Final = (
    "https://github.com/kubernetes/enhancements/tree/master/keps/sig-windows/689-windows-gmsa"
)


def _strings(*names: str) -> Object:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def _list(items: Object) -> Object:
    return {"type": "array", "items": items}


_SCHEMA: Final[Object] = {
    "type": "object",
    "properties": {
        FIELD: {
            "description": "GMSA Credential Spec",
            "type": "object",
            "properties": {
                "ActiveDirectoryConfig": {
                    "type": "object",
                    "properties": {
                        "GroupManagedServiceAccounts": _list(_strings("Name", "Scope")),
                        "HostAccountConfig": _strings(
                            "PluginGUID", "PluginInput", "PortableCcgVersion"
                        ),
                    },
                },
                "CmsPlugins": _list({"type": "string"}),
                "DomainJoinConfig": _strings(
                    "DnsName",
                    "DnsTreeName",
                    "Guid",
                    "MachineAccountName",
                    "NetBiosName",
                    "Sid",
                ),
            },
        }
    },
}

DEFINITION: Final[Object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": _APPROVAL},
    },
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {"kind": "GMSACredentialSpec", "plural": PLURAL},
        "conversion": {"strategy": "None"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": False,
                "deprecated": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
            },
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
            },
        ],
    },
}


async def ensure_gmsa_resource(client: ApiClient) -> None:
    """Creates the definition unless it exists."""
    try:
        await client.get(_DEFINITIONS, "", DEFINITION["metadata"]["name"])
        return
    except ApiError as problem:
        if not is_not_found(problem):
            raise
    try:
        await client.create(_DEFINITIONS, "", DEFINITION)
    except ApiError as problem:
        if not is_already_exists(problem):
            raise
