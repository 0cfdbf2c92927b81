"""One rank of a private run of Transformers' Trainer, for `torchrun`: MODE FOLDER STOP [resume]; rank 0 prints the weights."""

from __future__ import annotations

import json
import sys
import warnings

import torch
import transformers
from tests.integrations.huggingface.test_trainer import trainer
from torch import distributed


class Stops(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


def main():
    warnings.simplefilter("ignore")
    mode, folder, stop, *resume = sys.argv[1:]
    saving = {"save_strategy": "steps", "save_steps": 4}
    run = trainer(folder, mode=mode, args=saving)
    run.add_callback(Stops(int(stop)))
    run.train(resume_from_checkpoint=bool(resume))
    assert distributed.get_world_size() == 2
    weights = torch.cat([p.detach().flatten() for p in run.model.parameters() if p.requires_grad])
    everyone = [None, None]
    distributed.all_gather_object(everyone, weights)
    assert torch.equal(*everyone), "the ranks have different weights"
    if distributed.get_rank() == 0:
        print(json.dumps([len(run.engine.accountant), weights.tolist()]))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
