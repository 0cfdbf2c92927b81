"""A session for the command: the one there is, or one line where Java is missing."""

from __future__ import annotations

import pytest

import filet
from filet.integrations.spark import read_parquet, spark_session
from filet.integrations.spark.session import check_java


def test_the_session_there_is_is_used_and_left_running(session):
    with spark_session() as found:
        assert found is session
    assert session.range(3).count() == 3


def test_a_missing_java_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(filet.MissingExtraError, match=r"no java on the path.*install version 17 or later"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(filet.MissingExtraError, match=r"JAVA_HOME='.*' has no bin/java"):
        check_java()


def test_parquet_files_that_are_not_there_are_one_line(session, tmp_path):
    with pytest.raises(filet.FiletError, match="PATH_NOT_FOUND") as caught:
        read_parquet(session, str(tmp_path / "none"))
    assert "\n" not in str(caught.value)
