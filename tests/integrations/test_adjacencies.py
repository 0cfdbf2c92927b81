"""The help of --adjacency and the page on finished runs: what they say of other libraries holds for the installed ones."""

from __future__ import annotations

import warnings

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation

import filet
from filet.cli.options import NEIGHBOURS

RUN = {"noise_multiplier": 1.0, "steps": 1_000}
SCHEME = filet.CappedPoisson.uncapped(10_000, 0.01)


def test_the_help_uses_the_names_of_dp_accounting() -> None:
    sentences = NEIGHBOURS.split(". ")
    names = ("ADD_OR_REMOVE_ONE", "REPLACE_SPECIAL", "REPLACE_ONE")
    assert {relation.name for relation in NeighboringRelation} == set(names)
    for sentence, adjacency, name in zip(sentences, filet.Adjacency, names, strict=True):
        assert sentence.startswith(f"{adjacency}: ")
        assert name in sentence


@pytest.mark.parametrize("accountant", [dp_accounting.pld.PLDAccountant, dp_accounting.rdp.RdpAccountant])
def test_dp_accountings_default_is_add_remove(accountant: type[dp_accounting.PrivacyAccountant]) -> None:
    assert accountant().neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE


def test_jax_privacys_accounting_is_add_remove_and_its_plans_zero_out() -> None:
    from tests.integrations.jax_privacy_configs import HEAD, banded_config

    from filet.integrations.jax_privacy import configs

    public = banded_config(num_examples=100)
    assert configs.read(public).relation is NeighboringRelation.REPLACE_SPECIAL
    if HEAD:  # which has no accountants of its own, and chooses by whether the size is public
        assert configs.read(banded_config()).relation is NeighboringRelation.ADD_OR_REMOVE_ONE
        return
    from jax_privacy.accounting import accountants

    for config in (accountants.RdpAccountantConfig(), accountants.PldAccountantConfig()):
        assert config.create_accountant().neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE
    plan = configs.Config(iterations=10, strategy=np.ones(1), epsilon=None, delta=None, noise_multiplier=1.0)
    assert plan.accountant.neighboring_relation is NeighboringRelation.REPLACE_SPECIAL


def test_opacus_reports_add_remove() -> None:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(RUN["noise_multiplier"], SCHEME.sampling_probability, RUN["steps"])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = accountant.get_epsilon(1e-5)
    added, zeroed, replaced = (
        filet.account(SCHEME, adjacency=adjacency, **RUN).epsilon(1e-5) for adjacency in filet.Adjacency
    )
    assert peer == pytest.approx(added, rel=0.01)
    assert added == zeroed < 0.8 * replaced
