"""Pods for the tests of their validation."""

from __future__ import annotations

from typing import Any

from transom.machinery.field import FieldError
from transom.machinery.validation import validation_rules

Object = dict[str, Any]
CREATE, UPDATE, STATUS, SUBRESOURCES = validation_rules("/Pod")


def container(**more: Any) -> Object:
    return {
        "name": "c",
        "image": "i",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
        "resources": {},
        **more,
    }


def pod(meta: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {
            "name": "o",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "1",
            **(meta or {}),
        },
        "spec": {
            "containers": [container()],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
            **spec,
        },
        "status": {},
    }


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]
