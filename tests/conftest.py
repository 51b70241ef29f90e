"""What all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import postgres_server

settings.register_profile(
    "house", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("house")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the larger data sets, or a skip that says why."""
    folder = os.environ.get("DPUNION_DATA")
    if not folder:
        pytest.skip("DPUNION_DATA is not set: the larger data sets are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL, with password, of a database on a PostgreSQL server of this session; or a skip that says why."""
    with postgres_server.running_server() as url:
        yield url
