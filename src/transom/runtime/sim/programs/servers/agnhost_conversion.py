"""agnhost's crd-conversion-webhook: between two versions of one custom resource, which keep host and port apart or not."""

from __future__ import annotations

import json
from typing import Any

from transom.machinery.field import go_quote
from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.servers import agnhost_tls, gomux
from transom.runtime.sim.programs.servers.base import Server
from transom.runtime.sim.programs.servers.http import Request, Response, text
from transom.runtime.sim.programs.servers.simple import as_json

Thing = dict[str, Any]
_ONE, _TWO = "stable.example.com/v1", "stable.example.com/v2"
_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")


class _Failure(Exception):
    pass


def conversion_webhook(context: ProgramContext) -> Program:
    server = Server(context)
    server.on_signal = server.as_go

    def handle(request: Request) -> Response:
        if request.path == "/readyz":
            return gomux.written("ok")
        if request.path != "/crdconvert":
            return text("404 page not found\n", 404)
        return _answer(request)

    return agnhost_tls.serve(server, handle)


def _answer(request: Request) -> Response:
    kind = request.headers.get("content-type", "")
    if kind not in ("application/json", "application/yaml"):
        return text(f"invalid Content-Type header `{kind}`\n", 400)
    try:
        review = _decode(request.body, kind)
        asked = review["request"]
    except (ValueError, KeyError, TypeError) as error:
        said = request.body.decode("utf-8", "replace")
        return text(f"failed to deserialize body ({said}) with error {error}\n", 400)
    if review.get("kind") != "ConversionReview" or review.get("apiVersion") not in _VERSIONS:
        return text(f"Unsupported group version kind: {review.get('apiVersion')}, Kind={review.get('kind')}\n", 400)
    answer = {
        "kind": "ConversionReview",
        "apiVersion": review["apiVersion"],
        "request": {"uid": "", "desiredAPIVersion": "", "objects": None},
        "response": {"uid": asked.get("uid", ""), **_converted(asked)},
    }
    return gomux.written(as_json(answer) + "\n")


def _decode(body: bytes, kind: str) -> Thing:
    if kind == "application/json":
        found = json.loads(body)
    else:
        import yaml

        try:
            found = yaml.safe_load(body)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _converted(asked: Thing) -> Thing:
    wanted = asked.get("desiredAPIVersion", "")
    try:
        objects = [{**_convert(thing, wanted), "apiVersion": wanted} for thing in asked.get("objects") or ()]
    except _Failure as failure:
        return {"convertedObjects": None, "result": {"metadata": {}, "status": "Failure", "message": str(failure)}}
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
