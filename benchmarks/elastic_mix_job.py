"""A training of `benchmarks.elastic_mix`: steps that are long enough for several ranks to pay.

    python elastic_mix_job.py STEPS FILE

It trains for STEPS steps of the first batch size, on samples that it sees once. They are noisy, so
that larger batches, and with them more ranks, are worth something. The loss of what it learnt, on
samples without noise that it has not seen, goes into FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

BATCH, MOST = 128, 1024
FEATURES, WIDTH = 64, 768
NOISE, UNSEEN = 3.0, 4096


def train(steps: int, out: Path) -> None:
    """Fit a noisy law with a wide perceptron, on one core a rank."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import weft_train as wt

    torch.set_num_threads(1)
    torch.manual_seed(0)

    def law(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x[:, :4].sum(dim=1, keepdim=True))

    unseen, x = torch.randn(UNSEEN, FEATURES), torch.randn(BATCH * steps, FEATURES)
    y = law(x) + NOISE * torch.randn(len(x), 1)
    job = wt.init()
    net = nn.Sequential(
        nn.Linear(FEATURES, WIDTH),
        *(layer for _ in range(3) for layer in (nn.ReLU(), nn.Linear(WIDTH, WIDTH))),
        nn.Linear(WIDTH, 1),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = job.wrap(net, optimizer, scaling="adascale")
    loader = job.loader(TensorDataset(x, y), BATCH, MOST, max_per_gpu=MOST)
    for _ in job.epochs(1):
        for features, target in loader:
            with job.step():
                job.backward(nn.functional.mse_loss(model(features), target))
    if job.rank == 0:
        with torch.no_grad():
            out.write_text(str(float(nn.functional.mse_loss(net(unseen), law(unseen)))))


if __name__ == "__main__":
    train(int(sys.argv[1]), Path(sys.argv[2]))
