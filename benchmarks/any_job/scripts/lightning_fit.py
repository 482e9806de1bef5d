"""A convolutional network with Lightning: lightning_fit.py STEPS"""

import sys
import warnings

import torch
from progress import Progress
from torch import nn

try:
    import lightning as pl
except ImportError:
    import pytorch_lightning as pl

GPU = torch.cuda.is_available()
warnings.filterwarnings("ignore")


class Convolutions(pl.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 10),
        )
        self.progress = Progress()

    def training_step(self, batch, index):
        loss = self.net(batch[0]).pow(2).mean()
        self.progress(self.trainer.global_step, loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)

    def on_train_end(self):
        self.progress.end()


def main(steps):
    pl.seed_everything(0, verbose=False)
    count, size, width = (64, 64, 128) if GPU else (4, 16, 4)
    pictures = torch.utils.data.TensorDataset(torch.randn(16 * count, 3, size, size))
    pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="gpu" if GPU else "cpu",
        devices=1,
    ).fit(Convolutions(width), torch.utils.data.DataLoader(pictures, count))


if __name__ == "__main__":
    main(int(sys.argv[1]))
