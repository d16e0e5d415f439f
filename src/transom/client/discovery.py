"""Discovers the resources of a server, including custom and aggregated ones, from its discovery
documents.
"""

from __future__ import annotations

from collections.abc import Mapping

from transom.client.api import ApiClient
from transom.client.resources import GroupVersionResource
from transom.kit.named_tuple import NamedTuple
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object


class DiscoveredResource(NamedTuple):
    resource: GroupVersionResource
    verbs: frozenset[str]


class DiscoveryFailed(Exception):
    """Some group versions did not respond; the others are known."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        texts = sorted(f"{group_version}: {problem}" for group_version, problem in failures.items())
        super().__init__(f"unable to retrieve the complete list of server APIs: {', '.join(texts)}")
        self.failures = dict(failures)


async def preferred_resources(
    client: ApiClient,
) -> tuple[list[DiscoveredResource], DiscoveryFailed | None]:
    """Every resource once, in the preferred version of its group or else the first that has it; and
    the failures.
    """
    core = (await client.get_json("/api"))["versions"]
    groups = [("", core[0], core)]
    for group in (await client.get_json("/apis"))["groups"]:
        versions = [version["version"] for version in group["versions"]]
        groups.append((group["name"], group["preferredVersion"]["version"], versions))
    found: dict[tuple[str, str], DiscoveredResource] = {}
    failures: dict[str, Exception] = {}
    for name, preferred, versions in groups:
        for version in sorted(versions, key=lambda version: version != preferred):
            group_version = f"{name}/{version}" if name else version
            try:
                document = await client.get_json(
                    f"/apis/{group_version}" if name else f"/api/{version}"
                )
            except (ApiError, OSError) as problem:
                failures[group_version] = problem
                continue
            for row in listed_resources(document):
                if "/" not in row["name"]:
                    found.setdefault((name, row["name"]), _discovered(name, version, row))
    return [*found.values()], DiscoveryFailed(failures) if failures else None


def _discovered(group: str, version: str, row: Object) -> DiscoveredResource:
    resource = GroupVersionResource(
        row.get("group") or group,
        row.get("version") or version,
        row["name"],
        row["namespaced"],
        row["kind"],
    )
    return DiscoveredResource(resource, frozenset(row.get("verbs") or ()))
