"""Each demand on servers has a defect that it catches; what honest shops do differently is left
alone.
"""

from tests.suite_server.judging import Bench, cases, run
from x402sim.suite.played import Violation
from x402sim.suite.server.subject import all_cases

DEFECTS = {
    "no hash": "server/control/sells-receipt-v2 server/control/sells-receipt-v1",
    "another price in the body": "kit/offer/whole-same-v2",
    "amount is a number": "server/offer/whole-v2",
    "no resource": "server/offer/whole-v2",
    "no error": "kit/offer/whole-reason-v1 kit/offer/whole-reason-v2",
    "no cors": "kit/offer/cors-v1 kit/offer/cors-v2",
    "preflight is asked to pay": "kit/offer/preflight-v2 kit/offer/preflight-allows-v2",
    "cacheable": "server/offer/cache-v2 kit/offer/cache-forbidden-v2",
    "says nothing of caches": "kit/offer/cache-forbidden-v1",
    "believes what was accepted": "server/payment/accepted-v2",
    "any header pays": "server/header/malformed-v2 server/header/malformed-v1",
    "5xx for malformed": "server/header/malformed-answer-v2 server/payment/fields-answer-v1 "
    "server/header/other-answer-v2 server/header/version-answer-v1",
    "forgets what it was for, serves again, does not compare": "server/binding/elsewhere-v2 server/binding/query-v1 "
    "server/binding/body-v2 server/many/again-v1",
    "claims late, keeps nothing": "kit/many/at-once-told-again-v2",
    "serves again": "server/many/again-v2 server/many/at-once-v2 server/many/at-once-settling-v1",
    "decodes behind the wall": "server/path/spelling-v2",
    "merges slashes behind the wall": "server/path/spelling-v2",
    "small letters behind the wall": "server/path/spelling-v2",
    "any method behind the wall": "server/path/method-v2",
    "overrides behind the wall": "server/path/headers-v2",
    "head is free": "server/path/head-v2 server/path/head-v1 kit/path/head-success-v2",
    "head is free, hides its length": "server/path/head-v2",
    "head pays, refuses what was served": "kit/path/head-paid-v2",
    "unknown is refused": "server/order/settled-lost-v2 server/order/settled-cut-v1 "
    "server/order/settled-gateway-v2 kit/order/settled-lost-first-v1 "
    "server/order/settled-twice-v1",
    "unknown is refused, no result of refusals": "kit/order/settled-pending-first-v2",
    "says unknown for ever": "kit/order/settled-lost-again-v2 kit/order/settled-cut-again-v1",
    "open when settle fails": "server/order/settle-down-v2 server/order/settle-lost-v1 "
    "server/order/settle-moved-v2",
    "open when verify fails": "server/order/verify-down-v2 server/order/verify-moved-v1",
    "served although refused": "server/order/refused-v2 server/order/refused-400-v1",
    "truthy": "server/order/settle-text-v2",
    "serves before settling": "server/order/settle-down-v1 server/order/refused-v2",
    "follows": "kit/order/settle-redirected-v2 kit/order/verify-redirected-v1",
    "charges failures": "server/order/handler-fails-v2",
    "no result of refusals": "server/order/refused-reason-v2",
    "no result of refusals, no error": "server/order/refused-reason-v1",
}
"""What a shop gets wrong, with commas between several, and the ids that catch it."""
HONEST = {
    "says unknown for ever": "server/order/settled",
    "refuses what was served": "server/many",
    "decodes before the wall": "server/path",
    "never verifies": "server/order/invalid",
    "charges failures and says so": "server/order/handler",
    "sells the same each time": "server/many",
    "reason in the body of version 1": "server/order/refused",
}
"""What honest shops do differently, and the MUSTs that it could break."""
SLOW = "settled-late"


def test_each_defect_is_caught_by_the_ids_that_are_about_it() -> None:
    found = run(Bench, [(cases(ids), defect, "") for defect, ids in DEFECTS.items()])
    missed = {
        defect: [each for each in ids.split() if not isinstance(seen[each], Violation)]
        for (defect, ids), seen in zip(DEFECTS.items(), found, strict=True)
    }
    assert not {defect: ids for defect, ids in missed.items() if ids}


def test_how_often_what_is_sold_is_made_is_told_if_something_counts_it() -> None:
    runs = cases("silent/many/runs-v2")
    late = "serves before settling, claims late, keeps nothing"
    counts, once, alike = run(
        Bench, [(runs, late, ""), (runs, "", ""), (runs, late, "sells the same each time")]
    )
    assert [*counts.values()] == ["what is sold was made 5 times for one payment"]
    assert ([*once.values()], alike) == ([None], {})


def test_a_shop_that_does_everything_right_breaks_nothing_nor_does_one_with_another_habit() -> None:
    every = [case for case in all_cases() if SLOW not in case.id]
    asked = [([case for case in every if case.dialect == each], "", "") for each in ("v1", "v2")]
    for habit, prefix in HONEST.items():
        version = "v1" if habit.endswith("version 1") else "v2"
        about = [case for case in every if case.id.startswith(prefix) and case.dialect == version]
        asked.append((about, "", habit))
    for (_, _, habit), seen in zip(asked, run(Bench, asked), strict=True):
        wrong = {each: found for each, found in seen.items() if isinstance(found, Violation)}
        assert not wrong, (habit, wrong)
