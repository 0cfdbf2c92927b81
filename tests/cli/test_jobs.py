"""Options of distributed jobs: one key, and a finished run that is not replaced unasked."""

import os

import pytest

import filet
from filet.cli.jobs import check_output, key_handle, write_options
from filet.integrations.batch_files import KeyCall, KeyFile, KeyVariable

NONE = {"key_file": None, "key_variable": None, "key_call": None}


def test_one_handle_is_taken_and_a_file_is_found_from_anywhere():
    assert key_handle({**NONE, "key_file": "key"}) == KeyFile(os.path.abspath("key"))
    assert key_handle({**NONE, "key_file": "s3://bucket/key"}) == KeyFile("s3://bucket/key")
    assert key_handle({**NONE, "key_variable": "KEY"}) == KeyVariable("KEY")
    assert key_handle({**NONE, "key_call": "a:b"}) == KeyCall("a:b")
    with pytest.raises(filet.InvalidArgumentError, match="no key is given"):
        key_handle(NONE)
    with pytest.raises(filet.InvalidArgumentError, match="several keys are given"):
        key_handle({**NONE, "key_file": "key", "key_call": "a:b"})


def test_a_finished_run_is_replaced_only_when_told_to(tmp_path):
    check_output(str(tmp_path), force=False)
    (tmp_path / "manifest.json").write_text("{}")
    check_output(str(tmp_path), force=True)
    with pytest.raises(filet.InvalidArgumentError, match="holds a finished run; pass --force"):
        check_output(str(tmp_path), force=False)


def test_names_of_options_are_the_librarys():
    given = {"form": "arrow", "steps_per_file": 2, "secure": True, "rows_per_key": 3}
    wanted = {"format": "arrow", "steps_per_file": 2, "secure": True, "rows_per_key": 3}
    assert write_options(given) == wanted
