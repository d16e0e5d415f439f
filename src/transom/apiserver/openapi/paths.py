"""The operations of every served resource, independent of the OpenAPI version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transom.apiserver.openapi.definitions import DELETE_OPTIONS, PATCH, STATUS, gvk_name
from transom.machinery.kinds import GVK, Kind, Subresource
from transom.machinery.schema import BASE, SchemaTable

MEDIA_TYPES = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
PATCH_TYPES = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
CODES = {200: "OK", 201: "Created", 202: "Accepted", 401: "Unauthorized"}


class OpenApiParameter(NamedTuple):
    name: str
    type: str
    description: str


class OpenApiOperation(NamedTuple):
    method: str
    action: str
    id: str
    tag: str
    description: str
    gvk: GVK | None
    query: Sequence[OpenApiParameter]
    body: str  # definition of the request body
    answer: str  # definition of the response; "" for plain text
    codes: Sequence[int]
    consumes: Sequence[str] = ("*/*",)


class PathItem(NamedTuple):
    path: str
    variables: Sequence[OpenApiParameter]
    operations: Sequence[OpenApiOperation]


_NAME = OpenApiParameter("name", "string", "name of the object")
_NAMESPACE = OpenApiParameter("namespace", "string", "namespace of the object")
_PATH = OpenApiParameter("path", "string", "path of the proxied request")
PRETTY = OpenApiParameter("pretty", "string", "If 'true', then the output is pretty printed.")
_DRY_RUN = OpenApiParameter(
    "dryRun", "string", "'All': every stage of the request is run, but nothing is stored."
)
_MANAGER = OpenApiParameter(
    "fieldManager", "string", "The name of the actor that makes the change."
)
_VALIDATION = OpenApiParameter(
    "fieldValidation",
    "string",
    "What happens to unknown and duplicate fields: 'Ignore', 'Warn' or 'Strict'.",
)
_LIST = (
    OpenApiParameter("allowWatchBookmarks", "boolean", "Asks a watch for bookmark events."),
    OpenApiParameter("continue", "string", "The token of the previous chunk of a list."),
    OpenApiParameter("fieldSelector", "string", "Restricts the list by fields."),
    OpenApiParameter("labelSelector", "string", "Restricts the list by labels."),
    OpenApiParameter("limit", "integer", "The most items an answer may have."),
    OpenApiParameter("resourceVersion", "string", "The version the answer may be served from."),
    OpenApiParameter("resourceVersionMatch", "string", "How resourceVersion is applied to a list."),
    OpenApiParameter("timeoutSeconds", "integer", "The time after which the call ends."),
    OpenApiParameter("watch", "boolean", "Streams changes instead of answering with a list."),
)
_WRITE = (_DRY_RUN, _MANAGER)
_DELETE = (
    _DRY_RUN,
    OpenApiParameter(
        "gracePeriodSeconds",
        "integer",
        "The seconds before the object is deleted; zero is at once.",
    ),
    OpenApiParameter("orphanDependents", "boolean", "Deprecated, use propagationPolicy."),
    OpenApiParameter(
        "propagationPolicy",
        "string",
        "What happens to dependents: 'Orphan', 'Background' or 'Foreground'.",
    ),
)
_FORCE = OpenApiParameter(
    "force", "boolean", "Takes over fields that another manager owns; for apply patches."
)

# verb -> (method, action, word in the operation id, description)
_VERBS = {
    "get": ("get", "get", "read", "read the specified"),
    "list": ("get", "list", "list", "list or watch objects of kind"),
    "create": ("post", "post", "create", "create"),
    "update": ("put", "put", "replace", "replace the specified"),
    "patch": ("patch", "patch", "patch", "partially update the specified"),
    "delete": ("delete", "delete", "delete", "delete"),
    "deletecollection": ("delete", "deletecollection", "deleteCollection", "delete collection of"),
}
_CONNECT = {"attach", "exec", "portforward", "proxy"}
_COLLECTION = ("list", "create", "deletecollection")
_ITEM = ("get", "update", "patch", "delete")


def _camel(group: str) -> str:
    words = (group.removesuffix(".k8s.io") or "core").replace("-", ".").split(".")
    return "".join(w[:1].upper() + w[1:] for w in words)


def subresource_gvk(parent: GVK, sub: Subresource) -> GVK:
    """The kind of a subresource: its own, or its parent's."""
    return (
        GVK(sub.group, sub.version, sub.kind)
        if sub.group
        else parent._replace(kind=sub.kind or parent.kind)
    )


def paths_of_kinds(
    kinds: Iterable[Kind], *, field_validation: bool = True, types: SchemaTable = BASE
) -> Iterator[tuple[tuple[str, str], PathItem]]:
    """Paths by group version."""
    for kind in kinds:
        places = [(kind.group, v) for v in kind.versions]
        places += [(group, v) for group, versions in kind.also for v in versions]
        for place in places:
            for item in _of_kind(kind, *place, field_validation, types):
                yield place, item


