"""Manifests: old ones are read as before, and a kind that is not known says so."""

from __future__ import annotations

import hashlib
import json

import pytest
from tests.integrations.beam_jobs import SCHEME

import filet
from filet.integrations.batch_files.manifest import Manifest, StoredFile
from filet.integrations.batch_files.records import Field

FIELDS = (Field("x", "<f4", (3,)),)


def manifest(form: str) -> Manifest:
    files = (StoredFile(f"batches-00000-of-00001.{form}", 0, 2, 10, "00"),)
    return Manifest(form, SCHEME, True, 0, 2, "aa", FIELDS, files)


@pytest.mark.parametrize(
    ("form", "schema"),
    [(name, "filet.batches.v1") for name in ("parquet", "tfrecord", "avro")] + [("arrow", "filet.batches.v2")],
)
def test_formats_of_the_first_version_keep_it(form, schema):
    text = manifest(form).to_json()
    assert json.loads(text)["schema"] == schema
    assert Manifest.from_json(text, "m") == manifest(form)


@pytest.mark.parametrize("change", [{"schema": "filet.batches.v9"}, {"format": "orc"}, {"schema": "filet.batches.v1"}])
def test_a_kind_that_is_not_known_says_so(change):
    content = {**json.loads(manifest("arrow").to_json()), **change}
    content.pop("checksum")
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    with pytest.raises(filet.StateError, match=r"'m' is of the kind 'filet.*does not know; read it with a newer one"):
        Manifest.from_json(json.dumps({**content, "checksum": digest}), "m")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"checksum": 1}'])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(filet.StateError, match="'m' is damaged or no manifest of batches"):
        Manifest.from_json(text, "m")
