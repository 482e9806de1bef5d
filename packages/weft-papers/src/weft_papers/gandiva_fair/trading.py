"""Trading: users who gain much from fast GPUs buy them with slow ones from those who gain little.

The price of a fast GPU, in slow ones, is the largest speed-up among the others that could buy (a
second-price auction), so it lies between the seller's and the buyer's own and neither is worse off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.frozen import frozen

EPS = 1e-9


@frozen
class Trade:
    """`buyer` got `fast` GPUs from `seller` at `price` slow ones each."""

    buyer: str
    seller: str
    fast: float
    price: float


def trade(
    slow: dict[str, float], fast: dict[str, float], speedup: Mapping[str, float]
) -> list[Trade]:
    """Trade until no user gains; the holdings are changed in place."""
    trades: list[Trade] = []
    users = sorted(speedup, key=lambda user: speedup[user])
    while True:
        buyers = [user for user in users if slow[user] > EPS]
        sellers = [user for user in users if fast[user] > EPS]
        if not buyers or not sellers:
            return trades
        buyer, seller = buyers[-1], sellers[0]
        if speedup[buyer] <= speedup[seller] + EPS:
            return trades
        price = max(speedup[user] for user in (*buyers[:-1], seller))
        amount = min(fast[seller], slow[buyer] / price)
        slow[buyer] -= amount * price
        slow[seller] += amount * price
        fast[seller] -= amount
        fast[buyer] += amount
        trades.append(Trade(buyer, seller, amount, price))


def trade_all(
    holdings: dict[str, dict[str, float]],
    kinds: Sequence[str],
    rates: Mapping[str, Mapping[str, float]],
) -> list[Trade]:
    """Trades over several kinds, slowest first in `kinds`: the outermost pair, then inner ones.

    `holdings` is GPUs by kind and user, changed in place; `rates` speed by user and kind.
    """
    trades: list[Trade] = []
    for distance in range(len(kinds) - 1, 0, -1):
        for low in range(len(kinds) - distance):
            slow, fast = kinds[low], kinds[low + distance]
            able = [u for u, own in rates.items() if own[slow] > 0.0 and own[fast] > 0.0]
            speedup = {user: rates[user][fast] / rates[user][slow] for user in able}
            if len(speedup) > 1:
                trades += trade(holdings[slow], holdings[fast], speedup)
    return trades
