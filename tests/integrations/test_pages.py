"""The pages' scripts run as they stand on real data, whose size no batch divides."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "integrations" / "from_opacus.md").read_text(encoding="utf-8")


def script(page: str) -> str:
    """The Python of a page's examples, without what they print."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(page))


def digits_in_place_of_the_readers_data(text: str) -> str:
    """Scikit-learn's digits, 1437 of them, in batches of 128 for 20 epochs."""
    changes = {
        "TensorDataset(torch.randn(2_000, 20), torch.randint(10, (2_000,)))": "TensorDataset(images, labels)",
        "batch_size=100)": "batch_size=128)",
        "torch.nn.Linear(20, 10)": "torch.nn.Linear(64, 10)",
        "max_batch_size=112": "max_batch_size=144",
        "epochs = 3": "epochs = 20",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.filterwarnings("ignore")  # Opacus's of its random numbers; the page turns them off for the process
def test_the_opacus_page_trains_on_digits_to_the_last_step_and_is_evaluated_and_saved(tmp_path):
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    names: dict[str, Any] = {"images": images[:1437], "labels": labels[:1437]}
    text = digits_in_place_of_the_readers_data(script(PAGE).replace('warnings.simplefilter("ignore")', "pass"))
    exec(text, names)
    engine, model = names["engine"], names["model"]
    assert len(engine.accountant) == engine.steps == names["scheme"].steps_of_epochs(20) == 225
    assert tuple(names["x"].shape) == (144, 64)
    assert 2.9 < engine.get_epsilon(1e-5) <= 3.0
    with torch.no_grad():
        accuracy = (model(images[1437:]).argmax(1) == labels[1437:]).float().mean()
    assert accuracy > 0.5
    engine.save_checkpoint(path=tmp_path / "run.pt", module=model)
    assert (tmp_path / "run.pt").stat().st_size > 0
