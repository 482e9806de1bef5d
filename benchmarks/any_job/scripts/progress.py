"""What a script prints as it trains: steps, the loss, the time."""

import time


class Progress:
    """A line every quarter of a second at most, and the last step's."""

    def __init__(self):
        self._next = 0.0
        self._step, self._loss = 0, 0.0

    def __call__(self, step, loss):
        self._step, self._loss = step, loss
        now = time.time()
        if now >= self._next:
            self._next = now + 0.25
            print(f"step {step} loss {float(loss):.6g} at {time.time():.3f}", flush=True)

    def train(self, step, loss, optimizer):
        """One step of training, which is told."""
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        self(step, loss.detach())

    def end(self):
        print(f"final {self._step} loss {float(self._loss)!r} at {time.time():.3f}", flush=True)
