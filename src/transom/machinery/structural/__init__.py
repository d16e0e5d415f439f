"""Applies the structural schema of a custom resource to its objects.

`schema.compile_schema` reads an `openAPIV3Schema` once for each version of a definition;
`prune_value` drops unknown fields, `coerce_object` normalises the metadata of embedded objects,
`apply_structural_defaults` sets defaults, `cel` evaluates the rules of `x-kubernetes-validations`.
All of them copy what they change, so objects may share parts. `machinery.validation` checks whether
a schema is structural, and whether values satisfy it.
"""

from transom.machinery.structural.coerce import CoerceError, coerce_object
from transom.machinery.structural.default import DefaultsTooLarge, apply_structural_defaults
from transom.machinery.structural.node import StructuralSchema
from transom.machinery.structural.prune import META_FIELDS, prune_object, prune_value
from transom.machinery.structural.schema import compile_schema
from transom.machinery.structural.weight import schema_weight

__all__ = [
    "META_FIELDS",
    "CoerceError",
    "DefaultsTooLarge",
    "StructuralSchema",
    "apply_structural_defaults",
    "coerce_object",
    "compile_schema",
    "prune_object",
    "prune_value",
    "schema_weight",
]
