"""Tables and a server that the tests of pages share: they only read them."""

from collections.abc import Iterator

import pytest
from http_endpoint import Opened, opened
from page_world import PageWorld

from streaming.common.times import now_ms


@pytest.fixture(scope="session")
def page_world(tmp_path_factory: pytest.TempPathFactory) -> PageWorld:
    return PageWorld(tmp_path_factory.mktemp("pages") / "tables", now_ms())


@pytest.fixture(scope="session")
def page_endpoint(page_world: PageWorld) -> Iterator[Opened]:
    with opened(page_world.tables, every_s=1) as endpoint:
        yield endpoint
        assert endpoint.said == []
