"""One cluster for all tests of this folder."""

from __future__ import annotations

import pytest
from tests.integrations.spark_cluster import running


@pytest.fixture(scope="session")
def cluster_and_session():
    with running() as both:
        yield both


@pytest.fixture
def cluster(cluster_and_session):
    return cluster_and_session[0]


@pytest.fixture
def session(cluster_and_session):
    return cluster_and_session[1]
