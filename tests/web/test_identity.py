"""The header of pages names the user that the API server sees."""

from __future__ import annotations

import orjson
import pytest
from tests.conftest import ContextFactory

from transom.http.messages import Answer, HttpRequest, HttpResponse

EVIL = "<script>alert(1)</script>"
REVIEWS = "/apis/authentication.k8s.io/{}/selfsubjectreviews"


class ReviewingApi:
    """Serves SelfSubjectReview in one version, or refuses it with a status."""

    def __init__(self, version: str, status: int = 201) -> None:
        self.path = REVIEWS.format(version)
        self.status = status
        self.requested = 0

    def __call__(self, request: HttpRequest) -> Answer:
        if "selfsubjectreviews" not in request.path:
            return HttpResponse(200, [], b'{"major":"1","minor":"36"}')
        self.requested += 1
        if request.path != self.path:
            return HttpResponse(404, [], b"{}")
        assert orjson.loads(request.body)["kind"] == "SelfSubjectReview"
        found = {"status": {"userInfo": {"username": f"system:admin {EVIL}"}}}
        return HttpResponse(self.status, [], orjson.dumps(found))


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
async def test_the_server_names_the_user_once(browser: ContextFactory, version: str) -> None:
    api = ReviewingApi(version)
    async with browser(api) as console:
        page = (await console.get("/lint")).text
        assert "system:admin &lt;script&gt;alert(1)&lt;/script&gt; @ blue" in page
        assert EVIL not in page
        requested = api.requested
        await console.get("/lint")
        assert api.requested == requested


@pytest.mark.parametrize(("version", "status"), [("v9", 201), ("v1", 403), ("v1", 500)])
async def test_the_kubeconfig_names_the_user_otherwise(
    browser: ContextFactory, version: str, status: int
) -> None:
    async with browser(ReviewingApi(version, status)) as console:
        assert "jane @ blue" in (await console.get("/lint")).text
