"""Numbers that a program reports to the libraries that it uses, sent to its agent as well.

A library's own function runs first, as it would; only then are names, steps and numbers noted.
Whatever is no number, or would have to be waited for on a device, is left out.
"""

from __future__ import annotations

import sys
from os import environ, getpid

from . import counting
from .guard import guarded, is_function, number, stand_in
from .line import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Note = Callable[..., None]

AT_ONCE, AGAIN_S = 8, 0.25  # messages in a row, and seconds until there may be another
ROOM = 200  # values that wait
MOST_NAMES, LONGEST_NAME = 64, 64
NO_STEP = -1.0
MOST_BITS = 1_000  # of a whole number that a float can be
TUNING = "objective"  # the name of what Optuna's trials report


class HeardValues:
    """Values that were not sent yet: oldest first, and every other one once they are too many."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self._left, self._at = float(AT_ONCE), 0.0
        self._process = getpid()

    def add(self, values: Any, step: Any = None, *, wait: bool = True) -> None:
        """Note values by name; with `wait` they were read from their device before."""
        if type(values) is not dict:
            return
        if self._process != getpid():  # forked: what waits is the parent's to send
            self._process, self.waiting = getpid(), []
        at = number(step)
        for name in list(values)[:MOST_NAMES]:
            if type(name) is str and 0 < len(name) <= LONGEST_NAME:
                value = _scalar(values[name], wait=wait)
                if value is not None:
                    self.waiting.append((name, NO_STEP if at is None or at < 0 else at, value))
        if len(self.waiting) > ROOM:
            del self.waiting[-2::-2]
        self.flush()

    def flush(self, last: bool = False) -> None:
        """Send what waits, if it is time to."""
        if not self.waiting or counting.COUNTER is None or self._process != getpid():
            return
        now = counting.CLOCKS[1]()
        self._left = min(self._left + abs(now - self._at) / AGAIN_S, AT_ONCE)
        self._at = now
        if self._left < 1.0 and not last:
            return
        self._left -= 1.0
        rows, self.waiting = self.waiting, []
        send(environ.get("WEFT_AGENT", ""), _line(rows))


VALUES = HeardValues()


def _line(rows: Any) -> bytes:
    columns = {
        "names": "[" + ",".join(counting.as_text(name) for name, _, _ in rows) + "]",
        "steps": "[" + ",".join(repr(float(step)) for _, step, _ in rows) + "]",
        "values": "[" + ",".join(_finite(value) for _, _, value in rows) + "]",
    }
    body = counting.as_json(
        type="metrics",
        job=environ.get("WEFT_JOB", ""),
        attempt=counting.whole(environ.get("WEFT_ATTEMPT")),
        rank=counting.whole(environ.get("RANK")),
    )
    lists = ",".join(f'"{name}":{text}' for name, text in columns.items())
    return body[:-2] + ("," + lists + "}\n").encode(errors="replace")


def _finite(value: float) -> str:
    return repr(value) if value - value == 0.0 else "null"


def _scalar(value: Any, *, wait: bool) -> float | None:
    """A number, also of a tensor with one element."""
    if type(value) is bool:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is getattr(torch, "Tensor", None):
        if value.numel() != 1 or not (wait or value.device.type == "cpu"):
            return None
        return float(value.item())
    if isinstance(value, float):  # without what a class of the program makes of it
        return float.__float__(value)
    if isinstance(value, int):
        return int.__float__(value) if int.bit_length(value) < MOST_BITS else None
    of_numpy = type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1
    return number(value) if of_numpy else None


def _after(owner: Any, name: str, note: Note) -> None:
    """Note what each call of a method was given, once it has returned."""
    if not is_function(owner, name):
        return  # a stand-in of tests, or a version that nobody has seen yet
    plain, noted = getattr(owner, name), guarded(note)

    def method(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        noted(args, kwargs)
        return result

    setattr(owner, name, stand_in(method, plain))


def _given(args: Any, kwargs: Any, at: int, name: str) -> Any:
    """An argument of a call by place or name; None where it was left out."""
    return kwargs.get(name) if name in kwargs else args[at] if at < len(args) else None


def on_wandb_run(module: Any) -> None:
    """`Run.log`, which `wandb.log` is."""

    def note(args: Any, kwargs: Any) -> None:
        VALUES.add(_given(args, kwargs, 1, "data"), _given(args, kwargs, 2, "step"))

    _after(getattr(module, "Run", None), "log", note)


def on_wandb_summary(module: Any) -> None:
    """`run.summary[...] = ` and `run.summary.update(...)`."""

    def note(args: Any, kwargs: Any) -> None:
        VALUES.add(_given(args, kwargs, 1, "d"))

    _after(getattr(module, "SummaryDict", None), "update", note)


def on_tensorboard(module: Any) -> None:
    """`add_scalar` of torch's writer and of tensorboardX's."""

    def note(args: Any, kwargs: Any) -> None:
        tag, value = _given(args, kwargs, 1, "tag"), _given(args, kwargs, 2, "scalar_value")
        VALUES.add({tag: value}, _given(args, kwargs, 3, "global_step"))

    _after(getattr(module, "SummaryWriter", None), "add_scalar", note)


def on_transformers(module: Any) -> None:
    """Logs of Hugging Face's trainer, as its callbacks get them."""

    def note(args: Any, kwargs: Any) -> None:
        state = _given(args, kwargs, 2, "state")
        VALUES.add(_given(args, kwargs, 4, "logs"), state.global_step)

    _after(getattr(module, "CallbackHandler", None), "on_log", note)