def _of_kind(
    kind: Kind, group: str, version: str, field_validation: bool, types: SchemaTable
) -> Iterator[PathItem]:
    gvk = GVK(group, version, kind.kind)
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    base = (
        f"{root}/namespaces/{{namespace}}/{kind.plural}"
        if kind.namespaced
        else f"{root}/{kind.plural}"
    )
    scope = (_NAMESPACE,) if kind.namespaced else ()
    make = _Maker(gvk, kind, field_validation, types)
    if kind.namespaced and "list" in kind.verbs:
        yield PathItem(
            f"{root}/{kind.plural}", (PRETTY,), [make.operation("list", suffix="ForAllNamespaces")]
        )
    collection = [make.operation(verb) for verb in _COLLECTION if verb in kind.verbs]
    if collection:
        yield PathItem(base, (*scope, PRETTY), collection)
    single = [make.operation(verb) for verb in _ITEM if verb in kind.verbs]
    if single:
        yield PathItem(f"{base}/{{name}}", (_NAME, *scope, PRETTY), single)
    for sub in kind.subresources_of(version, group):
        path = f"{base}/{{name}}/{sub.name}"
        operations = [make.sub_operation(verb, sub) for verb in sub.verbs if verb in _VERBS]
        yield PathItem(path, (_NAME, *scope, PRETTY), operations)
        if sub.name == "proxy":
            further = [o._replace(id=o.id + "WithPath") for o in operations]
            yield PathItem(path + "/{path}", (_NAME, *scope, _PATH, PRETTY), further)


class _Maker:
    """Operations of one kind in one version."""

    def __init__(self, gvk: GVK, kind: Kind, field_validation: bool, types: SchemaTable) -> None:
        self._types = types
        self._gvk = gvk
        self._kind = kind
        self._name = gvk_name(gvk, types)
        self._list = gvk_name(GVK(gvk.group, gvk.version, kind.list_name), types)
        self._camel = f"{_camel(gvk.group)}{gvk.version[:1].upper()}{gvk.version[1:]}"
        self._tag = f"{_camel(gvk.group)[:1].lower()}{_camel(gvk.group)[1:]}_{gvk.version}"
        # kubectl looks here to see if it may send a strategic merge patch; custom objects do not
        # support it.
        self._patches = [t for t in PATCH_TYPES if not (kind.custom and "strategic" in t)]
        self._write = (*_WRITE, _VALIDATION) if field_validation else _WRITE

    def operation(self, verb: str, suffix: str = "") -> OpenApiOperation:
        method, action, word, text = _VERBS[verb]
        scope = "Namespaced" if self._kind.namespaced and not suffix else ""
        prefix, collection, _ = word.partition("Collection")
        return OpenApiOperation(
            method,
            action,
            f"{prefix}{self._camel}{collection}{scope}{self._gvk.kind}{suffix}",
            self._tag,
            f"{text} {'an ' if verb == 'create' else ''}{self._gvk.kind}",
            self._gvk,
            *self._exchange(verb, self._name),
            self._consumes(verb),
        )

    def _consumes(self, verb: str) -> Sequence[str]:
        return self._patches if verb == "patch" else ("*/*",)

    def _exchange(
        self, verb: str, name: str
    ) -> tuple[Sequence[OpenApiParameter], str, str, Sequence[int]]:
        """Query parameters, request body, response and status codes."""
        if verb == "list":
            return _LIST, "", self._list, (200,)
        if verb == "deletecollection":
            return (*_LIST[:-1], *_DELETE), DELETE_OPTIONS, STATUS, (200,)
        if verb == "delete":
            return _DELETE, DELETE_OPTIONS, STATUS, (200, 202)
        if verb == "create":
            return self._write, name, name, (200, 201, 202)
        if verb == "update":
            return self._write, name, name, (200, 201)
        if verb == "patch":
            return (*self._write, _FORCE), PATCH, name, (200, 201)
        return (), "", name, (200,)

    def sub_operation(self, verb: str, sub: Subresource) -> OpenApiOperation:
        method, action, word, text = _VERBS[verb]
        gvk = subresource_gvk(self._gvk, sub)
        scope = "Namespaced" if self._kind.namespaced else ""
        title = sub.name[:1].upper() + sub.name[1:]
        about = f"{sub.name} of the specified {self._gvk.kind}"
        if sub.name in _CONNECT:
            name = f"connect{self._camel}{method.capitalize()}{scope}{self._gvk.kind}{title}"
            return OpenApiOperation(
                method,
                "connect",
                name,
                self._tag,
                f"connect {method.upper()} requests to {about}",
                gvk,
                (),
                "",
                "",
                (200,),
            )
        name = f"{word}{self._camel}{scope}{self._gvk.kind}{title}"
        exchange = self._exchange(verb, gvk_name(gvk, self._types))
        if sub.name == "log":
            exchange = ((), "", "", (200,))
        what = f"{text.removesuffix(' the specified')} {about}"
        return OpenApiOperation(
            method, action, name, self._tag, what, gvk, *exchange, self._consumes(verb)
        )
