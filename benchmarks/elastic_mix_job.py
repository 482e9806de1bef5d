"""A training of `benchmarks.elastic_mix`: steps that are long enough for several ranks to pay.

    python elastic_mix_job.py STEPS

It trains for STEPS steps of the first batch size, in epochs of 16.
"""

from __future__ import annotations

import sys

BATCH, MOST = 128, 512
WIDTH = 768
STEPS_OF_EPOCH = 16


def train(steps: int) -> None:
    """Fit a noisy law with a wide perceptron, on one core a rank."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import weft.train as wt

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(BATCH * STEPS_OF_EPOCH, WIDTH)
    y = torch.sin(x[:, :4].sum(dim=1, keepdim=True)) + 0.5 * torch.randn(len(x), 1)
    job = wt.init()
    model: nn.Module = nn.Sequential(
        *(layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())),
        nn.Linear(WIDTH, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = job.wrap(model, optimizer, scaling="adascale")
    loader = job.loader(TensorDataset(x, y), batch_size=BATCH, max_batch_size=MOST)
    for _ in job.epochs(max(steps // STEPS_OF_EPOCH, 1)):
        for features, target in loader:
            with job.step():
                job.backward(nn.functional.mse_loss(model(features), target))


if __name__ == "__main__":
    train(int(sys.argv[1]))
