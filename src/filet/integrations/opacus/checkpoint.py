# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""One checkpoint for everything that a private run needs to go on exactly where it was."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

from filet import _checks
from filet.accounting.accountant import Accountant
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName
from filet.errors import FiletError, InvalidArgumentError, StateError
from filet.scheme import CappedPoisson, Overflow, Size

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch

from .accountant import CappedAccountant
from .ledger import AccountedLoader

NAME = "filet"
ACCOUNTANT = "privacy_accountant_state_dict"  # Opacus's name for it
NOISY = 0  # the rank whose noise is added to the sum of all ranks, unless each adds it to its shard of the model
_VERSION = 2
_WITHOUT_KEYED_NOISE = 1


def run_state(
    loader: AccountedLoader, generator: Any, *, secure_mode: bool, sharded: bool, include_key: bool
) -> dict[str, Any]:
    """The loader's position and the state of the noise: this rank's, which is all of it unless the model is sharded."""
    if loader.ledger.part:
        raise StateError(
            f"{loader.ledger.part} of {loader.parts} physical batches of this step are summed up, which no checkpoint holds;"
            " save after a step that ended its batch"
        )
    return {
        "version": _VERSION,
        "loader": loader.state_dict(include_key=include_key),
        "noise": None if secure_mode else _noise(generator),
        "rank": loader.batch_sampler.sampler.rank,
        "shards": loader.ledger.ranks if sharded else 0,
    }


def check_run(checkpoint: Any, accountant: CappedAccountant, loader: AccountedLoader) -> dict[str, Any]:
    """The state of the run in a checkpoint; `StateError` if it is of another run or its parts contradict."""
    state = checkpoint.get(NAME) if isinstance(checkpoint, Mapping) else None
    if isinstance(state, Mapping) and state.get("version") == _WITHOUT_KEYED_NOISE:
        raise StateError(
            "the checkpoint is of a filet whose noise did not come from the key, and its steps would get"
            " other noise now; finish that run with filet 0.2"
        )
    if not isinstance(state, Mapping) or state.get("version") != _VERSION:
        raise StateError(
            "the checkpoint does not say where the loader is; pass one that save_checkpoint of CappedPrivacyEngine wrote"
        )
    loader.batch_sampler.fitting(state["loader"])
    saved = CappedAccountant(accountant.scheme, adjacency=accountant.adjacency, analysis=accountant.analysis)
    saved.load_state_dict(checkpoint.get(ACCOUNTANT))
    position = state["loader"]["step"]
    if len(saved) != position:
        raise StateError(
            f"the checkpoint's accountant has counted {len(saved)} steps, but its loader is at step {position}; restore"
            " the checkpoint from a backup"
        )
    if len(accountant) > len(saved):
        raise StateError(
            f"this engine has taken {len(accountant)} steps, and the checkpoint would forget all but {len(saved)}; load it"
            " into a new engine, and account for both runs if both were seen"
        )
    return dict(state)


