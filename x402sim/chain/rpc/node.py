"""A proxy to a node's own JSON-RPC. Requests and answers pass unchanged. Callers with read access
may call the methods of `READS`, and send what is signed; all others, some of which control a test
node, need control of the world.
"""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim.chain.base import ChainError
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.chain.rpc import jsonrpc
from x402sim.chain.rpc.app import PARSE_ERROR, READS, REFUSED, UNKNOWN_METHOD
from x402sim.http.web import Application, answer, read_body
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.rpc_values import shown

SENDS = "eth_sendRawTransaction"
"""What anybody may send: its sender has signed it, and pays for it."""


def node_rpc_app(chain: EvmChain, *, may_write: bool) -> Starlette:
    """Return an application that passes JSON-RPC on to the node of `chain`."""

    async def rpc(request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse(f"The JSON-RPC of {chain.node.name}: POST what you ask it.\n")
        body = await read_body(request)
        try:
            asked = decode(body, Any)
        except BadMessage as wrong:
            return answer(jsonrpc.error(None, PARSE_ERROR, f"cannot be read as JSON: {wrong}"))
        several = asked if isinstance(asked, list) else [asked]
        calls = [each for each in several if isinstance(each, dict)]
        writes = [each for each in calls if each.get("method") not in READS]
        controls = [each for each in writes if each.get("method") != SENDS]
        if controls and not may_write:
            named = shown(controls[0].get("method"))
            offered = ", ".join((*sorted(READS), SENDS))
            text = f"{named} is not offered here, only reading and sending: {offered}"
            return answer(jsonrpc.error(controls[0].get("id"), UNKNOWN_METHOD, text))
        try:
            read = encode(asked)  # not the body: the node might read duplicate keys differently
            forwarded = await chain.pass_on(read, writes=bool(writes))
        except ChainError as gone:
            return answer(jsonrpc.error(None, REFUSED, str(gone)))
        return Response(forwarded, media_type="application/json")

    return Application([Route("/", rpc, methods=["GET", "POST"])])
