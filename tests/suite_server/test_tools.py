"""The judge of servers where tools of MCP are sold: defects are caught, honest servers left alone."""

import sys
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.house import PACKAGE
from tests.suite.cases import names
from tests.suite_server.judging import Bench, broken, missed
from tests.suite_server.tool_shop import ToolShop, tool_shop
from x402sim.cli import app
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.room import Given
from x402sim.suite.server.subject import ServerJudge, all_cases, item_in
from x402sim.suite.started import App
from x402sim.suite.verdict import Found

ITEMS = tuple(
    map(
        item_in,
        (
            "MCP /mcp weather",
            'MCP /mcp forecast {"city": "Paris"}',
            'MCP /mcp report {"title": "a"}',
        ),
    )
)
DEFECTS = {
    "is no error": "server/tool/offer [mcp]",
    "only the text": "server/tool/offer-both [mcp]",
    "prose for text": "server/tool/offer-both [mcp]",
    "another price in the text": "server/tool/offer-both [mcp]",
    "any key pays": "server/tool/unpaid [mcp]",
    "a receipt pays": "server/tool/unpaid [mcp]",
    "works before it is paid": "server/handler/unpaid [mcp]",
    "keeps the content": "server/tool/refused [mcp]",
    "no offer for refusals": "server/tool/underpaid [mcp] server/tool/invalid [mcp] server/payment/amount-answer [mcp]",
    "no error": "kit/offer/whole-reason [mcp] server/tool/underpaid [mcp]",
    "no receipt": "server/control/sells-receipt [mcp]",
    "no hash": "server/control/sells-receipt [mcp]",
    "amount is a number": "server/offer/whole [mcp]",
    "no resource": "server/offer/whole [mcp]",
    "believes what was accepted": "server/payment/accepted [mcp]",
    "any header pays": "server/header/malformed [mcp]",
    "5xx for malformed": "server/header/malformed-answer [mcp] server/payment/fields-answer [mcp]",
    "forgets what it was for, serves again, does not compare": "server/binding/elsewhere [mcp] "
    "server/binding/body [mcp] server/many/again [mcp]",
    "claims late, keeps nothing": "silent/many/at-once-told-again [mcp]",
    "serves again": "server/many/again [mcp] server/many/at-once [mcp] server/many/at-once-settling [mcp]",
    "unknown is refused": "kit/order/settled-lost [mcp] kit/order/settled-cut [mcp] "
    "kit/order/settled-lost-first [mcp] kit/order/settled-twice [mcp]",
    "unknown is refused, no result of refusals, no error": "kit/order/settled-pending-first [mcp]",
    "says unknown for ever": "kit/order/settled-lost-again [mcp]",
    "open when settle fails": "server/order/settle-down [mcp] server/order/settle-moved [mcp]",
    "open when verify fails": "server/order/verify-down [mcp]",
    "served although refused": "server/order/refused [mcp]",
    "truthy": "server/order/settle-text [mcp]",
    "serves before settling": "server/order/refused [mcp]",
    "follows": "kit/order/settle-redirected [mcp] kit/order/verify-redirected [mcp]",
    "charges failures": "server/order/handler-fails [mcp]",
    "no result of refusals, no error": "server/order/refused-reason [mcp]",
    "keeps it in memory, never verifies, serves before settling": "server/restart/served [mcp] server/replicas/in-turn [mcp]",
    "forgets who leaves": "kit/gone/settling-again [mcp]",
    "forgets who leaves, says failed": "server/gone/settled [mcp]",
    "settles the first offer": "server/offer/each [mcp]",
}
HONEST = {
    "says unknown for ever": "kit/order/settled -first -again",
    "refuses what was served": "server/many server/gone",
    "has sessions, answers by events": "server/control server/many server/tool server/gone kit/order/settled-lost",
    "several offers": "server/offer server/payment",
    "never verifies": "server/order/invalid",
}
SLOW = "settled-late"
STARTS = ("restart", "replicas")
"""The sections in which a second server is started, or one again."""
MCP = [case for case in all_cases() if case.dialect is Dialect.MCP and SLOW not in case.id]


