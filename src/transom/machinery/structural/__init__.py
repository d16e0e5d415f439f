"""Structural schemas at work: what the schema of a custom resource does to its objects.

`schema.compile_schema` reads an `openAPIV3Schema` once for each version of a definition; `prune` drops what it does not
know, `coerce` brings the metadata of embedded objects into form, `default` fills in what is left open, `cel` judges the
rules of `x-kubernetes-validations`. All of them copy what they change, so objects may share parts. Whether a schema is
structural at all, and whether values satisfy it, is the matter of `machinery.validation`.
"""

from transom.machinery.structural.coerce import CoerceError, coerce
from transom.machinery.structural.default import default
from transom.machinery.structural.prune import META_FIELDS, prune, prune_object
from transom.machinery.structural.schema import Node, compile_schema

__all__ = ["META_FIELDS", "CoerceError", "Node", "coerce", "compile_schema", "default", "prune", "prune_object"]
