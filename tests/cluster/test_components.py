"""Separate components follow the release of the API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from transom.client.api import ApiClient
from transom.cluster.components import running_scheduler
from transom.machinery.errors import ApiError
from transom.machinery.releases import BUILDS, parse_release

NEWEST = str(max(parse_release(name) for name in BUILDS))


class Server:
    """An API server that has only these documents."""

    def __init__(self, **documents: Any) -> None:
        self._documents = documents

    async def get_json(self, path: str) -> Any:
        name = path.rpartition("/")[2]
        if name not in self._documents:
            raise ApiError(404, "NotFound", path)
        return self._documents[name]


@pytest.mark.parametrize(
    ("major", "minor", "release"),
    [("1", "20", "1.20"), ("1", "36", "1.36"), ("1", "27+", "1.27"), ("1", "99", NEWEST)],
)
async def test_the_scheduler_of_any_cluster(major: str, minor: str, release: str) -> None:
    server = cast(ApiClient, Server(version={"major": major, "minor": minor}))
    features, config = await running_scheduler(server)
    assert (str(features.release), config) == (release, None)


async def test_the_gates_and_the_configuration_of_a_transom_cluster() -> None:
    configuration = (
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
        "profiles: [{schedulerName: mine}]}"
    )
    server = Server(
        version={"major": "1", "minor": "36"},
        scheduler={"configuration": configuration, "featureGates": {"Name": True}},
    )
    features, config = await running_scheduler(cast(ApiClient, server))
    assert features.enabled("Name")
    assert config is not None and config.profiles[0].scheduler_name == "mine"
