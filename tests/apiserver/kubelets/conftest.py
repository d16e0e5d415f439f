import pytest
from tests.conftest import UVLOOP, Backend


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP
