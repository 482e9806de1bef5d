"""A plain training loop of one of several networks: loop.py NETWORK STEPS"""

import sys

import torch
from progress import Progress
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def transformer(layers, width, heads):
    return nn.Sequential(
        *[
            nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
            for _ in range(layers)
        ]
    )


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.LSTM(width // 2, width, 2, batch_first=True)
        self.out = nn.Linear(width, width // 2)

    def forward(self, batch):
        return self.out(self.layers(batch)[0])


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, padding=1)
        self.deep = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, padding=1),
            nn.GroupNorm(1, 2 * width),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 2, 2),
        )
        self.up = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, batch):
        wide = torch.nn.functional.silu(self.down(batch))
        return self.up(torch.cat([wide, self.deep(wide)], 1))


def network(name):
    if name == "transformer":
        size = (8, 512, 8) if GPU else (1, 32, 2)
        shape = (16, 256, 512) if GPU else (4, 16, 32)
        return transformer(*size), shape
    if name == "compiled":
        size = (4, 384, 6) if GPU else (1, 32, 2)
        shape = (8, 128, 384) if GPU else (4, 16, 32)
        net = transformer(*size)
        return (torch.compile(net) if GPU else net), shape
    if name == "lstm":
        return Recurrent(512 if GPU else 32), ((32, 100, 256) if GPU else (4, 10, 16))
    if name == "mlp":
        width = 512 if GPU else 32
        layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*layers), (256 if GPU else 8, width)
    if name == "unet":
        return UNet(96 if GPU else 4), ((16, 3, 64, 64) if GPU else (2, 3, 16, 16))
    raise SystemExit(f"no network named {name}")


def main(name, steps):
    torch.manual_seed(0)
    net, shape = network(name)
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    progress = Progress()
    for step in range(1, steps + 1):
        batch = torch.randn(*shape, device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=GPU):
            loss = net(batch).float().pow(2).mean()
        progress.train(step, loss, optimizer)
    progress.end()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
