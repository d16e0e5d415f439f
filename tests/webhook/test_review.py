"""Reviews and their responses, and requests that are not reviews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from transom.http import HttpRequest
from transom.machinery import validation
from transom.machinery.kinds import BY_KEY
from transom.webhook import manifests
from transom.webhook.review import InvalidReview, answer_review
from transom.webhook.server import WebhookHandler
from transom.windows.advice import Advisor
from transom.windows.policy import WarningPolicy
from transom.windows.target_nodes import target_nodes_from_options

ROOT = Path(__file__).parents[2]
POD = {
    "metadata": {"name": "p"},
    "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "hostPID": True,
        "hostIPC": True,
        "containers": [{"name": "c", "image": "example/app"}],
    },
}


def advisor(*reject: str) -> Advisor:
    return Advisor(target_nodes_from_options(), WarningPolicy(reject=reject), lambda _: None)


def review(
    version: str = "v1", kind: str = "Pod", group: str = "", **request: Any
) -> dict[str, Any]:
    requested = {
        "uid": "u",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "operation": "CREATE",
        "object": POD,
        "oldObject": None,
        **request,
    }
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": requested,
    }


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_answers_come_in_the_version_of_the_question(version: str) -> None:
    got = answer_review(review(version), advisor("WIN-POD-005")).review
    assert got["apiVersion"] == f"admission.k8s.io/{version}"
    response = got["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("u", False, 403)
    assert response["status"]["message"].startswith("WIN-POD-005: spec.hostIPC: ")
    assert [text[:11] for text in response["warnings"]] == ["WIN-POD-004"]


@pytest.mark.parametrize(
    "requested",
    [
        {"operation": "DELETE", "object": None, "oldObject": POD},
        {"operation": "CONNECT"},
        {"operation": "UPDATE", "subResource": "status", "oldObject": POD},
        {"kind": "Pod", "group": "example.com"},
        {"kind": "Service"},
        {"object": {"spec": None}},
        {"object": {}},
    ],
)
def test_what_is_not_asked_about_passes(requested: dict[str, Any]) -> None:
    assert answer_review(review(**requested), advisor("WIN-*")).review["response"] == {
        "uid": "u",
        "allowed": True,
    }


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {},
        {"kind": "AdmissionReview"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v2"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": 1}},
    ],
)
def test_other_objects_are_not_reviews(bad: Any) -> None:
    with pytest.raises(InvalidReview):
        answer_review(bad, advisor())


def ask(handler: WebhookHandler, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    got = handler(HttpRequest(method, path.encode(), path, {}, body))
    assert isinstance(got.body, bytes)
    return got.status, got.body.decode()


def test_the_server_counts_what_it_says() -> None:
    handler = WebhookHandler(advisor("WIN-POD-005"))
    assert ask(handler, "POST", "/validate", orjson.dumps(review()))[0] == 200
    assert (
        ask(handler, "POST", "/validate", orjson.dumps(review(operation="DELETE", object=None)))[0]
        == 200
    )
    status, text = ask(handler, "GET", "/metrics")
    assert status == 200
    for line in (
        'transom_webhook_reviews_total{operation="CREATE",allowed="false"} 1',
        'transom_webhook_reviews_total{operation="DELETE",allowed="true"} 1',
        'transom_webhook_records_total{outcome="refused",id="WIN-POD-005"} 1',
        'transom_webhook_records_total{outcome="warned",id="WIN-POD-004"} 1',
    ):
        assert f"\n{line}\n" in text


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/healthz", b"", 200),
        ("GET", "/readyz", b"", 200),
        ("GET", "/", b"", 404),
        ("GET", "/validate", b"", 405),
        ("POST", "/validate", b"{", 400),
        ("POST", "/validate", b"{}", 400),
        ("POST", "/metrics", b"", 405),
    ],
)
def test_other_requests(method: str, path: str, body: bytes, status: int) -> None:
    assert ask(WebhookHandler(advisor()), method, path, body)[0] == status


def test_the_manifest_in_the_repository_is_fresh() -> None:
    stored = list(yaml.safe_load_all((ROOT / "deploy" / "webhook.yaml").read_text()))
    assert stored == manifests.webhook_manifests()


def test_the_webhook_has_nothing_to_say_about_its_own_deployment() -> None:
    deployment = next(obj for obj in manifests.webhook_manifests() if obj["kind"] == "Deployment")
    assert advisor("WIN-*").review("Deployment", deployment) == ((), ())


def test_the_manifest_carries_keys() -> None:
    objects = {
        obj["kind"]: obj
        for obj in manifests.webhook_manifests(
            ["--build", "ltsc2022"], keys=manifests.WebhookKeys(b"c", b"k", b"a")
        )
    }
    assert objects["Secret"]["data"] == {"tls.crt": "Yw==", "tls.key": "aw=="}
    hook = objects["ValidatingWebhookConfiguration"]["webhooks"][0]
    assert hook["clientConfig"]["caBundle"] == "YQ=="
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")
    assert objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == [
        "--build",
        "ltsc2022",
    ]
    assert "Certificate" not in objects
    kind = BY_KEY["admissionregistration.k8s.io/ValidatingWebhookConfiguration"]
    assert validation.validate_create(kind, objects["ValidatingWebhookConfiguration"]) == []
