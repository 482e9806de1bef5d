"""A training of `benchmarks.elastic_mix`: steps that are long enough for several ranks to pay.

    python elastic_mix_job.py STEPS

It trains for STEPS steps of the first batch size, on samples that it sees once. They are noisy, so
that larger batches, and with them more ranks, are worth something.
"""

from __future__ import annotations

import sys

BATCH, MOST = 128, 1024
FEATURES, WIDTH = 64, 768
NOISE = 3.0


def train(steps: int) -> None:
    """Fit a noisy law with a wide perceptron, on one core a rank."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import weft.train as wt

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(BATCH * steps, FEATURES)
    y = torch.sin(x[:, :4].sum(dim=1, keepdim=True)) + NOISE * torch.randn(len(x), 1)
    job = wt.init()
    model: nn.Module = nn.Sequential(
        nn.Linear(FEATURES, WIDTH),
        *(layer for _ in range(3) for layer in (nn.ReLU(), nn.Linear(WIDTH, WIDTH))),
        nn.Linear(WIDTH, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = job.wrap(model, optimizer, scaling="adascale")
    loader = job.loader(TensorDataset(x, y), BATCH, MOST, max_per_gpu=MOST)
    for _ in job.epochs(1):
        for features, target in loader:
            with job.step():
                job.backward(nn.functional.mse_loss(model(features), target))


if __name__ == "__main__":
    train(int(sys.argv[1]))
