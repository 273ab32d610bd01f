"""Each demand on servers has a defect that it catches; what honest shops do differently is left
alone.
"""

import asyncio
import itertools

import pytest

from tests.suite.cases import names
from tests.suite_server.judging import Bench, Counting, broken, cases, missed, run
from x402sim.suite.dialect import Dialect
from x402sim.suite.row import RoomCase
from x402sim.suite.server.room import REPLICAS
from x402sim.suite.server.subject import SECTIONS, all_cases
from x402sim.suite.verdict import Found

DEFECTS = {
    "no hash": "server/control/sells-receipt [v2 v1]",
    "another price in the body": "kit/offer/whole-same [v1]",
    "another price in a body of version 2": "server/offer/whole-same [v2]",
    "another name of the token": "server/offer/whole-token [v2 v1]",
    "amount is a number": "server/offer/whole [v2]",
    "no resource": "server/offer/whole [v2]",
    "no error": "kit/offer/whole-reason [v1 v2]",
    "exposes nothing": "kit/offer/cors [v1 v2]",
    "preflight is asked to pay": "server/offer/preflight [v2] kit/offer/preflight-allows [v2]",
    "cacheable": "server/offer/cache-offer [v2 v1]",
    "cacheable goods": "server/offer/cache [v2] kit/offer/cache-forbidden [v2]",
    "public": "server/offer/cache [v2] server/offer/cache-offer [v1]",
    "names the payment in vary": "kit/offer/cache-forbidden [v2]",
    "says nothing of caches": "kit/offer/cache-forbidden [v1]",
    "believes what was accepted": "server/payment/accepted [v2]",
    "believes the token that was accepted": "server/payment/token [v2] server/payment/chain [v2]",
    "any header pays": "server/header/malformed [v2 v1]",
    "5xx for malformed": "server/header/malformed-answer [v2] server/payment/fields-answer [v1] "
    "server/header/other-answer [v2] server/header/version-answer [v1]",
    "forgets what it was for, serves again, does not compare": "server/binding/elsewhere [v2] server/binding/query [v1] "
    "server/binding/body [v2] server/many/again [v1]",
    "binds to the price alone": "server/binding/elsewhere [v2 v1]",
    "claims late, keeps nothing": "silent/many/at-once-told-again [v2]",
    "serves again": "server/many/again [v2] server/many/at-once [v2] server/many/at-once-settling [v1]",
    "claims nonces as they are written": "silent/many/respelled [v2 v1]",
    "claims by request": "silent/many/elsewhere-at-once [v2 v1]",
    "one receipt for all": "server/many/receipts [v2 v1]",
    "answers who knows a nonce": "server/many/unsigned [v2 v1]",
    "one nonce for all payers": "kit/many/same-nonce-served [v2 v1]",
    "serves on the nonce of another": "server/many/same-nonce [v2 v1]",
    "keeps what was refused": "kit/many/refused-before [v2 v1]",
    "breaks at endless windows": "server/payment/endless [v2 v1]",
    "odd bodies are free": "server/path/body [v2]",
    "decodes behind the wall": "server/path/spelling [v2]",
    "merges slashes behind the wall": "server/path/spelling [v2]",
    "guards whole targets": "server/path/spelling [v2]",
    "small letters behind the wall": "server/path/spelling [v2]",
    "any method behind the wall": "server/path/method [v2]",
    "overrides behind the wall": "server/path/headers [v2]",
    "serves a part before the wall": "server/path/headers [v2]",
    "takes the old header for a payment": "server/header/other [v2]",
    "believes a hash": "server/header/malformed [v2]",
    "believes in a gateway": "server/path/headers [v2]",
    "is open once it was paid": "server/control/sells [v2]",
    "leaves the goods in each 402": "server/path/method [v2]",
    "leaves the goods in refusals": "server/order/refused [v2 v1] server/order/settle-down [v2] "
    "server/payment/amount [v2]",
    "head is free": "server/path/head [v2 v1] kit/path/head-success [v2]",
    "head is free, hides its length": "server/path/head [v2]",
    "head pays, refuses what was served": "kit/path/head-paid [v2]",
    "unknown is refused": "kit/order/settled-lost [v2] kit/order/settled-cut [v1] "
    "kit/order/settled-gateway [v2] kit/order/settled-lost-first [v1] "
    "kit/order/settled-twice [v1]",
    "unknown is refused, no result of refusals": "kit/order/settled-pending-first [v2]",
    "forgets what is unknown, never verifies": "kit/order/settled-lost-used [v2] "
    "kit/order/settled-lost-used [v1]",
    "says unknown for ever": "kit/order/settled-lost-again [v2] kit/order/settled-cut-again [v1]",
    "open when settle fails": "server/order/settle-down [v2] server/order/settle-lost [v1] "
    "server/order/settle-moved [v2]",
    "open when verify fails": "server/order/verify-down [v2] server/order/verify-moved [v1]",
    "truthy": "server/order/settle-text [v2]",
    "serves before settling": "server/order/settle-down [v1] server/order/refused [v2]",
    "follows": "kit/order/settle-redirected [v2] kit/order/verify-redirected [v1]",
    "charges failures": "server/order/handler-fails [v2]",
    "charges failures and says so": "server/order/handler-fails-flow [v2] "
    "kit/order/handler-fails-charged [v1]",
    "works before it verifies": "server/handler/unpaid [v2 v1]",
    "breaks off": "server/order/handler-fails [v2]",
    "no result of refusals": "kit/order/refused-receipt [v2]",
    "no result of refusals, no error": "server/order/refused-reason [v2 v1]",
    "forgets who leaves": "kit/gone/settling-again [v2] kit/gone/settled-again [v1]",
    "forgets who leaves, charges failures": "kit/handler/left-again [v2]",
    "forgets who leaves, says failed": "server/gone/settled [v2] server/gone/settling [v1]",
    "served although refused": "server/order/refused [v2] server/order/refused-400 [v1] "
    "server/handler/expired [v2] server/handler/stream-refused [v1]",
    "redirects are free": "kit/handler/redirects-settled [v2]",
    "redirects without a receipt": "server/handler/redirects [v1]",
    "settles after the stream": "server/handler/stream-refused [v2] kit/handler/stream-receipt [v2]",
    "settles after the stream, stops for who leaves": "server/handler/stream-left [v2]",
    "ids are looked up alone": "server/identifier/other [v2] server/identifier/payer [v2] "
    "server/identifier/unsigned [v2]",
    "claims ids late": "server/identifier/other-at-once [v2]",
    "ids are forgotten": "server/identifier/other-409 [v2] server/identifier/payer-409 [v2]",
    "ids are forgotten, ids are required": "server/identifier/required [v2]",
    "ids are forgotten, serves again": "server/identifier/busy [v2]",
    "verifies before it looks up": "server/identifier/again [v2]",
    "stores no receipt": "server/identifier/again-receipt [v2]",
    "lets any wallet in": "server/sign-in/stranger [v2]",
    "trusts the address": "server/sign-in/stranger [v2]",
    "takes any domain": "server/sign-in/elsewhere [v2]",
    "takes the host for its domain": "server/sign-in/elsewhere [v2]",
    "lets in for ever": "server/sign-in/times [v2]",
    "lets in twice": "kit/sign-in/replayed [v2]",
    "describes another method": "server/discovery/described-method [v2] "
    "kit/discovery/described-sold [v2]",
    "not as its schema": "server/discovery/described [v2]",
    "another example": "kit/discovery/described-example [v2]",
    "lists old prices": "kit/discovery/listed [v2]",
    "lists what is gone": "kit/discovery/listed [v2]",
    "a page for browsers": "server/offer/browser [v2]",
    "a page that cannot be paid": "server/offer/browser-paid [v1]",
    "settles the first offer": "server/offer/each [v2]",
    "keeps it in memory": "kit/restart/settled-again [v2] kit/restart/settling-again [v2] "
    "silent/replicas/at-once-told-again [v2] kit/replicas/lost-again [v2]",
    "keeps it in memory, says failed": "server/restart/settled [v2] server/restart/settling [v2] "
    "server/replicas/lost [v2]",
    "keeps it in memory, never verifies": "silent/restart/served-told-again [v2] "
    "silent/replicas/in-turn-told-again [v2]",
    "keeps it in memory, never verifies, serves before settling": "server/restart/served [v2] "
    "server/replicas/in-turn [v2] server/replicas/at-once [v2]",
    "sells permit2, believes what was accepted": "server/payment/accepted [permit2]",
    "sells permit2, serves again": "server/many/again [permit2]",
    "sells permit2, open when settle fails": "server/order/settle-lost [permit2]",
    "sells permit2, 402 without allowance": "kit/payment/balance-allowance (allowance) [permit2]",
    "sells upto, settles the maximum": "server/handler/used [upto]",
    "sells upto, settles nothing": "server/handler/used [upto] server/control/sells [upto]",
    "sells upto, never settles": "server/handler/used [upto] server/control/sells [upto] server/order/refused [upto]",
    "sells upto, bounds nothing": "server/handler/used [upto]",
    "sells upto, tells no amount": "server/control/sells-receipt [upto]",
    "sells upto, charges failures and says so": "server/order/handler-fails-flow [upto]",
    "sells upto, serves before settling": "server/order/refused [upto]",
    "sells upto, open when settle fails": "server/order/settle-lost [upto]",
    "sells upto, serves again": "server/many/again [upto]",
    "sells upto, 402 without allowance": "kit/payment/balance-allowance (allowance) [upto]",
}
"""What a shop gets wrong, with commas between several, and the ids that catch it."""
COUNTED = {
    "serves again": "server/many/again [v2] server/many/at-once [v2] server/many/at-once-settling [v1]",
    "forgets what it was for, serves again, does not compare": "server/binding/elsewhere [v2] "
    "server/binding/query [v1] server/binding/body [v2]",
    "claims late, keeps nothing": "silent/many/at-once-told-again [v2]",
    "claims nonces as they are written": "silent/many/respelled [v2]",
    "works before it verifies": "server/handler/unpaid [v2]",
    "head is free, hides its length": "server/path/head [v2]",
    "keeps it in memory, never verifies, serves before settling": "server/restart/served [v2]",
}
"""The same, for shops with equal goods and a path that counts handlers' runs."""
HONEST = {
    "several offers": "server/offer kit/offer server/payment",
    "sells on base": "server/offer kit/offer server/payment",
    "ids are required": "server/identifier server/payment server/many",
    "checks the signature before it looks up an id": "server/identifier",
    "names the payment in vary": "server/offer",
    "no result of refusals": "server/order/refused server/order/invalid",
    "preflight is asked to pay, no cors": "server/offer kit/offer",
    "serves one name": "server/offer server/path",
    "believes the chain alone": "server/many kit/order/settled server/order/refused kit/many",
    "believes 200 alone": "server/payment server/header server/order",
    "goes by what was signed, does not compare": "server/payment",
    "one nonce for all payers": "server/many",
    "says that it was served before": "server/many kit/many server/binding",
    "counts requests": "server/handler/unpaid server/path/head",
    "names the inner scheme": "server/offer kit/offer",
    "names the inner address": "server/offer kit/offer",
    "says unknown for ever": "kit/order/settled -first -again",
    "refuses what was served": "server/many kit/many server/gone kit/gone server/restart "
    "server/replicas kit/restart kit/replicas",
    "decodes before the wall": "server/path",
    "has a free page like its goods": "server/path",
    "has an envelope": "server/path",
    "never verifies": "server/order/invalid",
    "never verifies, keeps nothing": "server/binding server/many",
    "sells one at a time": "server/many",
    "accepts jobs": "server/control server/binding server/many server/order server/payment",
    "writes both amounts": "server/offer/whole",
    "refuses in the fields of its goods": "server/order/refused server/order/settle-down server/payment/amount",
    "asks for more each time": "server/offer kit/offer server/discovery kit/discovery/described",
    "sells permit2, leaves the token unnamed": "server/offer/whole",
    "charges failures and says so, says that it is paid upfront": "server/order/handler "
    "server/handler kit/handler",
    "settles after the stream": "server/handler/stream-left kit/handler/stream-left",
    "sells the same each time": "server/many",
    "reason in the body of version 1": "server/order/refused",
    "sells permit2": "server kit",
    "sells upto": "server kit",
    "sells upto, answers from a cache": "server/offer server/payment server/binding server/many server/order "
    "server/handler/stream server/handler/left server/gone server/restart server/replicas server/identifier "
    "kit/offer kit/many kit/order kit/handler kit/gone kit/restart kit/replicas",
}
"""What honest shops do differently, and the demands that it could break, with blanks between."""
ALWAYS_SUCCESS = ("at-once-told-again", "respelled", "elsewhere-at-once")
SLOW = "settled-late"


