"""Which documents about the API a release serves: aggregated discovery and OpenAPI v3."""

from __future__ import annotations

from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.release import DEFAULT, TABLES_SINCE, Release


def aggregated_discovery_versions(release: Release) -> tuple[str, ...]:
    """Versions of apidiscovery.k8s.io. 1.20 serves both, so that current clients are fast."""
    if release < TABLES_SINCE:
        return ("v2", "v2beta1") if release >= DEFAULT else ()
    if not is_enabled(release, "AggregatedDiscoveryEndpoint"):
        return ()
    versions: tuple[str, ...] = ("v2",) if has_behaviour(release, "AggregatedDiscoveryV2") else ()
    if not is_enabled(release, "AggregatedDiscoveryRemoveBetaType"):
        versions += ("v2beta1",)
    return versions


def has_openapi_v3(release: Release) -> bool:
    """Also 1.20 has it, for current clients."""
    if release < TABLES_SINCE:
        return release >= DEFAULT
    return is_enabled(release, "OpenAPIV3")
