"""Rules of tenants in all combinations, against a model that knows nothing of how they are kept."""

from weft.testing.rules.play import Problem, play
from weft.testing.rules.scenario import Scenario, draw

__all__ = ["Problem", "Scenario", "draw", "play"]
