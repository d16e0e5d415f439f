"""Kubernetes' extensions of OpenAPI schemas, by name."""

from __future__ import annotations

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
VALIDATIONS = "x-kubernetes-validations"
META_FIELDS = ("apiVersion", "kind", "metadata")
