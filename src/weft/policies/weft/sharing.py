"""The same with two jobs on the same devices, where both together gain."""

from __future__ import annotations

from weft.core.state.table import Floats
from weft.pieces.place.pairs import place_pairs
from weft.pieces.share.pair_choices import share_devices
from weft.pieces.share.partners import find_partners
from weft.policies.weft.program import Choice, Start, find_room, find_wanted, solve
from weft.policies.weft.values import Values


def choose_shared(values: Values, held: Floats, start: Start) -> Choice:
    """The program for every job alone, then the best answer with pairs."""
    view, configs = values.view, values.configs
    together = values.of(held)
    partners = find_partners(view, together.weight)
    apart = partners.leave(held)
    worth = values.of(apart) if partners.guests else together
    room = find_room(view, partners)
    alone = solve(values, worth.value, apart, start.alone, room)
    improve = share_devices(view, configs, together, worth, held, partners)
    answer, pairs = improve(alone, lambda value: solve(values, value, apart, start.shared, room))
    changes = place_pairs(view, find_wanted(configs, answer), pairs, partners)
    return Choice(worth, answer, changes, pairs, alone.prices)
