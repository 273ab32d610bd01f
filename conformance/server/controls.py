"""Controls: a good purchase. A server that does not sell is not judged."""

from x402sim.protocol.crypto import to_hex
from x402sim.suite import texts
from x402sim.suite.row import only
from x402sim.suite.server.case import Demand, Trade, case, trade, used_nothing
from x402sim.suite.server.payment import Dialect, receipt_in
from x402sim.suite.server.play import Play
from x402sim.suite.verdict import Found, Inconclusive, Violation


def _sells(play: Play, observed: Trade) -> Found:
    offer = observed.payment.offer
    wanted = (str(offer["payTo"]).lower(), observed.payment.auth.value)
    moved = [(to_hex(each.to), each.amount_base) for each in observed.moved]
    if play.dialect is Dialect.UPTO:  # the signed amount is a maximum
        moved = [(to, max(base, wanted[1])) for to, base in moved]
    if observed.is_served and moved == [wanted]:
        return None
    return Violation(
        demand="sells",
        actual=f"{observed.summary}; the price is {wanted[1]} base units, to {wanted[0]}",
    )


def _receipt(play: Play, observed: Trade) -> Found:
    receipt, answer = receipt_in(play.dialect, observed.answers[0]), observed.answers[0]
    hashes = {each.tx_hash for each in observed.moved}
    name = str(receipt.get("transaction")).lower()
    if receipt.get("success") is True and name in hashes:
        amounts = {str(each.amount_base) for each in observed.moved}
        if play.dialect is not Dialect.UPTO or {receipt.get("amount")} == amounts:
            return None
    return Violation(
        demand="receipt-has-hash",
        actual=f"{play.dialect.response_place}: {answer.how}",
        why="the payer has no proof that it has paid",
    )


@case(
    "control/sells",
    Demand(
        title="A good payment is served, with a single transfer of the price to the shop",
        ground=texts.derived(texts.SUCCESS, texts.ONE_TRANSFER, so="this is what a purchase is"),
        test=_sells,
    ),
    Demand(
        title="The answer names the settlement",
        ground=texts.explicit(texts.RESPONSE, texts.SUCCESS_FIELD, texts.TRANSACTION),
        test=_receipt,
        suffix="receipt",
        absent={Dialect.UPTO: "the answer names the amount, too"},
    ),
    Demand(
        title="The answer names the settlement, and the settled amount",
        ground=texts.explicit(texts.RESPONSE, texts.TRANSACTION, texts.AMOUNT_TOLD),
        test=_receipt,
        suffix="receipt",
        absent=only([Dialect.UPTO], "the price is the amount"),
    ),
    is_control=True,
)
async def _buys(play: Play) -> Trade:
    bought = await trade(play, again=0)
    if used_nothing(play, bought) and not bought.moved:
        raise Inconclusive("what it sells has used nothing: name a request that uses something")
    return bought
