"""Elastic, batch-adaptive PyTorch training in a handful of changed lines.

    job = wt.init()
    model, optimizer = job.wrap(model, optimizer, scaling="adascale")
    loader = job.loader(dataset, batch_size=128, max_batch_size=4096)
    for epoch in job.epochs(90):
        for x, y in loader:
            with job.step():
                job.backward(criterion(model(x), y))
        job.report(accuracy=evaluate(model))

The same script runs under plain `python`, under `torchrun`, and under Weft, which may then stop
it, move it and give it more or fewer GPUs. It needs torch and nothing else.
"""

from __future__ import annotations

from weft_train.errors import TrainError
from weft_train.start import init, plan
from weft_train.trainer import TrainingJob

__all__ = ["TrainError", "TrainingJob", "init", "plan"]
