"""Deployments of the first beta versions: /rollback requests a rollback to an earlier revision."""

from __future__ import annotations

from transom.apiserver.core.attributes import AdmissionInterface, admit_subresource
from transom.apiserver.core.bodies import begin_write, read_media
from transom.apiserver.core.call import ApiCall, DocumentResult
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.core.storage import Storage
from transom.machinery import codec, errors
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError, invalid, required
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, with_metadata
from transom.machinery.validation.meta import validate_annotations

_ANNOTATION = "deprecated.deployment.rollback.to"


class RollbackSubresource:
    def __init__(
        self, storage: Storage, admission: AdmissionInterface, resources: ResourceRegistry
    ) -> None:
        self._storage = storage
        self._admission = admission
        self._deployments = resources.require("apps", "v1", "deployments")

    async def create(self, call: ApiCall) -> DocumentResult:
        begin_write(call, "CreateOptions")
        raw, media = call.body, read_media(call)
        wanted = GVK(call.res.group, call.res.version, "DeploymentRollback")
        given = await self._storage.compute(
            call.ctx, lambda: codec.decode_object(raw, media, wanted, strict=False).obj
        )
        name = given.get("name", "")
        problems = _validate(given)
        if problems:
            raise errors.invalid(GroupResource("apps", "DeploymentRollback"), name, problems)
        if name != call.info.name:
            raise errors.bad_request("name in URL does not match name in DeploymentRollback object")
        await admit_subresource(self._admission, call, given)
        revision = (given.get("rollbackTo") or {}).get("revision", 0)
        annotations = {**(given.get("updatedAnnotations") or {}), _ANNOTATION: str(revision)}
        deployments = self._deployments

        def transform(deployment: Object | None) -> Object:
            assert deployment is not None
            before = deployment["metadata"].get("annotations") or {}
            return with_metadata(deployment, annotations={**before, **annotations})

        def keep(*_args: object) -> None:
            """Changes only its own field: no strategy, no validation of the Deployment."""

        await self._storage.update(
            call.ctx,
            deployments,
            call.info.namespace,
            name,
            transform,
            subresource="rollback",
            prepare=keep,
            reread=True,
            checked=False,
        )
        done: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "message": f'rollback request for deployment "{name}" succeeded',
            "code": 200,
        }
        return DocumentResult(done, 201)


def _validate(rollback: Object) -> list[FieldError]:
    problems = validate_annotations(rollback.get("updatedAnnotations") or {}, "updatedAnnotations")
    if not rollback.get("name"):
        problems.append(required("name", "name is required"))
    revision = (rollback.get("rollbackTo") or {}).get("revision", 0)
    if revision < 0:
        problems.append(invalid("rollback.version", revision, "must be greater than or equal to 0"))
    return problems