def _is_slow(cases: list[RoomCase]) -> bool:
    """Tell whether any of them mostly waits, or starts a second server, or one again."""
    return any(case.waits_s or case.section in ("restart", "replicas") for case in cases)


def _defects(*, slow: bool) -> dict[str, str]:
    """Return those that are caught by what takes time, or all others."""
    return {defect: ids for defect, ids in DEFECTS.items() if _is_slow(cases(ids)) == slow}


def test_how_often_what_is_sold_is_made_is_told_if_something_counts_it() -> None:
    runs = cases("silent/many/runs [v2]")
    late = "serves before settling, claims late, keeps nothing"
    counts, once, alike = run(
        Bench, [(runs, late, ""), (runs, "", ""), (runs, late, "sells the same each time")]
    )
    assert [*counts.values()] == ["what is sold was made 5 times for one payment"]
    assert ([*once.values()], alike) == ([None], {})


@pytest.mark.thorough
def test_a_payment_that_a_facilitator_settles_again_and_again_is_not_seen_to_buy_more() -> None:
    asked = cases(" ".join(f"silent/many/{each} [v2]" for each in ALWAYS_SUCCESS))
    habits = ("", "refuses what was served", "says that it was served before")
    for found in run(Bench, [(asked, "", habit) for habit in habits]):
        assert [*found.values()] == [None] * len(ALWAYS_SUCCESS)
    assert {case.level for case in asked} == {"MAY"}, "no text says what such a payment buys"


