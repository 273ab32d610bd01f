"""The service's own calls: to the facilitator, the chain explorer and the chain's RPC.

An answer that was lost is neither yes nor no, so `settle` knows three outcomes: money
moved, no money moved, and `OutcomeUnknown`.
Clauses: 4.1/build-verify, 8/indexer-query.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, from_hex, parse_address, to_hex
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.protocol.messages import (
    BadMessage,
    FacilitatorRequest,
    PaymentRequirements,
    SettleAnswer,
    Settled,
    VerifyAnswer,
    decode,
    encode,
)
from x402sim.service.settings import Settings

_HEADERS = {"Content-Type": "application/json", "X402-Version": "1"}


class Unavailable(Exception):
    """The other side was not reached, or what it said makes no sense; nothing has changed."""


class Declined(Unavailable):
    """It was reached and answered with a JSON-RPC error."""


class OutcomeUnknown(Exception):
    """The facilitator was asked to settle, and its answer is lost: money may have moved."""


@dataclass(frozen=True, slots=True)
class OnChain:
    """What the explorer knows of a mined transaction."""

    block_number: int
    succeeded: bool


@dataclass(frozen=True, slots=True)
class NonceUse:
    """How a nonce was used up, and when (Unix seconds of its block).

    `transfers` are its transaction's, of this token: (from, to, base units).
    """

    tx_hash: str
    canceled: bool
    mined_s: int
    transfers: tuple[tuple[Address, Address, int], ...]


@dataclass(frozen=True, slots=True)
class NonceState:
    """What one RPC says of a nonce: the time of its newest block, and whether it is used up.

    `use` tells how, if the event was found.
    """

    head_s: int
    is_used: bool
    use: NonceUse | None


class Upstream:
    """HTTP to the three parties the service depends on."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self._http = http
        self._settings = settings

    async def verify(self, header: str, requirements: PaymentRequirements) -> VerifyAnswer:
        """Ask the facilitator whether a payment is valid; raises `Unavailable`."""
        body = facilitator_request(header, requirements)
        response = await self._post("verify", body, self._settings.verify_timeout_s)
        verdict: VerifyAnswer = _read(response, VerifyAnswer)
        return verdict

    async def settle(self, header: str, requirements: PaymentRequirements) -> SettleAnswer:
        """Ask the facilitator to settle.

        Raises `Unavailable` if it certainly was not asked, `OutcomeUnknown` if it was
        and its answer is lost or makes no sense.
        """
        body = facilitator_request(header, requirements)
        try:
            response = await self._post("settle", body, self._settings.settle_timeout_s)
            result: SettleAnswer = _read(response, SettleAnswer)
        except Unavailable as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            raise OutcomeUnknown(str(error)) from error
        if isinstance(result, Settled) and not _is_what_was_asked(result, header, requirements):
            raise OutcomeUnknown("the facilitator settled something else than it was asked to")
        return result

    async def transaction(self, tx_hash: str) -> OnChain | None:
        """Ask the explorer for a transaction's block (8/indexer-query); raises `Unavailable`.

        None if the explorer does not know it, or it is not in a block yet.
        """
        try:
            found = await self._explore("eth_getTransactionByHash", tx_hash)
            if not found or found.get("blockNumber") is None:
                return None
            receipt = await self._explore("eth_getTransactionReceipt", tx_hash)
            if not receipt:
                return None
            succeeded = {"0x1": True, "0x0": False}[receipt["status"]]
            return OnChain(_block_number(found["blockNumber"]), succeeded)
        except _NONSENSE as error:
            raise Unavailable(f"the explorer's answer makes no sense: {error!r}") from error

    async def nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask the chain about a nonce; raises `Unavailable`.

        The token's state tells only that it was used up; its events tell how.
        """
        try:
            return await self._nonce_state(authorizer, nonce)
        except Declined:  # many nodes keep the newest state only, and a block may have come
            return await self._nonce_state(authorizer, nonce)

    async def _nonce_state(self, authorizer: Address, nonce: bytes) -> NonceState:
        """Ask once, for the state at the head's own block: no older node can answer for it."""
        try:
            head = await self._rpc("eth_getBlockByNumber", "latest", False)
            head_s = int(head["timestamp"], 16)
            call = to_hex(abi.authorization_state(authorizer, nonce))
            token = to_hex(self._settings.network.asset)
            state = await self._rpc("eth_call", {"to": token, "data": call}, head["number"])
            if int(state, 16) == 0:
                return NonceState(head_s, is_used=False, use=None)
            return NonceState(head_s, is_used=True, use=await self._find_use(authorizer, nonce))
        except _NONSENSE as error:
            raise Unavailable(f"the RPC's answer makes no sense: {error!r}") from error

    async def reverted(self, tx_hash: str) -> bool:
        """Tell whether a transaction reverted; raises `Unavailable` if it is not in a block."""
        try:
            receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
            return {"0x1": False, "0x0": True}[receipt["status"]]
        except _NONSENSE as error:
            raise Unavailable(f"{tx_hash} is not in a block, says the RPC") from error

    async def _find_use(self, authorizer: Address, nonce: bytes) -> NonceUse | None:
        """Find the event of a nonce's use, and what else its transaction did."""
        events = [abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED]
        wanted = {
            "address": to_hex(self._settings.network.asset),
            "topics": [[to_hex(e) for e in events], to_hex(abi.word(authorizer)), to_hex(nonce)],
            "fromBlock": await self._search_from(),
            "toBlock": "latest",
        }
        logs = await self._rpc("eth_getLogs", wanted)
        if not logs:
            return None
        tx_hash = to_hex(from_hex(logs[0]["transactionHash"], 32))
        receipt = await self._rpc("eth_getTransactionReceipt", tx_hash)
        block = await self._rpc("eth_getBlockByNumber", receipt["blockNumber"], False)
        return NonceUse(
            tx_hash=tx_hash,
            canceled=from_hex(logs[0]["topics"][0], 32) == abi.AUTHORIZATION_CANCELED,
            mined_s=int(block["timestamp"], 16),
            transfers=tuple(self._transfers(receipt["logs"])),
        )

    def _transfers(self, logs: list[dict[str, Any]]) -> Iterator[tuple[Address, Address, int]]:
        """Yield the transfers of this token; another token's are worth nothing here."""
        for log in logs:
            if from_hex(log["address"], 20) != self._settings.network.asset:
                continue
            event, *indexed = (from_hex(topic, 32) for topic in log["topics"])
            if event == abi.TRANSFER_EVENT:
                sender, to = (Address(word[12:]) for word in indexed)
                yield sender, to, int(log["data"], 16)

    async def _search_from(self) -> str:
        if self._settings.log_search_blocks is None:
            return "0x0"
        height = int(await self._rpc("eth_blockNumber"), 16)
        return hex(max(0, height - self._settings.log_search_blocks))

    async def _post(self, verb: str, body: bytes, timeout_s: float) -> httpx.Response:
        url = f"{self._settings.facilitator_url}/v2/x402/{verb}"
        request = self._http.build_request("POST", url, content=body, headers=_HEADERS)
        response = await self._send(request, timeout_s)
        if response.status_code >= 500 or response.status_code == 408:
            raise Unavailable(f"{verb} answered {response.status_code}: {response.text[:200]}")
        return response

    async def _explore(self, action: str, tx_hash: str) -> dict[str, Any] | None:
        query = {"module": "proxy", "action": action, "txhash": tx_hash}
        request = self._http.build_request(
            "GET", f"{self._settings.explorer_url}/api", params=query
        )
        found: dict[str, Any] | None = await self._result(request)
        if found is not None and not isinstance(found, dict):
            raise Unavailable(f"the explorer answered {str(found)[:200]!r}")
        return found

    async def _rpc(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        request = self._http.build_request(
            "POST",
            self._settings.rpc_url,
            content=encode(call),
            headers={"Content-Type": "application/json"},
        )
        return await self._result(request)

    async def _result(self, request: httpx.Request) -> Any:
        """Return the `result` of a JSON-RPC answer; raises `Unavailable` if there is none."""
        response = await self._send(request, self._settings.explorer_timeout_s)
        try:
            body = decode(response.content, Any)
        except BadMessage as error:
            raise Unavailable(f"{request.url} did not answer JSON: {error}") from error
        if not isinstance(body, dict) or "jsonrpc" not in body or "result" not in body:
            is_error = isinstance(body, dict) and "error" in body
            raise (Declined if is_error else Unavailable)(
                f"{request.url} answered {response.text[:200]}"
            )
        return body["result"]

    async def _send(self, request: httpx.Request, timeout_s: float) -> httpx.Response:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._http.send(request)
        except TimeoutError as error:
            raise Unavailable(f"{request.url} did not answer within {timeout_s} s") from error
        except httpx.HTTPError as error:
            raise Unavailable(f"{request.url}: {error!r}") from error


def facilitator_request(header: str, requirements: PaymentRequirements) -> bytes:
    """Return the body of verify and settle, from header and requirements (4.1/build-verify).

    The header is opaque: it goes on as it came.
    """
    return encode(
        FacilitatorRequest(x402_version=1, payment_header=header, payment_requirements=requirements)
    )


def _read(response: httpx.Response, kind: Any) -> Any:
    """Return the answer; one that names a refusal counts whatever its status."""
    try:
        return decode(response.content, kind)
    except BadMessage as error:
        said = f"{response.status_code} {response.text[:200]!r}"
        raise Unavailable(f"the facilitator answered {said}") from error


def _is_what_was_asked(settled: Settled, header: str, requirements: PaymentRequirements) -> bool:
    """Tell whether the facilitator moved this amount from this payer to this payee.

    It must also be able to show it: a refund goes to whom the payment came from.
    """
    try:
        from_hex(settled.tx_hash, 32)
        auth, _ = authorization_of(decode_header(header))
        is_from_payer = parse_address(settled.from_) == auth.from_
    except (ValueError, BadMessage):
        return False
    return is_from_payer and (settled.network, settled.to.lower(), settled.value) == (
        requirements.network,
        requirements.pay_to.lower(),
        requirements.max_amount_required,
    )


def _block_number(text: str) -> int:
    """Return a block number; raises `ValueError` if no chain could be that long."""
    number = int(text, 16)
    if not 0 <= number < 2**63:
        raise ValueError(f"block {text}")
    return number


_NONSENSE = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises if it has not the shape it should have."""
