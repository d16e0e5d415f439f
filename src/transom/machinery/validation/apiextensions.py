"""CustomResourceDefinition.

Kubernetes validates the internal form of a definition: what all versions have in common is moved up
into `spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns`: the paths of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transom.kit.goquote import go_quote
from transom.machinery.field import GoText, forbidden, invalid, required
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.texts import typed_custom_errors
from transom.machinery.structural.cel import check_rules
from transom.machinery.validation.checks import check_each, one_of
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    immutable,
    validate_any_object_meta,
    validate_any_object_meta_update,
)
from transom.machinery.validation.names import (
    byte_len,
    is_dns1035_label,
    is_dns1123_subdomain,
    name_is_dns_subdomain,
)
from transom.machinery.validation.openapischema import (
    Demands,
    has_defaults,
    has_extensions,
    has_non_atomic_sets,
    has_unknown_types,
    has_unsound_map_keys,
    validate_schema,
)
from transom.machinery.validation.review_versions import REVIEW_VERSIONS, check_review_versions
from transom.machinery.validation.rules import Errors, Object, ReleaseRules
from transom.machinery.validation.schema_extensions import PRESERVE, VALIDATIONS
from transom.machinery.validation.selectable_fields import validate_selectable_fields
from transom.machinery.validation.structural import (
    has_unpruned_defaults,
    is_structural_possible,
    validate_defaults,
    validate_structural,
)
from transom.machinery.validation.urls import URLError, parse_url
from transom.machinery.validation.webhook import validate_client_config

APPROVED = "api-approved.kubernetes.io"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_ADVICE = "see https://github.com/kubernetes/enhancements/pull/1111"
_MIXED_CASE = "may have mixed case, but should otherwise match: "
# Keywords that the root of a schema with a status sub-resource may have, with Go's names in the
# error.
_AT_ROOT = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    PRESERVE: "XPreserveUnknownFields",
}
_BEFORE_TYPE = ("id", "$schema", "$ref")


class _View(NamedTuple):
    """A spec in Kubernetes' internal form: common parts at the top, versions keep their own parts."""

    schema: dict[str, Any] | None
    subresources: dict[str, Any] | None
    columns: list[dict[str, Any]]
    versions: list[dict[str, Any]] | None


def _view(spec: Mapping[str, Any]) -> _View:
    versions = spec.get("versions")
    if not versions:
        return _View(None, None, [], versions)
    common: dict[str, Any] = {}
    for name in ("schema", "subresources", "additionalPrinterColumns"):
        first = versions[0].get(name)
        if all((version.get(name) or None) == (first or None) for version in versions):
            common[name] = first
    own = [
        {key: value for key, value in version.items() if key not in common} for version in versions
    ]
    return _View(
        common.get("schema"),
        common.get("subresources"),
        common.get("additionalPrinterColumns") or [],
        own,
    )