def test_of_goods_that_are_alike_defects_are_caught_by_a_path_that_counts() -> None:
    assert not missed(Counting, COUNTED)


@pytest.mark.thorough
def test_each_defect_is_caught_by_the_ids_that_are_about_it() -> None:
    assert not missed(Bench, _defects(slow=False))


@pytest.mark.thorough
@pytest.mark.waits
def test_each_defect_that_takes_time_is_caught_by_the_ids_that_are_about_it() -> None:
    assert not missed(Bench, _defects(slow=True))


def test_a_shop_that_does_everything_right_breaks_nothing() -> None:
    quick = [case for case in all_cases() if case.dialect == "v2" and not _is_slow([case])]
    assert not broken(Bench, quick, {})


def test_each_section_has_a_defect_that_it_catches() -> None:
    caught = {each.split("/")[1] for ids in DEFECTS.values() for each in names(ids)}
    assert caught == SECTIONS.keys() - {"tool"}


def test_two_servers_with_equal_numbers_of_their_goods_are_told_apart() -> None:
    async def found(first: int) -> Found:
        bench = Bench()
        try:
            asked = cases("silent/replicas/in-turn-told-again [v2]")
            bench.rooms[REPLICAS] = await bench.judge.room(REPLICAS)
            bench.shops[1].numbers = itertools.count(first)
            return (await bench.found(asked, ["keeps it in memory", "never verifies"]))[
                asked[0].name
            ]
        finally:
            await bench.judge.close()

    for first in (2, 3, 4):
        assert str(asyncio.run(found(first))).startswith("2 items were sold for 1 transfer"), first


@pytest.mark.thorough
@pytest.mark.waits
def test_a_shop_with_another_habit_breaks_nothing_nor_does_it_where_it_takes_time() -> None:
    over_http = [case for case in all_cases() if case.dialect is not Dialect.MCP]
    assert not broken(Bench, [case for case in over_http if SLOW not in case.id], HONEST)
