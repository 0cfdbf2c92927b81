"""The strategy for several ranks: Lightning's, without the wrapper that averages gradients."""

from __future__ import annotations

from lightning.pytorch.strategies import DDPStrategy
from tests.integrations.lightning_runs import Small

from filet.integrations.lightning import CappedDDPStrategy


def test_the_module_is_not_wrapped():
    strategy, module = CappedDDPStrategy(process_group_backend="gloo"), Small()
    strategy.model = module
    strategy.configure_ddp()
    assert strategy.model is module
    assert isinstance(strategy, DDPStrategy)
    assert strategy.process_group_backend == "gloo"
