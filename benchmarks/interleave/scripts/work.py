"""What a step does: read a file, decode it, copy it to the device, compute.

Each job spends most of its step on one of the four. `python work.py FOLDER` makes the files and
prints how long one unit of each takes on this machine, as JSON.
"""

import json
import os
import sys
import time
import zlib
from pathlib import Path

import torch
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
KINDS = ("storage", "decode", "copy", "compute")
READ_MB, FILE_MB, FILES = (1, 128, 4) if GPU else (1, 16, 1)
COPY_MB = 32 if GPU else 4
WIDTH, BATCH = (2048, 2048) if GPU else (256, 128)


def unit_names():
    return {kind: os.environ.get(f"UNITS_{kind.upper()}", "1") for kind in KINDS}


class Steps:
    """The data set: fetching sample n reads for step n, and decodes and copies if `whole`."""

    def __init__(self, folder, count, whole=True):
        self.whole = whole
        self.units = {kind: int(number) for kind, number in unit_names().items()}
        self.count = count
        self.files = [Path(folder, f"data-{n}.bin") for n in range(FILES)]
        self.packed = Path(folder, "packed.bin").read_bytes()
        self.host = torch.ones(COPY_MB * 250_000, pin_memory=GPU)
        self.there = torch.empty_like(self.host, device=DEVICE)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        for n in range(self.units["storage"]):
            self.read(at * self.units["storage"] + n)
        if self.whole:
            self.decode_all()
            self.copy_all()
        return torch.tensor([float(at % 7)])

    def decode_all(self):
        """The decoding of a step."""
        for _ in range(self.units["decode"]):
            self.decode()

    def copy_all(self):
        """The copies of a step, to their end."""
        for _ in range(self.units["copy"]):
            self.copy()
        if GPU:
            torch.cuda.synchronize()

    def read(self, number):
        """A part of a file, from the disk and not from memory where the system lets us."""
        size, every = READ_MB * 1_000_000, FILE_MB // READ_MB
        path, at = self.files[number // every % FILES], number % every * size
        handle = os.open(path, os.O_RDONLY)
        try:
            os.pread(handle, size, at)
            os.posix_fadvise(handle, at, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)

    def decode(self):
        """Text of 1 MB."""
        return zlib.decompress(self.packed)

    def copy(self):
        """From pinned memory, in the background."""
        self.there.copy_(self.host, non_blocking=True)


class Net(nn.Module):
    """Enough layers for a step of the wanted length; all of them are trained."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.repeats = int(unit_names()["compute"])

    def forward(self, scale):
        """The loss of a made-up batch."""
        generator = torch.Generator(DEVICE).manual_seed(int(scale.sum().item()) + 1)
        x = torch.randn(BATCH, WIDTH, device=DEVICE, generator=generator)
        for _ in range(self.repeats):
            for layer in self.layers:
                x = torch.tanh(layer(x))
        return x.square().mean()


def make_files(folder):
    Path(folder).mkdir(exist_ok=True)
    block = os.urandom(1_000_000)
    for n in range(FILES):
        with Path(folder, f"data-{n}.bin").open("wb") as out:
            for _ in range(FILE_MB):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())  # what is not on the disk yet stays in memory
    text = b"".join(b"%d," % (n * n) for n in range(100_000))
    Path(folder, "packed.bin").write_bytes(zlib.compress(text, 6))


def time_units(folder):
    """Seconds of one unit of each."""
    os.environ.update({f"UNITS_{kind.upper()}": "1" for kind in KINDS})
    data, net = Steps(folder, 1), Net().to(DEVICE)

    def compute():
        net(torch.ones(1, 1)).backward()

    doing = {"storage": None, "decode": data.decode, "copy": data.copy, "compute": compute}
    medians = {}
    for kind, do in doing.items():
        times = []
        for n in range(8):
            began = time.perf_counter()
            data.read(n) if do is None else do()
            if GPU:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        medians[kind] = sorted(times)[len(times) // 2]
    return medians


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_files(sys.argv[1])
    print(json.dumps(time_units(sys.argv[1])))
