"""Steps of real trainings, counted without a changed line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watcher.listening import run_python

pytestmark = pytest.mark.slow

STEP = "o.zero_grad(); net(x).pow(2).mean().backward(); o.step()"
NET = """
import torch
net = torch.nn.Linear(16, 16); o = torch.optim.AdamW(net.parameters()); x = torch.randn(4, 16)
"""


def test_a_plain_loop_and_its_bar() -> None:
    ran = run_python(
        f"{NET}\nfrom tqdm import tqdm\nfor _ in range(10): {STEP}\n"
        f"for _ in tqdm(range(300), mininterval=0.01): {STEP}\n"
    )

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.unit, ran.last.total) == (310, "step", 310)


def test_epochs_and_a_loader_with_workers() -> None:
    ran = run_python(f"""{NET}
from tqdm.auto import tqdm
from torch.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(torch.randn(160, 16)), 4, num_workers=2)
for epoch in tqdm(range(3)):
    for (x,) in tqdm(data, mininterval=0.01):
        {STEP}
""")

    assert ran.code == 0, ran.err
    assert ran.last.steps == 120
    assert len({count.pid for count in ran.counted}) == 1  # workers load, they do not train
    assert ran.last.data_s > 0.0
    assert 100 <= ran.last.total <= 160


def test_what_a_rank_does_before_its_backward_pass_is_its_own_time() -> None:
    ran = run_python(f"""{NET}
import time
for _ in range(6):
    time.sleep(0.1); o.zero_grad(); loss = net(x).pow(2).mean(); loss.backward(); time.sleep(2)
    o.step()
""")

    assert ran.code == 0, ran.err
    assert "not everything" not in ran.err
    assert ran.last.own_steps == 5  # before the first step nothing tells when it began
    assert 0.1 <= ran.last.own_s / ran.last.own_steps < 2.0


def test_a_rich_bar_tells_the_total() -> None:
    ran = run_python(f"""{NET}
from rich.progress import track
for _ in track(range(200), update_period=0.01):
    {STEP}
""")

    assert ran.code == 0, ran.err
    assert ran.last.steps == 200
    assert ran.last.total == pytest.approx(200, rel=0.3)


def test_a_compiled_step_is_not_broken() -> None:
    ran = run_python(f"""{NET}
step = torch.compile(lambda: o.step(), backend="eager")
for _ in range(5):
    o.zero_grad(); net(x).pow(2).mean().backward(); step()
print(int(o.state_dict()["state"][0]["step"]))
""")

    assert (ran.code, ran.out) == (0, "5\n"), ran.err


def test_replays_of_a_graph_are_steps_where_no_optimizer_steps() -> None:
    # The counting alone: graphs need a device. The class is torch's own, its replay is not.
    ran = run_python(f"""{NET}
import torch.cuda.graphs as graphs
from _weft_watch import counting
counter = counting.COUNTER
for _ in range(3): {STEP}
for _ in range(500): counter.replay()
""")

    assert ran.code == 0, ran.err
    assert ran.last.unit == "graph"
    assert 400 <= ran.last.steps <= 500


def test_hugging_face_tells_its_steps(tmp_path: Path) -> None:
    ran = run_python(f"""
import torch, transformers as t
net = t.GPT2LMHeadModel(t.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=8))
class Tokens(torch.utils.data.Dataset):
    def __len__(self): return 96
    def __getitem__(self, i): return {{"input_ids": torch.arange(8), "labels": torch.arange(8)}}
arguments = t.TrainingArguments({str(tmp_path)!r}, num_train_epochs=2, report_to=[], use_cpu=True,
    per_device_train_batch_size=4, gradient_accumulation_steps=2, save_strategy="no",
    disable_tqdm=True)
t.Trainer(net, arguments, train_dataset=Tokens()).train()
""")

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.total) == (24, 24)
    assert len({count.pid for count in ran.counted}) == 1


def test_lightning_tells_its_steps() -> None:
    ran = run_python("""
import torch, lightning as L
class Line(L.LightningModule):
    def __init__(self): super().__init__(); self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, index): return self.net(batch[0]).pow(2).mean()
    def configure_optimizers(self): return torch.optim.Adam(self.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 8)), 4)
L.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, accelerator="cpu",
    enable_progress_bar=False, enable_model_summary=False).fit(Line(), data)
""")

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.total) == (60, 60)


def test_accelerate_counts_updates_not_batches() -> None:
    ran = run_python(f"""{NET}
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
net, o = accelerator.prepare(net, o)
for _ in range(40):
    with accelerator.accumulate(net):
        loss = net(x).pow(2).mean(); accelerator.backward(loss); o.step(); o.zero_grad()
""")

    assert ran.code == 0, ran.err
    assert ran.last.steps == 10


def test_processes_that_train_are_told_apart() -> None:
    ran = run_python(f"""
import torch.multiprocessing as mp
def train(steps):
    {NET.strip().replace(chr(10), chr(10) + "    ")}
    for _ in range(steps): {STEP}
if __name__ == "__main__":
    processes = [mp.get_context("fork").Process(target=train, args=(n,)) for n in (20, 30)]
    for one in processes: one.start()
    for one in processes: one.join()
""")

    assert ran.code == 0, ran.err
    last = {count.pid: count.steps for count in ran.counted}
    assert len(last) == 2
    assert all(1.0 <= steps <= 30.0 for steps in last.values())


def test_a_cap_on_memory_is_set_when_a_device_is_first_used() -> None:
    code = "import torch; print(torch.cuda.is_initialized(), len(torch.cuda._queued_calls))"
    plain = run_python(code)

    capped = run_python(code, env={"WEFT_GPU_MEMORY_FRACTION": "0.25"})
    spoilt = run_python(code, env={"WEFT_GPU_MEMORY_FRACTION": "2"})

    assert plain.out.split()[0] == capped.out.split()[0] == "False"
    assert int(capped.out.split()[1]) == int(plain.out.split()[1]) + 1
    assert "WEFT_GPU_MEMORY_FRACTION" in spoilt.err
    assert spoilt.code == 0


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_tells_its_batches(backend: str) -> None:
    ran = run_python(
        "import numpy, keras\n"
        "net = keras.Sequential([keras.layers.Dense(1)]); net.compile('sgd', 'mse')\n"
        "net.fit(numpy.zeros((40, 4)), numpy.zeros((40, 1)), batch_size=4, epochs=3, verbose=0)\n",
        env={"KERAS_BACKEND": backend},
    )

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.unit, ran.last.total) == (30, "batch", 30)


def test_a_jax_loop_is_counted_by_its_progress_bar() -> None:
    ran = run_python(
        "import jax, jax.numpy as jnp\n"
        "from tqdm import tqdm\n"
        "step = jax.jit(lambda w: w - 0.1 * jax.grad(lambda w: jnp.sum((w - 3) ** 2))(w))\n"
        "w = jnp.zeros(8)\n"
        "for _ in tqdm(range(60), mininterval=0): w = step(w)\n"
        "print(float(w[0]))\n"
    )

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.unit, ran.last.total) == (60, "bar", 60)