def on_lightning(module: Any) -> None:
    """Metrics that Lightning gives to its loggers, also where there are none."""

    def note(args: Any, kwargs: Any) -> None:
        trainer, step = args[0].trainer, _given(args, kwargs, 2, "step")
        if step is None:
            step = trainer.fit_loop.epoch_loop._batches_that_stepped
        VALUES.add(_given(args, kwargs, 1, "metrics"), step, wait=bool(trainer.loggers))

    _after(getattr(module, "_LoggerConnector", None), "log_metrics", note)


def on_keras(module: Any) -> None:
    """Logs of each epoch of `fit`, as its callbacks get them."""
    callbacks = getattr(module, "CallbackList", None)
    if hasattr(callbacks, "_weft_hears"):
        return

    def note(args: Any, kwargs: Any) -> None:
        VALUES.add(_given(args, kwargs, 2, "logs"), _given(args, kwargs, 1, "epoch"))

    _after(callbacks, "on_epoch_end", note)
    if callbacks is not None:
        callbacks._weft_hears = True


def on_mlflow(module: Any) -> None:
    """`log_metric` and `log_metrics`, which both go through the client.

    One without a step is of step 0 there: those are counted.
    """

    def note_one(args: Any, kwargs: Any) -> None:
        key, value = _given(args, kwargs, 2, "key"), _given(args, kwargs, 3, "value")
        VALUES.add({key: value}, _given(args, kwargs, 5, "step") or None)

    def note_batch(args: Any, kwargs: Any) -> None:
        for metric in list(_given(args, kwargs, 2, "metrics") or ())[:ROOM]:
            VALUES.add({metric.key: metric.value}, metric.step or None)

    client = getattr(module, "MlflowClient", None)
    _after(client, "log_metric", note_one)
    _after(client, "log_batch", note_batch)


def on_optuna(module: Any) -> None:
    """`Trial.report`."""

    def note(args: Any, kwargs: Any) -> None:
        VALUES.add({TUNING: _given(args, kwargs, 1, "value")}, _given(args, kwargs, 2, "step"))

    _after(getattr(module, "Trial", None), "report", note)


CONNECTOR = "trainer.connectors.logger_connector.logger_connector"
HOOKS: dict[str, Callable[[Any], None]] = {
    "wandb.sdk.wandb_run": on_wandb_run,
    "wandb.sdk.wandb_summary": on_wandb_summary,
    "torch.utils.tensorboard.writer": on_tensorboard,
    "tensorboardX.writer": on_tensorboard,
    "transformers.trainer_callback": on_transformers,
    f"lightning.pytorch.{CONNECTOR}": on_lightning,
    f"pytorch_lightning.{CONNECTOR}": on_lightning,
    "keras.src.callbacks.callback_list": on_keras,
    "keras.src.callbacks": on_keras,
    "keras.callbacks": on_keras,
    "mlflow.tracking.client": on_mlflow,
    "optuna.trial._trial": on_optuna,
}
