"""What every engine does: whole blocks, whole ranges of steps, and errors of workers as one line."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integrations.beam_jobs import (
    NOT_PUBLIC,
    SCHEME,
    SIZE,
    arrays,
    assert_is_the_samplers,
    examples,
    not_public,
    sampler_of,
    secret,
)

import filet
from filet.integrations.batch_files.job import (
    Packer,
    Run,
    asked_rows,
    assembled,
    check_block,
    draws,
    filet_error,
    last_line,
    one_key,
)
from filet.integrations.batch_files.records import Chunk, Facts, fields_of, pack
from filet.integrations.batch_files.writing import Output


def test_a_block_needs_every_index_once():
    check_block(np.arange(4, 8), range(4, 8), dense=False)
    twice, missing = np.array([4, 6, 6, 7]), np.array([4, 6, 7])
    with pytest.raises(filet.InvalidArgumentError, match="the index 6 is there twice"):
        check_block(twice, range(4, 8), dense=False)
    with pytest.raises(filet.InvalidArgumentError, match="the index 5 is missing"):
        check_block(missing, range(4, 8), dense=False)
    with pytest.raises(filet.OutputError, match="example 6 came twice out of the shuffle, though it went in once"):
        check_block(twice, range(4, 8), dense=True)
    with pytest.raises(filet.OutputError, match="example 5 came not at all out of the shuffle"):
        check_block(missing, range(4, 8), dense=True)


@pytest.mark.parametrize("wanted", [range(4, 7), range(4, 4), range(4, 3)])
def test_a_block_with_more_than_was_counted_is_refused(wanted):
    """Such as the rows of a table that grows between two passes."""
    with pytest.raises(filet.InvalidArgumentError, match="more examples came than were counted before"):
        check_block(np.arange(4, 8), wanted, dense=True)


def test_rows_that_were_lost_are_noticed(tmp_path):
    run = Run.checked(SCHEME, 1, secret(tmp_path))
    fields = fields_of({"x": 1})
    part = (Chunk.of([(0, pack({"x": 1}, fields))]), np.array([17]).tobytes())
    head = np.array([2]).tobytes()
    with pytest.raises(filet.OutputError, match="a row of step 0 did not come out of the shuffle"):
        list(assembled(run, 0, [head], [part], fields))
    with pytest.raises(filet.OutputError, match="the sizes of steps 0 to 0 came 0 times"):
        list(assembled(run, 0, [], [part], fields))
    with pytest.raises(filet.OutputError, match="0 files of 1 were written"):
        Output.checked(run, tmp_path / "out", "parquet").write_manifest([], fields, "")


def test_draws_packing_joining_and_assembling_give_the_samplers_batches(tmp_path):
    run = Run.checked(SCHEME, 20, secret(tmp_path), 3, steps_per_range=6, rows_per_key=32)
    packer = Packer(run.rows_per_key)
    chunks = [one for index, example in examples() for one in packer.add(index, example)]
    chunks += packer.chunks()
    known = packer.facts.checked(SCHEME)
    sampler = run.sampler()
    found = [draws(run, number, sampler) for number in range(run.ranges)]
    asked = [(number, one) for number, drawn in enumerate(found) for one in drawn.draws]
    rows: list = [[] for _ in found]
    for block, chunk in chunks:
        mine = [(number, one.places, one.indices) for number, one in asked if one.block == block]
        for number, part, indices in asked_rows(run, block, [chunk], mine, known):
            rows[number].append((part, indices))
    batches = [
        batch
        for number, drawn in enumerate(found)
        for batch in assembled(run, number, [drawn.sizes], rows[number], known.fields)
    ]
    assert [batch.step for batch in batches] == list(range(3, 20))
    assert_is_the_samplers(batches, sampler_of(SCHEME, run.key), arrays())


@pytest.mark.parametrize("texts", [False, True])
def test_many_examples_at_once_are_packed_as_one_by_one(texts):
    pairs = [(k * 7 % 50, {"x": np.float32(k), **({"t": b"t" * k} if texts else {})}) for k in range(50)]
    fields = fields_of(pairs[0][1])
    one, many = Packer(8), Packer(8)
    single = [found for index, example in pairs for found in one.add(index, example)]
    single += one.chunks()
    whole = Chunk.of([(index, pack(example, fields)) for index, example in pairs])
    together = [*many.add_chunk(whole, fields), *many.chunks()]
    columns = Packer(8)
    values = {"x": np.arange(50, dtype=np.float32), **({"t": [example["t"] for _, example in pairs]} if texts else {})}
    found = [*columns.add_columns(np.array([index for index, _ in pairs]), values), *columns.chunks()]
    assert one.facts == many.facts == columns.facts
    content = [{block: sorted(_cut(chunk, fields)) for block, chunk in way} for way in (single, together, found)]
    assert content[0] == content[1] == content[2]


def test_columns_of_several_shapes_and_none_are_packed_row_by_row():
    packer = Packer(8)
    assert [*packer.add_columns(np.arange(0), {"x": np.zeros((0, 3))}), *packer.chunks()] == []
    assert [*packer.add_columns(np.arange(3), {"x": [np.zeros(3), np.zeros(3), np.zeros(2)]})] == []
    with pytest.raises(filet.InvalidArgumentError, match=r"example 2 has shape \(2,\).*example 0 has shape \(3,\)"):
        packer.facts.checked(filet.CappedPoisson(3, 0.5, 2))
    with pytest.raises(filet.InvalidArgumentError, match="indices are of type float64, not integers"):
        list(packer.add_columns(np.zeros(2), {"x": np.zeros(2)}))


def _cut(chunk, fields):
    from filet.integrations.batch_files.records import Rows

    numbers = np.frombuffer(chunk.numbers, dtype="<i8")
    rows = Rows(fields, [chunk])
    return [(int(n), rows.take(np.array([n]), b"").rows) for n in numbers]


def test_facts_of_many_do_not_overflow():
    high = 2**40
    facts = Facts.of_all(np.array([high, 3]), ())
    assert (facts.total, facts.squares) == (high + 3, high**2 + 9)


@pytest.mark.parametrize(("size", "planned"), NOT_PUBLIC)
def test_a_run_of_a_secret_size_draws_by_the_true_number_and_does_not_hold_it(tmp_path, size, planned):
    scheme = not_public(size, planned)
    run = Run.checked(scheme, 20, secret(tmp_path))
    wanted = sampler_of(scheme, run.key, records=SIZE)
    found = run.sampler(SIZE)
    assert all(found[step] == wanted[step] for step in range(20))
    with pytest.raises(filet.InvalidArgumentError, match="needs the true number of records"):
        run.sampler()
    assert Run.checked(SCHEME, 20, secret(tmp_path)).sampler(SIZE)[3] == sampler_of(SCHEME, run.key)[3]


def test_workers_with_different_keys_are_refused():
    assert one_key(["a", "a"]) == "a"
    assert one_key([]) == ""
    with pytest.raises(filet.InvalidArgumentError, match="workers have different keys"):
        one_key(["a", "b"])


def test_the_error_of_a_worker_is_found_in_what_an_engine_makes_of_it():
    text = "An exception was thrown:\n  File x\nfilet.errors.StateError: no; do this [while running 'a']\n at jvm"
    found = filet_error(RuntimeError(text))
    assert (type(found), str(found)) == (filet.StateError, "no; do this")
    assert filet_error(RuntimeError("ValueError: no")) is None
    assert last_line(RuntimeError("a\n b \n")) == "b"
    assert last_line(RuntimeError()) == "RuntimeError"
