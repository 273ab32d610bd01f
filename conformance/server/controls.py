"""Controls: a good purchase. A server that does not sell is not judged."""

from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import to_base
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.row import only
from x402sim.suite.server.case import case, demand
from x402sim.suite.server.observed import Trade
from x402sim.suite.server.play import UNUSED, Play
from x402sim.suite.verdict import Found, Inconclusive, Violation


def _sells(play: Play, observed: Trade) -> Found:
    offer = observed.payment.offer
    wanted = (str(offer["payTo"]).lower(), observed.payment.auth.value)
    moved = [(to_hex(each.to), each.amount_base) for each in observed.moved]
    is_upto = play.dialect is Dialect.UPTO
    if is_upto:  # the signed amount is a maximum
        moved = [(to, max(base, wanted[1])) for to, base in moved]
    if observed.is_served and moved == [wanted]:
        unpaid = play.answers[-1]
        if unpaid.is_2xx and play.is_goods(unpaid, observed.answers[0]):
            return Violation(
                demand="sells-to-each",
                actual=f"without a payment, afterwards: {unpaid.how}",
                loss=play.tokens(wanted[1], "served for nothing, as often as anybody likes"),
            )
        return None
    what = "maximum" if is_upto else "price"
    actual = f"{observed.summary}; the {what} is {wanted[1]} base units, to {wanted[0]}"
    if is_upto and observed.is_served and not moved:
        return Violation(demand="serves-unsettled", actual=actual)
    return Violation(demand="sells-upto" if is_upto else "sells", actual=actual)


def _receipt(play: Play, observed: Trade) -> Found:
    receipt, answer = play.receipt(observed.answers[0]), observed.answers[0]
    hashes = {each.tx_hash for each in observed.moved}
    name = str(receipt.get("transaction")).lower()
    if receipt.get("success") is True and name in hashes:
        amounts = {str(each.amount_base) for each in observed.moved}
        if play.dialect is not Dialect.UPTO or {receipt.get("amount")} == amounts:
            return None
    return Violation(
        demand="receipt-has-hash", actual=f"{play.dialect.response_place}: {answer.how}"
    )


@case(
    "control/sells",
    demand(
        "A good payment is served, with a single transfer of the price to the shop",
        texts.derived(texts.SUCCESS, texts.ONE_TRANSFER, so="this is what a purchase is"),
        absent={Dialect.UPTO: "the price is a maximum"},
    )(_sells),
    demand(
        "A good payment is served, with a single transfer of the used amount to the shop",
        texts.derived(texts.SUCCESS, texts.ONE_TRANSFER, so="this is what a purchase is"),
        absent=only([Dialect.UPTO], "the price is the amount"),
    )(_sells),
    demand(
        "The answer names the settlement",
        texts.explicit(texts.RESPONSE, texts.SUCCESS_FIELD, texts.TRANSACTION),
        suffix="receipt",
        absent={Dialect.UPTO: "the answer names the amount, too"},
    )(_receipt),
    demand(
        "The answer names the settlement, and the settled amount",
        texts.explicit(texts.RESPONSE, texts.TRANSACTION, texts.AMOUNT_TOLD),
        suffix="receipt",
        absent=only([Dialect.UPTO], "the price is the amount"),
    )(_receipt),
    is_control=True,
)
async def _buys(play: Play) -> Trade:
    """Buy, and then ask without a payment."""
    bought = await _bought(play)
    await play.ask(about="without a payment, afterwards")
    return bought


async def _bought(play: Play) -> Trade:
    bought = await play.trade(again=0)
    if play.dialect is not Dialect.UPTO or bought.moved or not bought.is_served:
        return bought
    if not play.used_nothing(bought):
        return bought
    for item in play.metered:
        if used := to_base(item.used, play.room.network.decimals):
            metered = await play.trade(again=0, item=item)
            if metered.is_served and not metered.moved and used <= metered.payment.auth.value:
                return metered
    raise Inconclusive(f"{UNUSED}, or say what a request uses: --metered 'AMOUNT ITEM'")
