"""Hooks of frameworks for steps, batches, data and totals."""

from __future__ import annotations

import os
import sys
from _weakref import ref

from . import counting
from .guard import guarded, is_function, number, stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FRACTION = "WEFT_GPU_MEMORY_FRACTION"  # of a device's memory that torch may use


def counted(hook: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    """A hook that is given the counter, where there is one."""

    def on_import(module: Any) -> None:
        if counting.COUNTER is not None:
            hook(module, counting.COUNTER)

    return on_import


@counted
def on_torch_optimizers(module: Any, counter: Any) -> None:
    """Every optimizer's step is followed by a hook that torch offers for all of them."""
    register: Any = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return
    compiling, count, step = _compiling(), counter.quick, guarded(counter.step)

    def after_step(*_: Any) -> None:
        # Between two large kernels nothing of this is in a cache, so it does as little as it can.
        if compiling():  # a compiled step is traced, and we would be part of the graph
            return
        count[0] += 1
        if count[0] >= count[1]:
            step()

    register(after_step)
    counter.memory = _torch_memory


class ForwardTimes:
    """Times from the end of a step to the next backward pass: on the device where one is used.

    There the process only asks for work, long before it is done: two events of the device's own
    are put between its kernels, and read when they have passed.
    """

    def __init__(self, counter: Any, cuda: Any) -> None:
        self._counter, self._cuda, self._clock = counter, cuda, counting.CLOCKS[1]
        self._began: float | None = None
        self._first: Any = None
        self._both: Any = None

    def begin(self) -> None:
        """A step is done."""
        self._began = self._first = None
        if not self._cuda.is_initialized():
            self._began = self._clock()
        elif not self._cuda.is_current_stream_capturing():
            if self._both is not None and self._both[1].query():
                self._counter.worked(self._both[0].elapsed_time(self._both[1]) / 1e3)
                self._both = None
            if self._both is None:
                self._first = self._mark()

    def end(self) -> None:
        """A backward pass begins; only the first of a step counts."""
        if self._began is not None:
            self._counter.worked(self._clock() - self._began)
            self._began = None
        elif self._first is not None and not self._cuda.is_current_stream_capturing():
            self._both, self._first = (self._first, self._mark()), None

    def _mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event


@counted
def on_torch_autograd(module: Any, counter: Any) -> None:
    """Note the start of backward passes, where ranks of a gang begin to wait for each other."""
    plain = module.backward
    if type(plain) is not type(on_torch_autograd):
        return
    forward: Any = None
    compiling: Any = None

    def stepped() -> None:
        nonlocal forward, compiling
        if forward is None:  # by now all of torch is there
            forward, compiling = ForwardTimes(counter, sys.modules["torch"].cuda), _compiling()
        forward.begin()

    def backward(*args: Any, **kwargs: Any) -> Any:
        if forward is not None and not compiling():
            guarded(forward.end)()
        return plain(*args, **kwargs)

    module.backward, counter.stepped = stand_in(backward, plain), guarded(stepped)


def _compiling() -> Callable[[], bool]:
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None)
    return is_compiling if is_compiling is not None else bool


def _torch_memory() -> Any:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0.0, 0.0
    return cuda.memory_reserved() / 1e9, cuda.max_memory_reserved() / 1e9


def on_torch_cuda(module: Any) -> None:
    """A cap on the memory that torch takes, as soon as it begins to use a device."""
    text = os.environ.get(FRACTION, "")
    if text:
        fraction = float(text)
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"{FRACTION} is {text!r}, expected more than 0 and at most 1")
        module._lazy_call(lambda: module.set_per_process_memory_fraction(fraction))


@counted
def on_cuda_graphs(module: Any, counter: Any) -> None:
    """Whole steps may be replays of one graph."""
    graph: Any = getattr(module, "CUDAGraph", None)
    if not is_function(graph, "replay"):
        return
    replay, count = graph.replay, guarded(counter.replay)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        plain = replay(self, *args, **kwargs)
        count()
        return plain

    graph.replay = stand_in(wrapped, replay)


