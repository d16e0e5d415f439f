"""Revisions: the bytes of a template, by which clients find the current one."""

from __future__ import annotations

import orjson

from transom.controllers import history


def test_names_are_in_order_at_every_level() -> None:
    template = {
        "spec": {
            "restartPolicy": "Always",
            "containers": [{"name": "app", "image": "web", "env": [{"value": 1, "name": ""}]}],
        },
        "metadata": {"labels": {"b": "1", "a": "2"}, "creationTimestamp": None},
    }
    owner = {"metadata": {"name": "ds"}, "spec": {"template": template}}
    assert orjson.dumps(history.revision_patch(owner)) == (
        b'{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"2","b":"1"}},'
        b'"spec":{"containers":[{"env":[{"name":"","value":1}],"image":"web","name":"app"}],"restartPolicy":"Always"}}}}'
    )
    revision = {"data": history.revision_patch(owner)}
    assert history.restored_object(owner, revision) == owner
