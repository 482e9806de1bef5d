"""What may be known of a job whose batch size can be changed while it runs."""

from __future__ import annotations

from weft.frozen import frozen


@frozen
class TunableBatch:
    """The batch a job was submitted with, its memory by batch, and its gradient noise.

    `noise` is the gradient noise scale, in samples, that jobs measure of themselves. How long a
    step takes at a batch size is not here: it must be measured.
    """

    init: int
    fixed_gb: float
    sample_gb: float
    noise: float

    def mem_gb(self, batch: int) -> float:
        """Peak of device memory at a batch size."""
        return self.fixed_gb + self.sample_gb * batch

    def efficiency(self, batch: int) -> float:
        """Progress of a sample at a batch size, relative to one at the initial size.

        E(m) = (noise + m0) / (noise + m), after McCandlish et al. 2018.
        """
        return (self.noise + self.init) / (self.noise + batch)
