"""Programs whose modules are not what their names say."""

from __future__ import annotations

from tests.watcher.programs.program import Program, plain


def standing_in(std: str, code: str = "steps()") -> Program:
    """A program with another `tqdm.std`."""
    return plain(code, files={"tqdm/std.py": std})


SLOTTED = """
class tqdm:
    __slots__ = ("n", "total", "disable"{more})
    def __init__(self, total=None): self.n, self.total, self.disable = 0, total, False
    def update(self, n=1): self.n += n
    def close(self): self.disable = True
"""
USE = """
from tqdm import tqdm
bar = tqdm(3); bar.update(); bar.update(2); bar.close(); print(bar.n)
"""
CHILD = """
class tqdm:
    def __init__(self, total=None): {init}
    def update(self, n=1): {update}
    def close(self): pass
    {more}
"""

PROGRAMS = {
    "has-slotted-bars": standing_in(SLOTTED.format(more=""), USE),
    "has-slotted-bars-that-can-be-referred-to": standing_in(
        SLOTTED.format(more=", '__weakref__'"), USE
    ),
    "has-bars-that-are-lists": standing_in(
        "tqdm = list", "from tqdm import tqdm; print(tqdm(range(3)))"
    ),
    "has-bars-that-are-functions": standing_in(
        "def tqdm(what, *more): return what", "from tqdm import tqdm; print(list(tqdm(range(3))))"
    ),
    "has-no-bars": standing_in(
        "", "import sys\ntry: import tqdm\nexcept ImportError as e: print(e)"
    ),
    "has-bars-that-read-themselves": standing_in(
        CHILD.format(
            init="self.n = 0",
            update="self.n += n",
            more="""
    def __getattribute__(self, name):
        print("read", name); return object.__getattribute__(self, name)""",
        ),
        USE,
    ),
    "has-bars-whose-numbers-fail": standing_in(
        CHILD.format(
            init="self.disable = False",
            update="pass",
            more="""
    @property
    def n(self): raise RuntimeError("mine")""",
        ),
        "from tqdm import tqdm\nbar = tqdm(3); bar.update(); bar.close()",
    ),
    "has-bars-whose-numbers-are-texts": standing_in(
        CHILD.format(
            init="self.n, self.total, self.disable = '', 'many', False",
            update="self.n += str(n)",
            more="",
        ),
        USE,
    ),
    "has-bars-whose-numbers-cannot-be-compared": standing_in(
        "class Number:\n    def __float__(self): raise RuntimeError('waits for a device')\n"
        "    __gt__ = __sub__ = __add__ = __float__\n"
        + CHILD.format(
            init="self.n, self.total, self.disable = Number(), Number(), False",
            update="pass",
            more="",
        ),
        USE.replace("print(bar.n)", "print('done')"),
    ),
    "has-bars-that-fail": standing_in(
        CHILD.format(init="pass", update="raise ValueError('mine')", more=""),
        "from tqdm import tqdm\nbar = tqdm(3)\ntry: bar.update()\nexcept ValueError as e: print(e)",
    ),
    "has-bars-that-may-not-be-changed": standing_in(
        """
class Closed(type):
    def __setattr__(self, name, value): raise TypeError("closed")
class tqdm(metaclass=Closed):
    def __init__(self, total=None): self.n, self.total, self.disable = 0, total, False
    def update(self, n=1): self.n += n
    def close(self): self.disable = True
""",
        USE,
    ),
    "has-bars-without-a-dictionary-that-is-plain": standing_in(
        "class tqdm(dict):\n    def __init__(self, total=None): self.n = 0\n"
        "    def update(self, n=1): self.n += n\n    def close(self, why=None): print(why)\n",
        "from tqdm import tqdm\nbar = tqdm(3); bar.update(2); bar.close(why='done'); print(bar.n)",
    ),
    "has-modules-that-are-mocks": plain("""
import sys
from unittest.mock import MagicMock
names = ("tqdm.std", "tqdm", "rich.progress", "torch", "torch.optim.optimizer", "torch.cuda",
    "torch.autograd", "keras.callbacks", "pytorch_lightning.trainer.trainer")
mocks = {name: MagicMock() for name in names}
sys.modules.update(mocks); print([mock.mock_calls for mock in mocks.values()])
steps()
del sys.modules["tqdm"]
"""),
    "has-a-torch-of-its-own": plain(
        """
import torch.optim.optimizer, torch.autograd, torch.cuda.graphs, torch.utils.data.dataloader
print(torch.autograd.backward(), sorted(vars(torch.cuda.graphs))[:1]); steps()
""",
        files={
            "torch/__init__.py": "",
            "torch/optim/__init__.py": "",
            "torch/optim/optimizer.py": "",
            "torch/autograd/__init__.py": "class backward:\n    def __repr__(self): return ''\n",
            "torch/cuda/__init__.py": "",
            "torch/cuda/graphs.py": "CUDAGraph = None\n",
            "torch/utils/__init__.py": "",
            "torch/utils/data/__init__.py": "",
            "torch/utils/data/dataloader.py": "_BaseDataLoaderIter = 3\n",
        },
    ),
    "has-trainers-of-its-own": plain(
        """
import keras.callbacks, transformers.trainer_callback, lightning.pytorch.trainer.trainer
import rich.progress
print(keras.callbacks.CallbackList().on_train_batch_end(1), rich.progress.Progress().add_task())
steps()
""",
        files={
            "keras/__init__.py": "",
            "keras/callbacks.py": "class CallbackList:\n    __slots__ = ()\n"
            "    def on_train_batch_end(self, batch): return batch\n"
            "    def on_train_begin(self): pass\n",
            "transformers/__init__.py": "",
            "transformers/trainer_callback.py": "CallbackHandler = dict\n",
            "lightning/__init__.py": "",
            "lightning/pytorch/__init__.py": "",
            "lightning/pytorch/trainer/__init__.py": "",
            "lightning/pytorch/trainer/trainer.py": "",
            "rich/__init__.py": "",
            "rich/progress.py": "class Progress:\n    __slots__ = ()\n"
            "    def add_task(self): return 7\n    def advance(self): pass\n",
        },
    ),
}