@dataclass
class ToolBench(Bench):
    def __post_init__(self) -> None:
        self.judge = ServerJudge(
            subject=App(self.make),
            items=ITEMS,
            handlers={"failing": item_in('MCP /mcp forecast {"city": "fail"}'),
                      "slow": item_in('MCP /mcp forecast {"city": "slow"}')},
            shares=True,
            jobs=1,
            patience_s=self.patience_s,
        )  # fmt: skip

    async def found(self, *asked: Any, **more: Any) -> dict[str, Found]:
        for room in self.rooms.values():
            room.wires.clear()  # the shop may have sessions now
        return await super().found(*asked, **more)

    def make(self, given: Given) -> ToolShop:
        self.shops.append(made := tool_shop(given, self.defects, self.habits))
        return made


@pytest.mark.thorough
def test_each_defect_is_caught_by_the_ids_that_are_about_it() -> None:
    assert not missed(ToolBench, DEFECTS)


@pytest.mark.thorough
def test_honest_tools_break_nothing() -> None:
    quick = [case for case in MCP if not (case.waits_s or case.section in STARTS)]
    assert not broken(ToolBench, quick, {})


@pytest.mark.thorough
@pytest.mark.waits
def test_honest_tools_with_other_habits_break_nothing_nor_where_it_takes_time() -> None:
    assert not broken(ToolBench, MCP, HONEST)


def test_what_only_tools_have_has_a_defect_that_it_catches() -> None:
    caught = {each for ids in DEFECTS.values() for each in names(ids) if "/tool/" in each}
    assert caught == {case.name for case in MCP if case.section == "tool" and case.level != "MAY"}


ROOT = PACKAGE.parent
COMMAND = f"{sys.executable} -m tests.suite_server.tool_shop"
FEW = "server/tool,server/many/again,server/binding/elsewhere"


def judged(item: str, words: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.chdir(ROOT)  # where the command finds the tests
    given = ("conformance", "server", item, "--start", f"{COMMAND} {words}", *options)
    return CliRunner().invoke(app, [*given, "--only", FEW])


@pytest.mark.parametrize("place", ["/mcp", "stdio"])
def test_a_command_is_judged_over_http_and_by_its_input_and_output(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    also = f'MCP {place} forecast {{"city": "Paris"}}'
    words = "stdio" if place == "stdio" else ""
    good = judged(f"MCP {place} weather", words, monkeypatch, "--also", also)
    assert good.exit_code == 0, good.output
    assert f"of MCP {place} weather, {also}" in " ".join(good.output.split())
    bad = judged(f"MCP {place} weather", f"{words} 'serves again'", monkeypatch)
    assert bad.exit_code == 1, bad.output
    assert "failed in mcp server/many/again MUST" in bad.output
    assert "0.02 USDC" in bad.output


def test_an_offer_that_is_no_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = judged("MCP /mcp weather", "'is no error'", monkeypatch)
    assert done.exit_code == 2
    assert "its result holds an offer, and isError is not true" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["MCP", "/mcp"], "is no tool: give MCP /mcp forecast"),
        (["MCP /mcp t [1]", "--start", "x"], "the arguments of a tool are a JSON object"),
        (["MCP stdio t"], "the judge must start it"),
        (["MCP /mcp t", "--start", "x", "--also", "/weather"], "tools with a tool"),
        (["MCP /mcp t", "--start", "x", "--dialects", "v2"], "a tool is judged in mcp"),
        (["/weather", "--start", "x", "--dialects", "mcp"], "a tool is judged in mcp"),
    ],
)
def test_what_is_no_tool_is_refused(words: list[str], text: str) -> None:
    done = CliRunner().invoke(app, ["conformance", "server", *words])
    assert done.exit_code == 2
    assert text in " ".join(done.output.split())
