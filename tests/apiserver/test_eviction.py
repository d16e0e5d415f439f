"""Evictions and bindings: the options inside an eviction count like those of a delete."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.harness import start

DEFAULT = "/api/v1/namespaces/default"


@pytest.mark.parametrize(("query", "options", "status", "text"), [
    ("", {"propagationPolicy": "X"}, 422, 'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: '
     '"X": supported values: "Foreground", "Background", "Orphan", "nil"'),
    ("?dryRun=All", {"dryRun": ["Some"]}, 500, "Non-matching dry-run options in request and content: [All] and [Some]"),
    ("?dryRun=All", {}, 201, None),
    ("", {"dryRun": ["All"]}, 201, None),
])
def test_options_of_an_eviction(query: str, options: Any, status: int, text: str | None) -> None:
    async def main() -> None:
        api = await start()
        await api.ok("POST", DEFAULT + "/serviceaccounts", {"metadata": {"name": "default"}})
        await api.ok("POST", DEFAULT + "/pods", {"metadata": {"name": "p"}, "spec": {
            "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}})
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options}
        got, answer = await api.call("POST", DEFAULT + "/pods/p/eviction" + query, eviction)
        assert (got, answer.get("message")) == (status, text)
        assert (await api.call("GET", DEFAULT + "/pods/p"))[0] == 200

    asyncio.run(main())


def test_a_binding_names_its_pod() -> None:
    async def main() -> None:
        api = await start()
        status, problem = await api.call("POST", DEFAULT + "/bindings", {"target": {"name": "n"}})
        assert (status, problem["message"]) == (400, "Name parameter required.")

    asyncio.run(main())
