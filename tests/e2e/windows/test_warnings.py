"""What kubectl shows of pods that use what Windows cannot do."""

from __future__ import annotations

import json

import pytest
from tests.e2e.windows.conftest import Place

pytestmark = pytest.mark.e2e


def pod(os: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"on-{os}"},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": os},
                "hostPID": True,
                "containers": [{"name": "c", "image": "example/app"}],
            },
        }
    )


@pytest.mark.windows("API-32", "WIN-POD-004")
def test_apply_warns_of_windows_pods_alone(place: Place) -> None:
    def apply(os: str) -> str:
        return place.kubectl(
            "--namespace", place.namespace, "apply", "--filename", "-", stdin=pod(os)
        ).stderr

    assert apply("windows").startswith(
        "Warning: WIN-POD-004: spec.hostPID: hostPID is ignored. Remove hostPID; "
    )
    assert apply("linux") == ""
