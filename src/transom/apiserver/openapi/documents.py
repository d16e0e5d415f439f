"""The OpenAPI documents as bytes, and content negotiation for them.

Pure functions from `Kind` rows and schemas of custom resources to documents. They take a fraction
of a second and several megabytes: call them in a thread and cache the bytes
(`discovery.DocumentCache`), not the documents.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from transom.apiserver.openapi import protobuf, v2, v3
from transom.apiserver.openapi.custom import CustomSchema
from transom.machinery.kinds import Kind
from transom.machinery.schema import BASE, SchemaTable

__all__ = [
    "V2_OFFERS",
    "V2_PROTOBUF",
    "V2_PROTOBUF_TYPE",
    "CustomSchema",
    "accepted",
    "v2",
    "v2_json",
    "v2_protobuf",
    "v3",
    "v3_index",
    "v3_json",
]

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# The valid media type that newer releases return, and accept too.
V2_PROTOBUF_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_OFFERS = ("application/json", V2_PROTOBUF, V2_PROTOBUF_TYPE)


def v2_json(
    kinds: Iterable[Kind],
    customs: Iterable[CustomSchema] = (),
    *,
    version: str,
    field_validation: bool = True,
    types: SchemaTable = BASE,
) -> bytes:
    return orjson.dumps(
        v2.build_openapi_v2(
            kinds, customs, version=version, field_validation=field_validation, types=types
        )
    )


def v2_protobuf(
    kinds: Iterable[Kind],
    customs: Iterable[CustomSchema] = (),
    *,
    version: str,
    field_validation: bool = True,
    types: SchemaTable = BASE,
) -> bytes:
    return protobuf.encode_openapi_document(
        v2.build_openapi_v2(
            kinds, customs, version=version, field_validation=field_validation, types=types
        )
    )


def v3_index(kinds: Iterable[Kind], customs: Iterable[CustomSchema] = (), *, version: str) -> bytes:
    return orjson.dumps(v3.openapi_v3_index(v3.group_versions(kinds, customs, version=version)))


def v3_json(
    group: str,
    group_version: str,
    kinds: Iterable[Kind],
    customs: Iterable[CustomSchema] = (),
    *,
    version: str,
    field_validation: bool = True,
    types: SchemaTable = BASE,
) -> bytes:
    document = v3.build_openapi_v3(
        group,
        group_version,
        kinds,
        customs,
        version=version,
        field_validation=field_validation,
        types=types,
    )
    return orjson.dumps(document)


def accepted(accept: str, offers: Iterable[str]) -> str | None:
    """The first offer that matches the client's best clause; None results in 406 with an empty
    body.

    `/openapi/v2` has `V2_OFFERS`. Its responses have no explicit media type in older releases: the
    content determines it, so clients see `text/plain; charset=utf-8` for JSON and
    `application/octet-stream` for protobuf.
    """
    offers = list(offers)
    for kind, subtype in _clauses(accept or "*/*"):
        for offer in offers:
            offered, _, offered_subtype = offer.partition("/")
            if kind in (offered, "*") and subtype in (offered_subtype, "*"):
                return offer
    return None


def _clauses(accept: str) -> list[tuple[str, str]]:
    clauses = []
    for text in accept.split(","):
        media, *parameters = [piece.strip() for piece in text.split(";")]
        kind, _, subtype = media.partition("/")
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 1.0
        clauses.append((-weight, kind == "*", subtype == "*", kind, subtype or "*"))
    return [clause[3:] for clause in sorted(clauses, key=lambda clause: clause[:3])]