def restore_noise(state: Mapping[str, Any], loader: AccountedLoader, generator: Any) -> None:
    """Go on with the saved state of the noise, on ranks that add any."""
    noise = state["noise"]
    if noise is None or (loader.batch_sampler.sampler.rank != NOISY and not state.get("shards")):
        return
    if generator is not None:
        generator.set_state(noise["generator"])
    torch.set_rng_state(noise["cpu"])
    if noise["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(noise["cuda"])


def check_noise(
    state: Mapping[str, Any], loader: AccountedLoader, generator: Any, *, secure_mode: bool, sharded: bool
) -> None:
    """Raise unless the noise can go on from the same source: a source that begins again repeats earlier noise.

    Noise of the key is that of the step, on any rank; a `noise_generator` has a state of its own on every rank.
    """
    noise = state["noise"]
    if (noise is None) != secure_mode:
        raise StateError(
            f"the checkpoint is of a run with secure_mode={not secure_mode}; make the engine with the same"
        )
    if noise is not None and (noise["generator"] is None) != (generator is None):
        word = "without" if generator is not None else "with"
        raise StateError(f"the checkpoint is of a run {word} a noise_generator; call make_private in the same way")
    if noise is not None and generator is not None:
        _check_noisy_rank(state, loader, sharded)


def _check_noisy_rank(state: Mapping[str, Any], loader: AccountedLoader, sharded: bool) -> None:
    """Raise unless the saved generator is that of a rank that adds this noise."""
    shards = loader.ledger.ranks if sharded else 0
    if state.get("shards", 0) != shards:
        raise StateError(
            f"the checkpoint is of a model in {state.get('shards', 0)} shards, each with noise of its own, not {shards}; go on"
            " with as many"
        )
    rank = loader.batch_sampler.sampler.rank if sharded else NOISY
    if state["rank"] != rank:
        raise StateError(
            f"the checkpoint was saved by rank {state['rank']}, which does not have this noise, so that it would begin again;"
            f" save and load that of rank {rank}"
        )


def _noise(generator: Any) -> dict[str, Any]:
    return {
        "generator": None if generator is None else generator.get_state(),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


_SCHEME = re.compile(
    r"CappedPoisson\(dataset_size=(\d+), sampling_probability=([^,]+), max_batch_size=(\d+),"
    r" overflow=<Overflow\.[A-Z]+: '([a-z]+)'>, cycle_length=(\d+), size=<Size\.[A-Z_]+: '([a-z-]+)'>\)"
)


def read_checkpoint(path: Any, *, adjacency: Adjacency | AdjacencyName | None = None, **scheme: Any) -> PrivacyCurve:
    """The privacy of the steps of a checkpoint, of `CappedPrivacyEngine` or of Opacus's own engine.

    Guarantees: only the accountant and the loader's position are used; model, optimizer and key are not. The file is
    read without running code that is in it. One that is neither's, or whose parts contradict, is a `StateError`.

    A checkpoint of Opacus's own `PrivacyEngine` holds the noise, the sampling rate and the steps that its accountant
    counted, and nothing else of the batches. What it does not hold has to be passed. That each step was one
    batch of Poisson sampling (`poisson_sampling=True`, no accumulation of several) is the caller's word.

    Arguments:
        path: the file.
        adjacency: for a checkpoint of Opacus's own engine.
        scheme: for such a one `dataset_size`, `max_batch_size` (None for Opacus's own loader, which has no cap), and
            `overflow` if there is a cap.
    """
    checkpoint = _loaded(path)
    history = _opacus_history(checkpoint)
    if history is not None:
        return _composed(history, adjacency, scheme)
    given = [name for name, value in {**scheme, "adjacency": adjacency}.items() if name in scheme or value is not None]
    if given:
        raise InvalidArgumentError(f"{given[0]} is given, and the checkpoint of CappedPrivacyEngine names it; drop it")
    return _capped(checkpoint)


def _loaded(path: Any) -> Any:
    """The content of a file, without running code that is in it."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError):
        raise StateError(f"this is {_NO_CHECKPOINT}, or it holds objects beside tensors and numbers") from None


_NO_CHECKPOINT = "no checkpoint of CappedPrivacyEngine or of Opacus; pass what save_checkpoint wrote"


def _capped(checkpoint: Any) -> PrivacyCurve:
    """The privacy of a checkpoint that `CappedPrivacyEngine` wrote."""
    try:
        state, run = checkpoint[ACCOUNTANT], checkpoint[NAME]
        accountant = CappedAccountant(
            _scheme_of(state["scheme"]), adjacency=state["adjacency"], analysis=state["analysis"]
        )
        position = run["loader"]["step"]
        if "users" in run["loader"]:
            raise StateError("its run is one of users, which a curve does not say; use record() of the engine")
        accountant.load_state_dict(state)
    except FiletError as error:
        raise StateError(f"the checkpoint's accountant is damaged: {error}") from None
    except (KeyError, TypeError, ValueError):
        raise StateError(f"this is {_NO_CHECKPOINT}") from None
    if len(accountant) != position:
        raise StateError(
            f"the checkpoint's accountant has counted {len(accountant)} steps, but its loader is at step {position}; restore"
            " the checkpoint from a backup"
        )
    return accountant.curve()


def _opacus_history(checkpoint: Any) -> list[tuple[float, float, int]] | None:
    """Noise, rate and steps that an accountant of Opacus's own has counted; None if the checkpoint has none."""
    state = checkpoint.get(ACCOUNTANT) if isinstance(checkpoint, Mapping) and NAME not in checkpoint else None
    if not isinstance(state, Mapping) or state.get("mechanism") in (None, CappedAccountant.mechanism()):
        return None
    try:
        entries = [(_checks.noise_multiplier(s), rate, _checks.step_count(n)) for s, rate, n in state["history"]]
    except (KeyError, TypeError, ValueError, FiletError) as error:
        raise StateError(f"the history of Opacus's accountant is damaged ({error}); restore it from a backup") from None
    if not entries:
        raise StateError("Opacus's accountant has counted no step; pass a checkpoint that was saved after training")
    return entries


def _composed(history: list[tuple[float, float, int]], adjacency: Any, scheme: Mapping[str, Any]) -> PrivacyCurve:
    """The privacy of Opacus's history for batches of a scheme."""
    named = {**scheme, **({} if adjacency is None else {"adjacency": adjacency})}
    missing = [name for name in ("dataset_size", "max_batch_size", "adjacency") if name not in named]
    if missing:
        raise InvalidArgumentError(
            f"{', '.join(missing)} missing: a checkpoint of Opacus does not say it; pass it (max_batch_size=None, at the"
            " prompt --no-cap, for Opacus's own loader)"
        )
    total = Accountant(_checks.choice("adjacency", adjacency, Adjacency))
    for noise, rate, steps in history:
        total.compose(CappedPoisson(sampling_probability=rate, **scheme), noise, steps)
    return total.curve()


def _scheme_of(text: str) -> CappedPoisson:
    """The scheme whose `repr` the text is."""
    found = _SCHEME.fullmatch(text)
    if found:
        number, rate, cap, overflow, cycle, size = found.groups()
        scheme = CappedPoisson(int(number), float(rate), int(cap), Overflow(overflow), int(cycle), Size(size))
        if repr(scheme) == text:
            return scheme
    raise StateError(f"scheme={_checks.show(text)} is no scheme; restore the checkpoint from a backup")
