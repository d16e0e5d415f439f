"""agnhost's crd-conversion-webhook: converts between two versions of a custom resource, with host
and port separate or combined.
"""

from __future__ import annotations

import json
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery import goyaml
from transom.userland.api import Program, ProgramContext
from transom.userland.servers import agnhost_tls, gomux
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import as_json

Thing = dict[str, Any]
_ONE, _TWO = "stable.example.com/v1", "stable.example.com/v2"
_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")


class _Failure(Exception):
    pass


def conversion_webhook(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path == "/readyz":
            return gomux.written("ok")
        if request.path != "/crdconvert":
            return program_text_response("404 page not found\n", 404)
        return _answer(request)

    return agnhost_tls.serve_tls(server, handle)


def _answer(request: ProgramHttpRequest) -> ProgramHttpResponse:
    kind = request.headers.get("content-type", "")
    if kind not in ("application/json", "application/yaml"):
        return program_text_response(f"invalid Content-Type header `{kind}`\n", 400)
    try:
        review = _decode(request.body, kind)
        requested = review["request"]
    except (ValueError, KeyError, TypeError) as error:
        received = request.body.decode("utf-8", "replace")
        return program_text_response(
            f"failed to deserialize body ({received}) with error {error}\n", 400
        )
    if review.get("kind") != "ConversionReview" or review.get("apiVersion") not in _VERSIONS:
        return program_text_response(
            (
                f"Unsupported group version kind: {review.get('apiVersion')}, "
                f"Kind={review.get('kind')}\n"
            ),
            400,
        )
    answer = {
        "kind": "ConversionReview",
        "apiVersion": review["apiVersion"],
        "request": {"uid": "", "desiredAPIVersion": "", "objects": None},
        "response": {"uid": requested.get("uid", ""), **_converted(requested)},
    }
    return gomux.written(as_json(answer) + "\n")


def _decode(body: bytes, kind: str) -> Thing:
    if kind == "application/json":
        found = json.loads(body)
    else:
        try:
            found = goyaml.load_yaml(body)
        except goyaml.YamlError as error:
            raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _converted(requested: Thing) -> Thing:
    wanted = requested.get("desiredAPIVersion", "")
    try:
        objects = [
            {**_convert(thing, wanted), "apiVersion": wanted}
            for thing in requested.get("objects") or ()
        ]
    except _Failure as failure:
        return {
            "convertedObjects": None,
            "result": {"metadata": {}, "status": "Failure", "message": str(failure)},
        }
    return {"convertedObjects": objects, "result": {"metadata": {}, "status": "Success"}}


def _convert(thing: Thing, wanted: str) -> Thing:
    version = thing.get("apiVersion", "")
    if version == wanted:
        raise _Failure(f"conversion from a version to itself should not call the webhook: {wanted}")
    if version not in (_ONE, _TWO):
        raise _Failure(f"unexpected conversion version {go_quote(version)}")
    if wanted not in (_ONE, _TWO):
        raise _Failure(f"unexpected conversion version {go_quote(wanted)}")
    other = dict(thing)
    if wanted == _TWO:
        if "hostPort" in other:
            whole = other.pop("hostPort")
            parts = str(whole).split(":")
            if len(parts) != 2:
                raise _Failure(f"invalid hostPort value `{whole}`")
            other["host"], other["port"] = parts
    elif "host" in other or "port" in other:
        other["hostPort"] = f"{other.pop('host', '')}:{other.pop('port', '')}"
    return other
