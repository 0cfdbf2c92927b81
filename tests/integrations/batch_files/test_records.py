"""Examples as rows: their common facts in any order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integrations.beam_jobs import examples, not_public
from tests.integrations.planted import PLANTED, tells

import filet
from filet.integrations.batch_files.job import merged_facts
from filet.integrations.batch_files.records import Facts, Known, fields_of, stored_dtype
from filet.integrations.beam.join import Pack


def of(size: int) -> filet.CappedPoisson:
    return filet.CappedPoisson(size, 0.5, 4)


def test_facts_are_the_same_in_any_order_and_name_the_first_that_differs():
    pairs = [(k, fields_of(example)) for k, example in examples(8)]
    pairs[5] = (5, fields_of({**examples(8)[5][1], "label": np.float32(1)}))
    pairs[6] = (6, fields_of({"label": 1}))
    parts = [Facts.of(index, fields) for index, fields in pairs]
    seen = Facts()
    for index, fields in pairs[::-1]:
        seen = seen.seen(index, fields)
    assert seen == merged_facts(parts) == merged_facts([merged_facts(parts[4:]), merged_facts(parts[:4])])
    with pytest.raises(
        filet.InvalidArgumentError, match=r"example 5 has shape \(\) and type float32 as 'label', where"
    ):
        seen.checked(of(8))
    with pytest.raises(filet.InvalidArgumentError, match="example 6 has nothing as 'image', where example 0 has shape"):
        merged_facts([*parts[:5], parts[6], *parts[6:]]).checked(of(8))
    for index in (-1, 8):
        with pytest.raises(filet.InvalidArgumentError, match=rf"an example has the index {index}, not in \[0, 8\)"):
            merged_facts([*parts[:7], Facts.of(index, parts[0].first[1])]).checked(of(8))
    assert merged_facts(parts[:5]).checked(of(5)) == Known(pairs[0][1], True, 5)
    assert merged_facts([*parts[:4], parts[3]]).checked(of(5)) == Known(pairs[0][1], False, 5)


@pytest.mark.parametrize(("size", "planned"), [("secret", 1_000), ("secret", 100_000), ("at-most", 100_000)])
def test_a_secret_number_of_examples_is_counted_and_in_no_message_or_repr(size, planned):
    scheme, fields = not_public(size, planned), fields_of({"x": 1})
    facts = Facts.of_all(np.arange(PLANTED), fields)
    known = facts.checked(scheme)
    assert known == Known(fields, True, PLANTED)
    assert not tells(f"{facts!r} {known!r}")
    for wrong in (np.arange(1, PLANTED + 1), np.arange(-1, PLANTED - 1)):
        with pytest.raises(filet.InvalidArgumentError, match="negative, or not below the number of examples") as caught:
            Facts.of_all(wrong, fields).checked(scheme)
        assert not tells(caught.value)
    twice = np.arange(PLANTED)
    twice[7] = 8
    assert not Facts.of_all(twice, fields).checked(scheme).dense
    with pytest.raises(filet.InvalidArgumentError, match="the data has no examples"):
        Facts().checked(scheme)


def test_a_promise_that_does_not_hold_and_a_plan_of_the_datas_own_size_are_told_without_a_number():
    fields = fields_of({"x": 1})
    facts = Facts.of_all(np.arange(PLANTED), fields)
    with pytest.raises(filet.InvalidArgumentError, match="records is above dataset_size=1000") as caught:
        facts.checked(not_public("at-most", 1_000))
    assert not tells(caught.value)
    for size in ("secret", "at-most"):
        with pytest.warns(UserWarning, match="computed from the data, it voids the guarantee"):
            facts.checked(not_public(size, PLANTED))


def test_the_type_of_indices_does_not_depend_on_a_secret_number():
    assert stored_dtype(of(100)) == stored_dtype(not_public("at-most", 100)) == np.int8
    assert stored_dtype(not_public("secret", 100)) == np.int64


def test_what_is_no_example_is_refused():
    for element, match in [
        (("0", {"x": 1}), "an example has the index '0', not an integer"),
        ((True, {"x": 1}), "an example has the index True, not an integer"),
        ((2**64, {"x": 1}), "not an integer"),
        ({"x": 1}, "an element is of type dict, not a pair of index and example"),
        ((0, 5), "an example is of type int, not a dict"),
        ((0, {}), "an example is of type dict, not a dict with fields"),
        ((0, {"x": "text"}), "the field 'x' is of type str"),
        ((0, {"x": 1j}), "the field 'x' is of type complex"),
        ((0, {"filet_x": 1}), "name fields by text without 'filet_'"),
        ((0, {3: 1}), "an example has the field 3"),
    ]:
        pack = Pack(8)
        pack.start_bundle()
        with pytest.raises(filet.InvalidArgumentError, match=match):
            list(pack.process(element))
