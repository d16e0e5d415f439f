"""Pods as an older kubelet reads them: it does not know the fields of newer releases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Final

from transom.machinery.kinds import GVK
from transom.machinery.normalise import normalise_value
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.schema import SchemaType, schema_table

_POD: Final = GVK("", "v1", "Pod")


def pod_decoder(
    release: tuple[int, int],
    gates: Mapping[str, bool],
    server: tuple[int, int],
    server_gates: Collection[str],
) -> Callable[[Object], Object] | None:
    """None where the kubelet knows all fields of the API server's pods. `server_gates` are those
    of its flag: "Name=true". Fields whose gate is off in the kubelet have no effect there, so they
    are left out, too.
    """
    off = {name for name, on in gates.items() if not on and f"{name}=false" not in server_gates}
    if tuple(release) >= tuple(server) and not off:
        return None
    of = _pod_type(Release(*release), frozenset(gates.items()))
    return lambda pod: normalise_value(of, pod)


@lru_cache(maxsize=16)
def _pod_type(release: Release, gates: frozenset[tuple[str, bool]]) -> SchemaType:
    found = schema_table(release, dict(gates)).lookup(_POD)
    assert found is not None, "every release has pods"
    return found
