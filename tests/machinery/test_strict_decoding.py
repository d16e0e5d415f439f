"""Unknown and duplicate fields are found, however the body is written."""

from __future__ import annotations

import json

import pytest

from transom.machinery.kinds import GVK
from transom.machinery.releases import Release
from transom.machinery.schema import schema_table
from transom.machinery.strictness import is_clean, strict_decoding_problems


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ('{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","env":[]}]}}', []),
        ('{"metadata" : {"name":"a"}}', []),
        ('{"metadata":{"labels":{"a":": \\": x"}}}', []),
        ('{"metadata":{"labels":{"a\\\\":"b"}}}', []),
        ('{"metadata":{"name":"a"},"spec":{"foo":1}}', ['unknown field "spec.foo"']),
        (
            '{"metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","nam":1}]}}',
            ['duplicate field "metadata.name"', 'unknown field "spec.containers[0].nam"'],
        ),
        (
            '{"metadata":{"labels":{"a\\\\":"1","a\\\\":"2"}}}',
            ['duplicate field "metadata.labels.a\\\\"'],
        ),
        ('{"spec":{"nodeSelector":{"a":"1","a" :"2"}}}', ['duplicate field "spec.nodeSelector.a"']),
        (
            '{"spec":{"volumes":[{"name":"v","csi":{"volumeAttributes":{"x":"y","x":"z"}}}]}}',
            ['duplicate field "spec.volumes[0].csi.volumeAttributes.x"'],
        ),
    ],
)
def test_fields_of_a_pod(body: str, problems: list[str]) -> None:
    pod = schema_table(Release(1, 36)).lookup(GVK("", "v1", "Pod"))
    assert strict_decoding_problems(pod, body.encode(), False) == problems
    assert pod is not None
    assert not (problems and is_clean(pod, json.loads(body), body.encode()))


def test_a_count_of_keys_shows_that_a_body_is_clean() -> None:
    pod = schema_table(Release(1, 36)).lookup(GVK("", "v1", "Pod"))
    assert pod is not None
    body = {
        "metadata": {"name": "a", "labels": {"b": "c"}, "ownerReferences": [{"name": "d"}]},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": 1}}, "args": ["x"]}],
            "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {}},
        },
    }
    assert is_clean(pod, body, json.dumps(body).encode())
    body["spec"]["containers"][0]["ports"] = [{"port": 1}]  # type: ignore[index]
    assert not is_clean(pod, body, json.dumps(body).encode())
