"""The outside world: facilitator, chain explorer, JSON-RPC node, and our own signature."""

import base64
import binascii
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
from eth_account import Account
from pydantic import ValidationError

from .config import bug, on, settings
from .models import ApiError, Authorization

log = logging.getLogger("shop.chain")

AUTHORIZATION_STATE = "0xe94a0102"
AUTHORIZATION_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
LOG_RANGE = 2000  # blocks; public nodes refuse longer ranges
TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}")


def _word(value: str) -> str:
    return value.lower().removeprefix("0x").rjust(64, "0")


def decode_header(text: str) -> tuple[Authorization, str]:
    try:
        if not re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", text):
            raise ValueError("not 0x-hex")
        raw = bytes.fromhex(text[2:])
        if not raw.lstrip().startswith(b"{"):
            raw = base64.b64decode(raw, validate=True)
        payload = json.loads(raw.decode())["payload"]
        return Authorization.model_validate(payload), base64.b64encode(raw).decode()
    except (
        ValueError,
        KeyError,
        TypeError,
        binascii.Error,
        RecursionError,
        ValidationError,
    ) as error:
        raise ApiError(400, "Invalid payment header") from error


class NoAnswer(Exception):
    """A service outside gave no usable answer; nothing is known about what it did."""


@dataclass(frozen=True)
class Outcome:
    """How a settlement ended: a hash, an error, or neither when nobody knows. sent: it may have reached the chain."""

    tx_hash: str | None = None
    error: str | None = None
    sent: bool = True
    block: int | None = None


class Facilitator:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http, self._base = http, f"{settings().facilitator_url}/v2/x402"

    async def _post(
        self, action: str, header: str, terms: dict[str, Any], timeout: float
    ) -> httpx.Response:
        body = {"x402Version": 1, "paymentHeader": header, "paymentRequirements": terms}
        timeout = 60 if on("one_loop") else timeout
        return await self._http.post(
            f"{self._base}/{action}", json=body, headers={"X402-Version": "1"}, timeout=timeout
        )

    async def verify(self, header: str, terms: dict[str, Any]) -> str | None:
        """Return why the payment is not valid, or None if it is."""
        try:
            response = await self._post("verify", header, terms, timeout=15)
            answer = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise NoAnswer from error
        status = response.status_code
        if not isinstance(answer, dict) or status == 429 or status >= 500:
            raise NoAnswer
        if answer.get("isValid") is True:
            return None
        if answer.get("isValid") is False or status in (400, 422):
            return str(answer.get("invalidReason") or answer.get("error") or "invalid")
        raise NoAnswer

    async def settle(self, header: str, terms: dict[str, Any]) -> Outcome:
        try:
            response = await self._post("settle", header, terms, timeout=30)
            answer = response.json()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return Outcome(sent=False)
        except (httpx.HTTPError, ValueError):
            return Outcome()
        status = response.status_code
        if status == 429:
            return Outcome(sent=False)
        if not isinstance(answer, dict):
            return Outcome()
        event, failed = answer.get("event"), str(answer.get("error") or "failed")
        if event == "payment.failed" and status < 500:
            return Outcome(error=failed)
        tx_hash = str(answer.get("txHash"))
        if response.is_success and event == "payment.settled" and TX_HASH.fullmatch(tx_hash):
            moved = (str(answer.get("to", "")).lower(), str(answer.get("value", "")))
            if moved == (terms["payTo"].lower(), terms["maxAmountRequired"]):
                return Outcome(tx_hash=tx_hash, block=answer.get("blockNumber"))
            log.error("facilitator settled something else: %s", answer)
            return Outcome()
        return Outcome(error=failed, sent=False) if status in (400, 422) else Outcome()


