"""Compiles the expressions of admission policies and of webhooks' match conditions
(k8s.io/apiserver/pkg/admission/plugin/cel/compile.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from transom.kit.cel.environment import CelExpression
from transom.kit.cel.errors import CompileError
from transom.kit.cel.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    CelType,
    list_type,
    map_type,
    struct_type,
)
from transom.machinery.cel.authorizer import AUTHORIZER_TYPE, RESOURCE_CHECK_TYPE
from transom.machinery.cel.environment import expression_environment
from transom.machinery.cel.patches import OBJECT_TYPE, PATCH_TYPE, PATCH_TYPES, make_patch_struct

_TEXTS: Final = list_type(STRING)
_TEXT_MAP: Final = map_type(STRING, STRING)
_REQUEST: Final = struct_type("kubernetes.AdmissionRequest")
_NAMESPACE: Final = struct_type("kubernetes.Namespace")
_VARIABLES: Final = struct_type("kubernetes.variables")
_GVK: Final = struct_type("kubernetes.GroupVersionKind")
_GVR: Final = struct_type("kubernetes.GroupVersionResource")
_USER: Final = struct_type("kubernetes.UserInfo")
_META: Final = struct_type("kubernetes.NamespaceMetadata")
_SPEC: Final = struct_type("kubernetes.NamespaceSpec")
_STATUS: Final = struct_type("kubernetes.NamespaceStatus")
_CONDITION: Final = struct_type("kubernetes.NamespaceCondition")

ADMISSION_TYPES: Final[Mapping[str, Mapping[str, CelType]]] = {
    _GVK.name: {"group": STRING, "version": STRING, "kind": STRING},
    _GVR.name: {"group": STRING, "version": STRING, "resource": STRING},
    _USER.name: {
        "username": STRING,
        "uid": STRING,
        "groups": _TEXTS,
        "extra": map_type(STRING, _TEXTS),
    },
    _REQUEST.name: {
        "kind": _GVK,
        "resource": _GVR,
        "subResource": STRING,
        "requestKind": _GVK,
        "requestResource": _GVR,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
    _SPEC.name: {"finalizers": _TEXTS},
    _CONDITION.name: {
        "status": STRING,
        "type": STRING,
        "lastTransitionTime": TIMESTAMP,
        "message": STRING,
        "reason": STRING,
    },
    _STATUS.name: {"conditions": list_type(_CONDITION), "phase": STRING},
    _META.name: {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": _TEXT_MAP,
        "annotations": _TEXT_MAP,
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": _TEXTS,
    },
    _NAMESPACE.name: {"metadata": _META, "spec": _SPEC, "status": _STATUS},
}
_ANYTHING: Final = CelType("any")
CONDITION_RESULTS: Final = (BOOL,)
MESSAGE_RESULTS: Final = (STRING,)
ANNOTATION_RESULTS: Final = (STRING, NULL)
VARIABLE_RESULTS: Final = (_ANYTHING,)
APPLY_RESULTS: Final = (OBJECT_TYPE,)
JSON_PATCH_RESULTS: Final = (list_type(PATCH_TYPE),)


class AdmissionExpression(NamedTuple):
    """A compiled expression, or the `problem` that compiling it had."""

    source: str
    compiled: CelExpression | None
    problem: str = ""

    @property
    def uses_authorizer(self) -> bool:
        if self.compiled is None:
            return False
        return any(name.startswith("authorizer") for name in self.compiled.references)


class _Fields(Mapping[str, Mapping[str, CelType]]):
    """The fields of object types: those of admission, those of the caller, and the dynamic types of
    patches.
    """

    def __init__(self, *tables: Mapping[str, Mapping[str, CelType]]) -> None:
        self._tables = tables

    def __getitem__(self, name: str) -> Mapping[str, CelType]:
        for table in self._tables:
            found = table.get(name)
            if found is not None:
                return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for table in self._tables for name in table)

    def __len__(self) -> int:
        return sum(len(table) for table in self._tables)


class AdmissionCompiler:
    """Compiles the expressions of one policy. `add_variable` declares a field of `variables` for
    the expressions that follow.

    `object_type` is the type of `object` and `oldObject`, and `params_type` that of `params`, for type
    checking with a schema; `types` are the fields of those types.
    """

    def __init__(
        self,
        release: tuple[int, int],
        *,
        params: bool,
        composed: bool,
        object_type: CelType = DYN,
        params_type: CelType = DYN,
        types: Mapping[str, Mapping[str, CelType]] | None = None,
    ) -> None:
        self._release = release
        self._composed = composed
        self._variables: dict[str, CelType] = {}
        self._types = (ADMISSION_TYPES, {_VARIABLES.name: self._variables}, types or {})
        self._declared = {
            "object": object_type,
            "oldObject": object_type,
            "namespaceObject": _NAMESPACE,
            "request": _REQUEST,
        }
        if params:
            self._declared["params"] = params_type

    def compile(
        self,
        source: str,
        results: tuple[CelType, ...],
        *,
        authorizer: bool = True,
        patches: bool = False,
        composed: bool = True,
        stored: bool = False,
    ) -> AdmissionExpression:
        """`results` are the types that the expression may have. `stored` expressions may use
        libraries that new ones may not use yet.
        """
        variables = dict(self._declared)
        if authorizer:
            variables["authorizer"] = AUTHORIZER_TYPE
            variables["authorizer.requestResource"] = RESOURCE_CHECK_TYPE
        if composed and self._composed:
            variables["variables"] = _VARIABLES
        environment = expression_environment(self._release, stored=stored, patches=patches)
        fields = _Fields(*self._types, PATCH_TYPES) if patches else _Fields(*self._types)
        try:
            if patches:
                compiled = environment.compile(source, variables, fields, make_patch_struct)
            else:
                compiled = environment.compile(source, variables, fields)
        except CompileError as problem:
            return AdmissionExpression(source, None, f"compilation failed: {problem}")
        if _ANYTHING in results or compiled.type in results:
            return AdmissionExpression(source, compiled)
        wanted = (
            str(results[0]) if len(results) == 1 else f"one of [{' '.join(map(_shown, results))}]"
        )
        return AdmissionExpression(
            source, None, f"must evaluate to {wanted} but got {_shown(compiled.type)}"
        )

    def add_variable(
        self, name: str, source: str, *, stored: bool = False, authorizer: bool = True
    ) -> AdmissionExpression:
        expression = self.compile(source, VARIABLE_RESULTS, stored=stored, authorizer=authorizer)
        kind = expression.compiled.type if expression.compiled is not None else DYN
        self._variables[name] = _variable_type(kind)
        return expression


def _shown(kind: CelType) -> str:
    """The type as its Go value prints itself."""
    return kind.name if kind.kind in ("null", "timestamp", "duration") else str(kind)


def _variable_type(kind: CelType) -> CelType:
    """The declared type of a variable: object types are not kept."""
    if kind.kind in ("list", "map"):
        return CelType(kind.kind, kind.name, tuple(map(_variable_type, kind.params)))
    if kind.kind in ("struct", "opaque", "type", "param", "error"):
        return DYN
    return kind
