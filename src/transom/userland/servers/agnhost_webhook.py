"""agnhost's webhook: a TLS server whose paths are admission webhooks."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from transom.userland.api import Program, ProgramContext
from transom.userland.servers import agnhost_tls, gomux
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import as_json, flag

Review = dict[str, Any]
Verdict = dict[str, Any]
Admit = Callable[[Review], Verdict | Awaitable[Verdict] | None]

_VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_MARK = "webhook-e2e-test"
_PODS = {"group": "", "version": "v1", "resource": "pods"}
_CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
_DEFINITIONS = tuple(
    {"group": "apiextensions.k8s.io", "version": version, "resource": "customresourcedefinitions"}
    for version in ("v1beta1", "v1")
)
_ALLOWED: Verdict = {"allowed": True}


def _refused(**status: Any) -> Verdict:
    return {"allowed": False, "status": {"metadata": {}, **status}}


def _patched(*operations: dict[str, Any]) -> Verdict:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch"}


def _object(request: Review) -> dict[str, Any]:
    """The object to admit: for a deletion, the old object."""
    return (
        request.get("oldObject") if request.get("operation") == "DELETE" else request.get("object")
    ) or {}


def _labels(thing: dict[str, Any]) -> dict[str, str]:
    return (thing.get("metadata") or {}).get("labels") or {}


def _shown(resource: dict[str, Any]) -> str:
    """As Go prints a GroupVersionResource."""
    return (
        f"{resource.get('group', '')}/{resource.get('version', '')}, "
        f"Resource={resource.get('resource', '')}"
    )


def _deny(request: Review) -> Verdict:
    return _refused(message="this webhook denies all requests")


def _add_label(request: Review) -> Verdict:
    labels = _labels(request.get("object") or {})
    if not labels:
        return _patched({"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}})
    if labels.get("added-label") == "yes":
        return _ALLOWED
    operation = "replace" if "added-label" in labels else "add"
    return _patched({"op": operation, "path": "/metadata/labels/added-label", "value": "yes"})


async def _pods(request: Review) -> Verdict:
    if request.get("resource") != _PODS:
        return _refused(message=f"expect resource to be {_shown(_PODS)}")
    pod = request.get("object") or {}
    faults = []
    mark = _labels(pod).get(_MARK)
    if mark == "webhook-disallow":
        faults.append("the pod contains unwanted label;")
    elif mark == "wait-forever":
        await asyncio.Event().wait()
    for container in (pod.get("spec") or {}).get("containers") or ():
        if "webhook-disallow" in container["name"]:
            faults.append("the pod contains unwanted container name;")
    return _refused(message=" ".join(faults)) if faults else _ALLOWED


def _attaching(request: Review) -> Verdict:
    if request.get("name") != "to-be-attached-pod":
        return _ALLOWED
    resource, sub = request.get("resource") or {}, request.get("subResource", "")
    if resource != _PODS:
        return _refused(message=f"expect resource to be {_shown(_PODS)}, got {_shown(resource)}")
    if sub != "attach":
        return _refused(message=f"expect subresource to be attach, got {sub}")
    options = request.get("object") or {}
    if not options.get("stdin") or options.get("container") != "container1":
        return _ALLOWED
    return _refused(message="attaching to pod 'to-be-attached-pod' is not allowed")


def _has(containers: Iterable[dict[str, Any]] | None, name: str) -> bool:
    return any(container["name"] == name for container in containers or ())


def _init_container(request: Review) -> Verdict | None:
    if request.get("resource") != _PODS:
        return None
    pod = request.get("object") or {}
    name = "webhook-added-init-container"
    if (pod.get("metadata") or {}).get("name") != "webhook-to-be-mutated" or _has(
        pod["spec"].get("initContainers"), name
    ):
        return _ALLOWED
    added = {"image": "webhook-added-image", "name": name, "resources": {}}
    return _patched({"op": "add", "path": "/spec/initContainers", "value": [added]})


def _sidecar(image: str) -> Admit:
    def admit(request: Review) -> Verdict | None:
        if not image:
            return _refused(
                status="Failure",
                message="No image specified by the sidecar-image parameter",
                code=500,
            )
        if request.get("resource") != _PODS:
            return None
        name = "webhook-added-sidecar"
        if _has((request.get("object") or {})["spec"].get("containers"), name):
            return _ALLOWED
        return _patched(
            {
                "op": "add",
                "path": "/spec/containers/-",
                "value": {"image": image, "name": name, "resources": {}},
            }
        )

    return admit


def _by_data(unwanted: str, undeletable: str, request: Review) -> Verdict:
    """Its error is in the reason only, as in the original."""
    mark = (_object(request).get("data") or {}).get(_MARK)
    operation = request.get("operation")
    if mark == "webhook-disallow" and operation in ("CREATE", "UPDATE"):
        return _refused(reason=unwanted)
    if mark == "webhook-nondeletable" and operation == "DELETE":
        return _refused(reason=undeletable)
    return _ALLOWED


def _config_maps(request: Review) -> Verdict | None:
    if request.get("resource") != _CONFIG_MAPS:
        return None
    return _by_data(
        "the configmap contains unwanted key and value",
        "the configmap cannot be deleted because it contains unwanted key and value",
        request,
    )


def _custom_resource(request: Review) -> Verdict:
    return _by_data(
        "the custom resource contains unwanted data",
        "the custom resource cannot be deleted because it contains unwanted key and value",
        request,
    )


def _stages(request: Review) -> Verdict:
    """Two stages; the later one takes precedence."""
    data = (request.get("object") or {}).get("data") or {}
    stage = (
        2
        if data.get("mutation-stage-1") == "yes"
        else 1
        if data.get("mutation-start") == "yes"
        else 0
    )
    return (
        _patched({"op": "add", "path": f"/data/mutation-stage-{stage}", "value": "yes"})
        if stage
        else _ALLOWED
    )


def _stages_of_config_maps(request: Review) -> Verdict | None:
    return _stages(request) if request.get("resource") == _CONFIG_MAPS else None


def _definition(request: Review) -> Verdict:
    resource = request.get("resource") or {}
    if resource not in _DEFINITIONS:
        known = ", ".join(map(_shown, _DEFINITIONS))
        return _refused(
            message=f"expect resource to be one of [{known}] but got {_shown(resource)}"
        )
    if _labels(request.get("object") or {}).get(_MARK) == "webhook-disallow":
        return _refused(message="the crd contains unwanted label")
    return _ALLOWED


def webhook(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go

    async def slowly(request: Review) -> Verdict:
        await context.clock.sleep(5)
        return {
            "allowed": True,
            "status": {"metadata": {}, "message": "this webhook allows all requests"},
        }

    admission_handlers: dict[str, Admit] = {
        "/add-label": _add_label,
        "/always-allow-delay-5s": slowly,
        "/always-deny": _deny,
        "/configmaps": _config_maps,
        "/crd": _definition,
        "/custom-resource": _custom_resource,
        "/mutating-configmaps": _stages_of_config_maps,
        "/mutating-custom-resource": _stages,
        "/mutating-pods": _init_container,
        "/mutating-pods-sidecar": _sidecar(flag(context, "sidecar-image")),
        "/pods": _pods,
        "/pods/attach": _attaching,
    }

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path == "/readyz":
            return gomux.written("ok")
        admit = admission_handlers.get(request.path)
        if admit is None:
            return program_text_response("404 page not found\n", 404)
        if request.headers.get("content-type") != "application/json":
            return ProgramHttpResponse(200)
        return await _answer(request.body, admit)

    return agnhost_tls.serve_tls(server, handle)


async def _answer(body: bytes, admit: Admit) -> ProgramHttpResponse:
    try:
        review = json.loads(body)
        requested, version, kind = review["request"], review["apiVersion"], review["kind"]
    except (ValueError, KeyError, TypeError) as error:
        return program_text_response(f"Request could not be decoded: {error}\n", 400)
    if kind != "AdmissionReview" or version not in _VERSIONS:
        return program_text_response(
            f"Unsupported group version kind: {version}, Kind={kind}\n", 400
        )
    reported = admit(requested)
    verdict = await reported if isinstance(reported, Awaitable) else reported
    if verdict is None:
        raise ConnectionResetError  # the original's handler panics
    answer = {
        "kind": kind,
        "apiVersion": version,
        "response": {"uid": requested.get("uid", ""), **verdict},
    }
    return program_text_response(as_json(answer), kind="application/json")