class Node:
    """The chain itself, asked when the facilitator leaves a settlement open."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def _call(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            answer = (await self._http.post(settings().rpc_url, json=call, timeout=10)).json()
            return answer["result"]
        except (httpx.HTTPError, ValueError, TypeError, KeyError) as error:
            raise NoAnswer from error

    async def _read(self, data: str) -> str:
        call = {"to": settings().token_address, "data": data}
        result = await self._call("eth_call", call, "latest")
        if not isinstance(result, str) or len(result) < 66:
            raise NoAnswer(f"eth_call answered {result!r}")
        return result

    async def is_used(self, authorizer: str, nonce: str) -> bool:
        state = await self._read(AUTHORIZATION_STATE + _word(authorizer) + _word(nonce))
        return int(state, 16) != 0

    async def transfer_of(self, authorizer: str, nonce: str, to: str, value: int) -> str | None:
        """Return the transaction in which this authorization moved exactly this, if there is one."""
        if not await self.is_used(authorizer, nonce):
            return None
        try:
            start = max(0, int(await self._call("eth_blockNumber"), 16) - LOG_RANGE)
            topics = [AUTHORIZATION_USED, "0x" + _word(authorizer), "0x" + _word(nonce)]
            token = settings().token_address
            wanted = {"address": token, "fromBlock": hex(start), "topics": topics}
            for used in await self._call("eth_getLogs", wanted | {"toBlock": "latest"}):
                receipt = await self._call("eth_getTransactionReceipt", used["transactionHash"])
                for entry in receipt["logs"]:
                    said = [topic.lower() for topic in entry["topics"]]
                    is_ours = entry["address"].lower() == token.lower()
                    is_it = said == [TRANSFER, "0x" + _word(authorizer), "0x" + _word(to)]
                    if is_ours and is_it and int(entry["data"], 16) == value:
                        return used["transactionHash"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NoAnswer from error
        raise NoAnswer("used, but its transfer was not found")

    async def domain(self) -> dict[str, Any]:
        """The token's EIP-712 domain; its version differs between deployments, so ask the token."""

        async def text(selector: str) -> str:
            raw = bytes.fromhex((await self._read(selector))[2:])
            return raw[64 : 64 + int.from_bytes(raw[32:64])].decode()

        return {
            "name": await text("0x06fdde03"),
            "version": await text("0x54fd4d50"),
            "chainId": settings().chain_id,
            "verifyingContract": settings().token_address,
        }

    async def sign_transfer(self, to: str, value: int, nonce: bytes) -> str:
        """Return a facilitator header that moves value from our own wallet."""
        config, now = settings(), int(time.time())
        fields: dict[str, tuple[str, Any]] = {
            "from": ("address", Account.from_key(config.private_key).address),
            "to": ("address", to),
            "value": ("uint256", value),
            "validAfter": ("uint256", now - 60),
            "validBefore": ("uint256", now + 300),
            "nonce": ("bytes32", nonce),
        }
        types = [{"name": name, "type": kind} for name, (kind, _) in fields.items()]
        message = {name: each for name, (_, each) in fields.items()}
        signed = Account.sign_typed_data(
            config.private_key,
            await self.domain(),
            {"TransferWithAuthorization": types},
            message,
        )
        payload = message | {
            "value": str(value),
            "nonce": "0x" + nonce.hex(),
            "signature": "0x" + bytes(signed.signature).hex(),
            "asset": config.token_address,
        }
        header = {"x402Version": 1, "scheme": "exact", "network": config.network}
        return base64.b64encode(json.dumps(header | {"payload": payload}).encode()).decode()


async def block_of(http: httpx.AsyncClient, tx_hash: str) -> int | None:
    """Ask the explorer for a transaction's block; None while it is unknown, pending or it is out of order."""
    query = {"module": "proxy", "action": "eth_getTransactionByHash", "txhash": tx_hash}
    try:
        url = f"{settings().explorer_url}/api"
        result = (await http.get(url, params=query, timeout=10)).json()["result"]
        is_it = bug("indexer_dies") or result["hash"].lower() == tx_hash.lower()
        return int(result["blockNumber"], 16) if is_it else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        if bug("indexer_dies"):
            raise
        log.info("no block for %s: %r", tx_hash, error)
        return None