@counted
def on_data_loader(module: Any, counter: Any) -> None:
    """Measure the time that training waits for its loader."""
    iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
    if not is_function(iterator, "__next__"):
        return
    following = iterator.__next__
    waited, clock = counter.waited, counting.CLOCKS[1]

    def timed(self: Any) -> Any:
        began = clock()
        batch = following(self)
        waited(clock() - began)
        return batch

    iterator.__next__ = stand_in(timed, following)


@counted
def on_transformers(module: Any, counter: Any) -> None:
    """Hugging Face's trainer knows its steps when it begins."""
    handler: Any = getattr(module, "CallbackHandler", None)
    if not is_function(handler, "on_train_begin"):
        return
    begin = handler.on_train_begin
    known: dict[str, float] = {}

    def on_train_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(note)(*args, **kwargs)
        return begin(self, *args, **kwargs)

    def note(_: Any, state: Any, *__: Any, **___: Any) -> None:
        steps, before = number(state.max_steps), number(state.global_step)
        if steps and before is not None and steps > 0:
            known["total"] = counter.done + steps - before

    handler.on_train_begin = stand_in(on_train_begin, begin)
    counter.totals.insert(0, lambda _: known.get("total"))


@counted
def on_lightning(module: Any, counter: Any) -> None:
    """Lightning's trainer estimates its steps."""
    trainer: Any = getattr(module, "Trainer", None)
    if not is_function(trainer, "fit"):
        return
    fit = trainer.fit
    running: dict[str, Any] = {}

    def note(self: Any) -> None:
        running["before"] = counter.done - self.global_step
        running["trainer"] = ref(self)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(note)(self)
        try:
            return fit(self, *args, **kwargs)
        finally:
            running.clear()

    def total(steps: float) -> float | None:
        reference = running.get("trainer")
        trainer = reference() if reference is not None else None
        if trainer is None or trainer.train_dataloader is None or not trainer.global_step:
            return None
        resumed = trainer.global_step - (steps - running["before"])
        before = running["before"] - (resumed if resumed > 1 else 0)
        return float(before + trainer.estimated_stepping_batches)

    trainer.fit = stand_in(wrapped, fit)
    counter.totals.insert(0, total)


@counted
def on_keras(module: Any, counter: Any) -> None:
    """Keras tells its callbacks of every batch, and how many there are."""
    callbacks: Any = getattr(module, "CallbackList", None)
    if not is_function(callbacks, "on_train_batch_end", "on_train_begin"):
        return
    if hasattr(callbacks, "_weft_watched"):
        return
    callbacks._weft_watched = True
    after, begin = callbacks.on_train_batch_end, callbacks.on_train_begin
    known: dict[str, float] = {}

    count = guarded(counter.batch)

    def on_train_batch_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        count()
        return after(self, *args, **kwargs)

    def on_train_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(note)(self)
        return begin(self, *args, **kwargs)

    def note(callback_list: Any) -> None:
        params = getattr(callback_list, "params", None) or getattr(callback_list, "_params", None)
        epochs, steps = (params or {}).get("epochs"), (params or {}).get("steps")
        if epochs and steps:
            before = counter.done if counter.unit == "batch" else 0
            known["total"] = before + epochs * steps

    callbacks.on_train_batch_end = stand_in(on_train_batch_end, after)
    callbacks.on_train_begin = stand_in(on_train_begin, begin)
    counter.totals.insert(0, lambda _: known.get("total") if counter.unit == "batch" else None)


HOOKS: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": on_torch_optimizers,
    "torch.autograd": on_torch_autograd,
    "torch.cuda": on_torch_cuda,
    "torch.cuda.graphs": on_cuda_graphs,
    "torch.utils.data.dataloader": on_data_loader,
    "transformers.trainer_callback": on_transformers,
    "lightning.pytorch.trainer.trainer": on_lightning,
    "pytorch_lightning.trainer.trainer": on_lightning,
    "keras.src.callbacks.callback_list": on_keras,
    "keras.src.callbacks": on_keras,
    "keras.callbacks": on_keras,
}
