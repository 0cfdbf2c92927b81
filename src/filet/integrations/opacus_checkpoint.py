# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""One checkpoint for everything that a private run needs to go on exactly where it was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from filet._files import whole_file
from filet.errors import MissingExtraError, StateError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[opacus]'") from error

from .opacus_accountant import CappedAccountant
from .opacus_turns import TurnLoader

NAME = "filet"
ACCOUNTANT = "privacy_accountant_state_dict"  # Opacus's name for it
NOISY = 0  # the rank whose noise is added to the sum of all ranks, unless each adds it to its shard of the model
_VERSION = 1


def run_state(
    loader: TurnLoader, generator: Any, *, secure_mode: bool, sharded: bool, include_key: bool
) -> dict[str, Any]:
    """The loader's position and the state of the noise: this rank's, which is all of it unless the model is sharded."""
    if loader.turn.part:
        raise StateError(
            f"{loader.turn.part} of {loader.parts} physical batches of this step are summed up, which no checkpoint holds;"
            " save after a step that ended its batch"
        )
    return {
        "version": _VERSION,
        "loader": loader.state_dict(include_key=include_key),
        "noise": None if secure_mode else _noise(generator),
        "rank": loader.batch_sampler.sampler.rank,
        "shards": loader.turn.ranks if sharded else 0,
    }


def check(checkpoint: Any, accountant: CappedAccountant, loader: TurnLoader) -> dict[str, Any]:
    """What a checkpoint says of the run, or `StateError` if it is not one of this run or its parts contradict."""
    state = checkpoint.get(NAME) if isinstance(checkpoint, Mapping) else None
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


def restore_noise(state: Mapping[str, Any], loader: TurnLoader, generator: Any) -> None:
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
    state: Mapping[str, Any], loader: TurnLoader, generator: Any, *, secure_mode: bool, sharded: bool
) -> None:
    """Raise unless the noise can go on from the same source; what begins again is the noise of earlier steps."""
    noise = state["noise"]
    if (noise is None) != secure_mode:
        raise StateError(f"the checkpoint is of a run with secure_mode={not secure_mode}; make the engine alike")
    shards = loader.turn.ranks if sharded else 0
    if noise is not None and state.get("shards", 0) != shards:
        raise StateError(
            f"the checkpoint is of a model in {state.get('shards', 0)} shards, each with noise of its own, not {shards}; go on"
            " with as many"
        )
    rank = loader.batch_sampler.sampler.rank if sharded else NOISY
    if noise is not None and state["rank"] != rank:
        raise StateError(
            f"the checkpoint was saved by rank {state['rank']}, which does not have this noise, so that it would begin again;"
            f" save and load that of rank {rank}"
        )
    if noise is not None and (noise["generator"] is None) != (generator is None):
        word = "without" if generator is not None else "with"
        raise StateError(f"the checkpoint is of a run {word} a noise_generator; call make_private alike")


def _noise(generator: Any) -> dict[str, Any]:
    return {
        "generator": None if generator is None else generator.get_state(),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


@contextlib.contextmanager
def target(path: Any, *, secret: bool) -> Iterator[Any]:
    """Where to write: a file that appears whole or not at all, for the owner's eyes only if secret; or the given one."""
    if not isinstance(path, (str, os.PathLike)):
        yield path
        return
    if secret and os.path.isfile(path):  # an existing file keeps its mode, and one without the key may be for everybody
        os.chmod(path, 0o600)
    with whole_file(path, secret=secret) as temporary:
        yield temporary
