"""Actions on faults: add, list and clear them; crash the service; run its indexer."""

from typing import Any

import msgspec

from x402sim.http.web import bad_body
from x402sim.service import indexer
from x402sim.world.control.context import Context, Nothing, require_service
from x402sim.world.transport.faults import read_fault


async def standing(context: Context, _: Nothing) -> Any:
    """List the active faults."""
    return [msgspec.to_builtins(fault) for fault in context.parts.faults.standing()]


async def add(context: Context, asked: Any) -> Any:
    """Inject a fault: {"victim": "facilitator", "does": "lose answer", "path": "/settle"}."""
    try:
        fault = read_fault(asked)
        if fault.victim in context.parts.services or fault.does in ("crash before", "crash after"):
            require_service(context.parts, f'"{fault.does}" of "{fault.victim}"')
        context.parts.faults.add(fault)
    except ValueError as wrong:
        raise bad_body(str(wrong)) from wrong
    return {"standing": len(context.parts.faults.standing())}


class Clear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which faults stay: those whose `contains` is one of these texts, and not empty."""

    keep: list[str] = []


async def clear(context: Context, asked: Clear) -> Any:
    """Reset faults, clock skews, the explorer's lag, forced reverts and mining."""
    parts, chain = context.parts, context.parts.chain
    parts.faults.clear(set(asked.keep) - {""})
    for clock in parts.clocks.values():
        clock.skew_s = 0.0
    parts.index.lag_s = parts.recipe.explorer.lag_s
    if chain.rewinding:
        await chain.rewinding.force_revert(0)
    if chain.mining:
        await chain.mining.set_automine(parts.recipe.block_time_s is None)
    return {"standing": len(parts.faults.standing())}


async def crash(context: Context, _: Nothing) -> Any:
    """Kill the service; answers when it has restarted on its database, 1 second later."""
    require_service(context.parts, "/crash")
    context.parts.process.crash()
    await context.parts.process.runs()
    return {"crashes": context.parts.process.crashes}


async def run_indexer(context: Context, _: Nothing) -> Any:
    """Run the payment indexer now; return its counts, all 0 if a crash cut it short."""
    require_service(context.parts, "/indexer/run")
    return await context.parts.process.do(indexer.run) or indexer.IndexerRun()
