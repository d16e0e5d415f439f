"""Which documents about the API each release serves."""

from __future__ import annotations

import pytest

from transom.machinery.releases import Release
from transom.machinery.releases.documents import aggregated_discovery_versions, has_openapi_v3


@pytest.mark.parametrize(
    ("minor", "versions", "openapi_v3"),
    [
        (19, (), False),
        (20, ("v2", "v2beta1"), True),
        (23, (), False),
        (26, (), True),
        (27, ("v2beta1",), True),
        (30, ("v2", "v2beta1"), True),
        (33, ("v2",), True),
        (36, ("v2",), True),
    ],
)
def test_documents(minor: int, versions: tuple[str, ...], openapi_v3: bool) -> None:
    assert aggregated_discovery_versions(Release(1, minor)) == versions
    assert has_openapi_v3(Release(1, minor)) is openapi_v3