def _schemas(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = (
        (version.get("schema") or {}).get("openAPIV3Schema")
        for version in spec.get("versions") or ()
    )
    return [schema for schema in found if schema is not None]


class _Options(NamedTuple):
    demands: Demands = Demands()
    need_schema: bool = True
    need_structural: bool = True
    need_pruned_defaults: bool = True
    need_known_review_version: bool = True
    # The stored schemas, by version: their rules are not rejected for their individual cost.
    stored_schemas: Mapping[str, Any] = {}
    # The stored selectable fields, by version: they may stay if there are too many.
    stored_fields: Mapping[str, Any] = {}
    release: Release = DEFAULT

    @property
    def version_type(self) -> str:
        """The Go type of a version; `SelectableFields` came with 1.30."""
        known = has_behaviour(self.release, "SelectableFields")
        return f"{_VERSION_TYPE}@selectable" if known else _VERSION_TYPE


def _old_options(release: Release, old: Object) -> _Options:
    """An update must not meet stricter rules than the stored definition does."""
    spec = old.get("spec") or {}
    schemas = _schemas(spec)
    reviews = _webhook(spec).get("conversionReviewVersions") or ()
    return _Options(
        Demands(
            known_types=not any(map(has_unknown_types, schemas)),
            atomic_sets=not any(map(has_non_atomic_sets, schemas)),
            sound_map_keys=not any(map(has_unsound_map_keys, schemas)),
        ),
        need_schema=len(schemas) == len(spec.get("versions") or ()),
        need_structural=not any(
            not is_structural_possible(s) or validate_structural(s, "") for s in schemas
        ),
        need_pruned_defaults=not any(has_defaults(s) and has_unpruned_defaults(s) for s in schemas),
        stored_schemas={
            v.get("name", ""): (v.get("schema") or {}).get("openAPIV3Schema")
            for v in spec.get("versions") or ()
        },
        stored_fields={
            v.get("name", ""): v.get("selectableFields") for v in spec.get("versions") or ()
        },
        need_known_review_version=not reviews or bool(set(reviews) & set(REVIEW_VERSIONS)),
        release=release,
    )


def _webhook(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return (spec.get("conversion") or {}).get("webhook") or {}


def _names(names: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    for name in ("plural", "singular", "kind", "listKind"):
        value = names.get(name, "")
        mixed = name in ("kind", "listKind")
        messages = is_dns1035_label(value.lower() if mixed else value) if value else []
        if messages:
            errors.append(
                invalid(
                    f"{path}.{name}", value, (_MIXED_CASE if mixed else "") + ",".join(messages)
                )
            )
    errors += _labels(names.get("shortNames"), f"{path}.shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errors.append(
            invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
        )
    return errors + _labels(names.get("categories"), f"{path}.categories")


def _labels(values: Sequence[str] | None, path: str) -> Errors:
    return [
        invalid(f"{path}[{i}]", value, ",".join(messages))
        for i, value in enumerate(values or ())
        if (messages := is_dns1035_label(value))
    ]


def _json_path(text: str, path: str) -> Errors:
    if not text.startswith("."):
        return [invalid(path, text, "must be a simple json path starting with .")]
    return []


def _column(column: Mapping[str, Any], path: str) -> Errors:
    errors = [] if column.get("name") else [required(f"{path}.name")]
    kind, fmt, json_path = (
        column.get("type", ""),
        column.get("format", ""),
        column.get("jsonPath", ""),
    )
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        errors.append(required(f"{path}.type", types))
    elif kind not in _COLUMN_TYPES:
        errors.append(invalid(f"{path}.type", kind, types))
    if fmt and fmt not in _COLUMN_FORMATS:
        errors.append(invalid(f"{path}.format", fmt, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    where = f"{path}.JSONPath"
    return errors + (_json_path(json_path, where) if json_path else [required(where)])


def _subresources(subresources: Mapping[str, Any] | None, path: str) -> Errors:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return []
    errors: Errors = []
    for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        where, value = f"{path}.scale.{name}", scale.get(name, "")
        if not value:
            errors.append(required(where))
        elif problems := _json_path(value, where):
            errors += problems
        elif not value.startswith(f"{root}."):
            errors.append(invalid(where, value, f"should be a json path under {root}"))
    where, value = f"{path}.scale.labelSelectorPath", scale.get("labelSelectorPath") or ""
    if value and (problems := _json_path(value, where)):
        errors += problems
    elif value and not value.startswith((".spec.", ".status.")):
        errors.append(invalid(where, value, "should be a json path under either .spec or .status"))
    return errors


def _root_under_status(schema: Mapping[str, Any], path: str) -> Errors:
    """With a status sub-resource, the root may only have keywords that also work when `status` is
    validated alone.
    """
    present = [key for key, value in schema.items() if value not in (None, "", False, [], {})]
    for key in sorted(
        present, key=lambda name: (name not in _BEFORE_TYPE, name != "description", name != "type")
    ):
        if key == "type":
            if schema["type"] != "object":
                return [
                    invalid(
                        f"{path}.openAPIV3Schema.type",
                        schema["type"],
                        'only "object" is allowed as the type '
                        "at the root of the schema if the status subresource is enabled",
                    )
                ]
        elif (
            key not in _AT_ROOT and key != VALIDATIONS
        ):  # rules came after 1.20, whose message does not name this field
            return [
                invalid(
                    f"{path}.openAPIV3Schema",
                    go_dump("apiextensions.JSONSchemaProps", schema),
                    f"only [{' '.join(_AT_ROOT.values())}] fields are allowed at the root of "
                    "the schema if the "
                    "status subresource is enabled",
                )
            ]
    return []


def _validation(
    validation: Mapping[str, Any] | None, has_status: bool, options: _Options, path: str
) -> Errors:
    schema = (validation or {}).get("openAPIV3Schema")
    if schema is None:
        return []
    where = f"{path}.openAPIV3Schema"
    errors = _root_under_status(schema, path) if has_status else []
    if schema.get("nullable"):
        errors.append(forbidden(f"{where}.nullable", "nullable cannot be true at the root"))
    general = validate_schema(schema, where, options.demands)
    if not options.need_structural:
        return errors + general
    if is_structural_possible(schema):
        problems = validate_structural(
            schema, where, nested_rules=not has_tables(options.release)
        ) or typed_custom_errors(
            options.release, validate_defaults(schema, where, options.need_pruned_defaults)
        )
        stored = any(schema == known for known in options.stored_schemas.values())
        first = has_behaviour(options.release, "StructuralErrorsFirst")
        rules: Errors = []
        if not problems and (first or not errors + general):
            rules = check_rules(schema, where, suppress_cost=stored, release=options.release)
        return errors + (problems + general if first else general + problems) + rules
    # All other conflicting keywords have been reported by now.
    return errors + general or [invalid(where, "", "OpenAPIV3Schema 'schema' is not supported")]


def _deprecation_warning(version: Mapping[str, Any]) -> list[str]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return ["can only be set for deprecated versions"]
    messages = ["must be <= 256 characters long"] if byte_len(warning) > 256 else []
    if not warning:
        messages.append("must not be an empty string")
    at = 0
    for char in warning:
        if not char.isprintable():
            messages.append(
                "must only contain printable UTF-8 characters; non-printable character found "
                "at index "
                f"{at}"
            )
            break
        at += byte_len(char)
    return messages


def _version(version: Mapping[str, Any], has_status: bool, options: _Options, path: str) -> Errors:
    errors = check_each(
        f"{path}.deprecationWarning",
        version.get("deprecationWarning"),
        _deprecation_warning(version),
    )
    errors += _validation(version.get("schema"), has_status, options, f"{path}.schema")
    errors += _subresources(version.get("subresources"), f"{path}.subresources")
    for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
        errors += _column(column, f"{path}.additionalPrinterColumns[{i}]")
    return errors


def _selectable(
    versions: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Versions with selectable fields, and the path of these: internally, fields that all versions
    have are those of the definition.
    """
    common = all(
        (v.get("selectableFields") or None) == (versions[0].get("selectableFields") or None)
        for v in versions
    )
    for i, version in enumerate(versions):
        if version.get("selectableFields") and not (common and i):
            yield version, "spec" if common else f"spec.versions[{i}]"


def _selectable_fields(versions: Sequence[Mapping[str, Any]], options: _Options) -> Errors:
    if not is_enabled(options.release, "CustomResourceFieldSelectors"):
        return []
    errors: Errors = []
    for version, path in _selectable(versions):
        fields = version["selectableFields"]
        errors += validate_selectable_fields(
            fields,
            (version.get("schema") or {}).get("openAPIV3Schema"),
            f"{path}.selectableFields",
            allow_too_many=options.stored_fields.get(version.get("name", "")) == fields,
        )
    return errors


def _has_status(subresources: Mapping[str, Any] | None) -> bool:
    return (subresources or {}).get("status") is not None


_VERSION_TYPE = "apiextensions.CustomResourceDefinitionVersion"


def _shown_versions(versions: Sequence[Mapping[str, Any]] | None, options: _Options) -> GoText:
    if versions is not None and not versions:
        return GoText(f"[]{_VERSION_TYPE}{{}}", "[]")
    return go_dump(f"[]{options.version_type}", versions)


def _spec(spec: Mapping[str, Any], options: _Options) -> Errors:
    group, versions, names = (
        spec.get("group", ""),
        spec.get("versions") or (),
        spec.get("names") or {},
    )
    view = _view(spec)
    preserve = bool(spec.get("preserveUnknownFields"))
    errors: Errors = []
    if not group:
        errors.append(required("spec.group"))
    elif messages := is_dns1123_subdomain(group):
        errors.append(invalid("spec.group", group, ",".join(messages)))
    elif "." not in group:
        errors.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    errors += one_of(spec.get("scope", ""), "spec.scope", ("Cluster", "Namespaced"))
    schemas = _schemas(spec)
    defaults = options.demands.defaults_forbidden is None and any(map(has_defaults, schemas))
    if not preserve or defaults or any(map(has_extensions, schemas)):
        options = options._replace(need_structural=True)
    errors += _schemas_there(view, options, preserve)
    if preserve and defaults:
        errors.append(
            invalid(
                "spec.preserveUnknownFields",
                True,
                "must be false in order to use defaults in the schema",
            )
        )
    for i, version in enumerate(view.versions or ()):
        name, path = version.get("name", ""), f"spec.versions[{i}]"
        if messages := is_dns1035_label(name):
            errors.append(invalid(f"{path}.name", name, ",".join(messages)))
        errors += _version(version, _has_status(versions[i].get("subresources")), options, path)
    labels = [version.get("name", "") for version in versions]
    if len(set(labels)) < len(labels):
        errors.append(
            invalid(
                "spec.versions",
                _shown_versions(view.versions, options),
                "must contain unique version names",
            )
        )
    if sum(bool(version.get("storage")) for version in versions) != 1:
        errors.append(
            invalid(
                "spec.versions",
                _shown_versions(view.versions, options),
                "must have exactly one version marked as storage version",
            )
        )
    if labels and labels[0] and (messages := is_dns1035_label(labels[0])):
        errors.append(invalid("spec.version", labels[0], ",".join(messages)))
    errors += [
        required(f"spec.names.{name}")
        for name in ("plural", "singular", "kind", "listKind")
        if not names.get(name)
    ]
    errors += _names(names, "spec.names")
    errors += _validation(
        view.schema,
        any(_has_status(v.get("subresources")) for v in versions),
        options,
        "spec.validation",
    )
    errors += _subresources(view.subresources, "spec.subresources")
    for i, column in enumerate(view.columns):
        errors += _column(column, f"spec.additionalPrinterColumns[{i}]")
    errors += _selectable_fields(versions, options)
    return errors + _conversion(spec, options, preserve)


def _schemas_there(view: _View, options: _Options, preserve: bool) -> Errors:
    if (view.schema or {}).get("openAPIV3Schema") is not None:
        return []
    missing = [
        (f"spec.versions[{i}].schema.openAPIV3Schema", version)
        for i, version in enumerate(view.versions or ())
        if (version.get("schema") or {}).get("openAPIV3Schema") is None
    ]
    if options.need_schema:
        return [required(path, "schemas are required") for path, _ in missing]
    if preserve:
        return []
    return [
        required(path, "because otherwise all fields are pruned")
        for path, version in missing
        if version.get("served")
    ]


def _conversion(spec: Mapping[str, Any], options: _Options, preserve: bool) -> Errors:
    conversion = spec.get("conversion")
    if conversion is None:
        return []
    path, strategy = "spec.conversion", conversion.get("strategy", "")
    webhook = conversion.get("webhook")
    client, reviews = (
        (webhook or {}).get("clientConfig"),
        (webhook or {}).get("conversionReviewVersions") or (),
    )
    errors: Errors = []
    if preserve and strategy != "None":
        errors.append(
            invalid(
                f"{path}.strategy", strategy, "must be None if spec.preserveUnknownFields is true"
            )
        )
    errors += one_of(strategy, f"{path}.strategy", ("None", "Webhook"))
    where = f"{path}.webhookClientConfig"
    if strategy == "Webhook":
        errors += (
            validate_client_config(client, where)
            if client is not None
            else [required(where, "required when strategy is set to Webhook")]
        )
        return errors + _review_versions(reviews, options, f"{path}.conversionReviewVersions")
    text = "should not be set when strategy is not set to Webhook"
    if client is not None:
        errors.append(forbidden(where, text))
    if reviews:
        errors.append(forbidden(f"{path}.conversionReviewVersions", text))
    return errors


def _review_versions(versions: Sequence[str], options: _Options, path: str) -> Errors:
    if not versions:
        return [required(path)]
    return check_review_versions(versions, path, need_known=options.need_known_review_version)


def _stored_versions(crd: Object, options: _Options) -> Errors:
    stored, path = (crd.get("status") or {}).get("storedVersions"), "status.storedVersions"
    if not stored:
        return [invalid(path, go_dump("[]string", stored), "must have at least one stored version")]
    versions = _view(crd.get("spec") or {}).versions or ()
    errors: Errors = []
    missing = {name: i for i, name in enumerate(stored)}
    for version in versions:
        name = version.get("name", "")
        if version.get("storage") and name not in missing:
            shown = (
                go_dump("[]string", stored)
                if has_behaviour(options.release, "StoredVersionsInErrors")
                else go_dump(options.version_type, version)
            )
            errors.append(invalid(path, shown, f"must have the storage version {name}"))
        missing.pop(name, None)
    explained = has_behaviour(options.release, "StoredVersionsExplained")
    return errors + [
        invalid(
            f"{path}[{i}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain "
            "in spec.versions until a storage migration ensures no data remains persisted in "
            f"{name} and removes {name} from status.storedVersions"
            if explained
            else "must appear in spec.versions",
        )
        for name, i in missing.items()
    ]


def approval(crd: Object) -> tuple[str, str]:
    """The approval state that community-owned groups need, and its message."""
    text = (crd["metadata"].get("annotations") or {}).get(APPROVED, "")
    if not text:
        return "missing", f'protected groups must have approval annotation "{APPROVED}", {_ADVICE}'
    if text.startswith("unapproved"):
        return "bypassed", f"not approved: {go_quote(text)}"
    try:
        url = parse_url(text)
    except URLError:
        url = None
    if url is not None and url.host and url.scheme:
        return "approved", f"approved in {text}"
    return "invalid", (
        f'protected groups must have approval annotation "{APPROVED}" with either a URL or a '
        "reason "
        f'starting with "unapproved", {_ADVICE}'
    )


def _approved(new: Object, old: Object | None) -> Errors:
    group = (new.get("spec") or {}).get("group", "")
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    state, words = approval(new)
    if old is not None and approval(old)[0] == state:
        return []
    path = f"metadata.annotations[{APPROVED}]"
    if state == "missing":
        return [required(path, words)]
    return (
        [invalid(path, new["metadata"]["annotations"][APPROVED], words)]
        if state == "invalid"
        else []
    )


def _preserve(new: Object, old: Object | None) -> Errors:
    if old is not None and (old.get("spec") or {}).get("preserveUnknownFields"):
        return []
    if not (new.get("spec") or {}).get("preserveUnknownFields"):
        return []
    return [
        invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead",
        )
    ]


def _status(crd: Object) -> Errors:
    return _names((crd.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")


_BETA = _Options(
    Demands(
        known_types=False,
        defaults_forbidden="(cannot set default values in apiextensions.k8s.io/v1beta1 CRDs, must "
        "use apiextensions.k8s.io/v1)",
    ),
    need_schema=False,
    need_structural=False,
)


def _definition(crd: Object, options: _Options) -> Errors:
    spec = crd.get("spec") or {}
    expected = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"

    def name_rule(name: str, prefix: bool) -> list[str]:
        messages = name_is_dns_subdomain(name, prefix)
        return (
            messages
            if name == expected
            else [*messages, 'must be spec.names.plural+"."+spec.group']
        )

    errors = validate_any_object_meta(crd["metadata"], False, name_rule)
    return errors + _spec(spec, options) + _status(crd) + _stored_versions(crd, options)


def validate_custom_resource_definition(release: Release, crd: Object) -> Errors:
    return _definition(crd, _Options(release=release)) + _approved(crd, None) + _preserve(crd, None)


def validate_beta_custom_resource_definition(release: Release, crd: Object) -> Errors:
    """The old version requires neither schemas nor approvals, but does not support defaults."""
    return _definition(crd, _BETA._replace(release=release))


def _established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _updated(new: Object, old: Object, options: _Options) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    names, was = spec.get("names") or {}, before.get("names") or {}
    errors = validate_any_object_meta_update(new["metadata"], old["metadata"]) + _spec(
        spec, options
    )
    if _established(old):
        errors += immutable(spec.get("scope", ""), before.get("scope", ""), "spec.scope")
        errors += immutable(names.get("kind", ""), was.get("kind", ""), "spec.names.kind")
    errors += immutable(spec.get("group", ""), before.get("group", ""), "spec.group")
    errors += immutable(names.get("plural", ""), was.get("plural", ""), "spec.names.plural")
    return errors + _status(new) + _stored_versions(new, options)


def validate_custom_resource_definition_update(
    release: Release, new: Object, old: Object
) -> Errors:
    options = _old_options(release, old)
    return _updated(new, old, options) + _approved(new, old) + _preserve(new, old)


def validate_beta_custom_resource_definition_update(
    release: Release, new: Object, old: Object
) -> Errors:
    options = _old_options(release, old)
    if any(map(has_defaults, _schemas(old.get("spec") or {}))):  # already stored, so they may stay
        return _updated(new, old, options._replace(need_schema=False, need_structural=False))
    demands = options.demands._replace(
        known_types=False, defaults_forbidden=_BETA.demands.defaults_forbidden
    )
    return _updated(
        new, old, options._replace(demands=demands, need_schema=False, need_structural=False)
    )


def validate_custom_resource_definition_status_update(
    _release: Release, new: Object, old: Object
) -> Errors:
    return validate_any_object_meta_update(new["metadata"], old["metadata"]) + _status(new)


VALIDATORS = {
    "apiextensions.k8s.io/CustomResourceDefinition": ReleaseRules(
        validate_custom_resource_definition,
        validate_custom_resource_definition_update,
        validate_custom_resource_definition_status_update,
    ),
    "apiextensions.k8s.io/CustomResourceDefinition@apiextensions.k8s.io/v1beta1": ReleaseRules(
        validate_beta_custom_resource_definition,
        validate_beta_custom_resource_definition_update,
        validate_custom_resource_definition_status_update,
    ),
}
