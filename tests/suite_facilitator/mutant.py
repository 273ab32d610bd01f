"""A facilitator that does everything right, and one switch for each thing that one gets wrong.

`Facilitator(rpc_url, key, network, defects)` is an ASGI application that verifies and settles
payments of both versions of the standard, also by Permit2, on any EVM chain behind JSON-RPC, with a
relayer's key.
`python -m tests.suite_facilitator.mutant DEFECT…` serves one, as the judge starts it. It shares the
kit's hashing and coding, and nothing of its facilitator, so that the judge is held against another one
than ours.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from x402sim.protocol import abi, rlp, x402
from x402sim.protocol.crypto import (
    ORDER,
    UNDEPLOYED,
    Address,
    BadSignature,
    PrivateKey,
    canonical,
    checksum,
    from_hex,
    keccak256,
    recover,
    sign,
    to_hex,
    unwrapped,
)
from x402sim.protocol.eip3009 import Authorization, Domain, Permit, transfer_digest
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS, Network
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
    signer_of,
)
from x402sim.protocol.permit2_payments import terms_of

MARGIN_S, ASK_S, RECEIPT_S, POLL_S = 6, 6.0, 3.0, 0.05
"""The least validity that is left, and how long it waits for the node, and for a receipt."""
MOST_GAS, MOST_PRICE_WEI = 400_000, 10**13
_DIGITS, _ADDRESS, _BYTES = (
    re.compile(each) for each in ("0|[1-9][0-9]{0,77}", "0x[0-9a-fA-F]{40}", "0x([0-9a-fA-F]{2})*")
)
LENIENT: Mapping[str, Callable[[str], int]] = {
    "any digits": lambda text: int(text) if text.isdigit() else int("x"),
    "underscores": lambda text: int(text.replace("_", "")) if text[:1].isdigit() else int("x"),
    "blanks": lambda text: int(text.strip(" \t\r\n")) if text.strip().isascii() else int("x"),
    "hex": lambda text: int(text, 16) if text[:2] in ("0x", "0X") else int("x"),
    "signs": lambda text: int(text[1:]) if text[:1] == "+" else int("x"),
    "exponents": lambda text: int(float(text)),
    "zeros in front": lambda text: int(text) if text.isascii() and text.isdigit() else int("x"),
}
"""Spellings of amounts that a defect accepts, beside the right one."""


class Invalid(Exception):
    """The payment is refused: a reason of the standard."""


class Malformed(Exception):
    """The request is no message of the standard."""


class NodeSays(Exception):
    """The node refuses; its words."""


class Reverts(NodeSays):
    """A call or a transaction that is tried reverts."""


class NodeGone(Exception):
    """The node did not answer, or not as it should."""


class Node:
    """The chain's JSON-RPC."""

    def __init__(self, url: str, patience_s: float | None) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=patience_s, trust_env=False)

    async def ask(self, method: str, *params: Any) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            answer = (await self.http.post("", json=asked)).json()
        except (httpx.HTTPError, ValueError) as gone:
            raise NodeGone(repr(gone)) from None
        if not isinstance(answer, dict) or not answer.keys() & {"result", "error"}:
            raise NodeGone("no answer of JSON-RPC")
        if (error := answer.get("error")) is not None:
            text = str(error.get("message") if isinstance(error, dict) else error)
            raise (Reverts if "revert" in text else NodeSays)(text)
        return answer["result"]

    async def number(self, method: str, *params: Any) -> int:
        found = await self.ask(method, *params)
        if not isinstance(found, str) or not re.fullmatch("0x[0-9a-fA-F]+", found):
            raise NodeGone(f"{method}: {found!r}")
        return int(found, 16)

    async def call(self, to: bytes, data: bytes, sender: bytes = bytes(20)) -> bytes:
        asked = {"from": to_hex(sender), "to": to_hex(to), "data": to_hex(data)}
        found = await self.ask("eth_call", asked, "latest")
        if not isinstance(found, str) or not _BYTES.fullmatch(found):
            raise NodeGone(f"eth_call: {found!r}")
        return bytes.fromhex(found[2:])


@dataclass(frozen=True)
class Asked:
    """What a request asks for, read."""

    version: int
    auth: Authorization
    signature: bytes
    amount: int
    pay_to: bytes
    asset: bytes
    domain: Domain
    permit: Permit2Authorization | None = None
    """The message of Permit2, whose terms `auth` has."""
    sponsored: tuple[Permit, bytes] | None = None

    @property
    def is_upto(self) -> bool:
        return self.permit is not None and self.permit.facilitator is not None

    @property
    def to_move(self) -> int:
        """What is to be settled."""
        return self.amount if self.is_upto else self.auth.value

    @property
    def call(self) -> tuple[bytes, bytes]:
        """The contract, and the calldata, that move the money."""
        if self.permit is None:
            return self.asset, abi.transfer_with_authorization(self.auth, self.signature)
        data = abi.settle(self.permit, self.amount, self.signature, self.sponsored)
        return self.permit.spender, data

    @property
    def is_used(self) -> Invalid:
        """The refusal of an authorization that is used."""
        if self.permit is not None:
            return Invalid("permit2_invalid_nonce")
        state = "invalid_transaction_state"
        return Invalid(state if self.version == 1 else "invalid_exact_evm_nonce_already_used")


@dataclass
class Settling:
    """A payment that is settled, or was: what was sent, and the answer."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tx_hash: str = ""
    raw: str = ""
    answer: dict[str, Any] | None = None


class Facilitator:
    """The application; `defects` are names of `DEFECTS`, `habits` what honest ones may do."""

    def __init__(
        self,
        rpc_url: str,
        key: str,
        network: Network = BASE_SEPOLIA,
        defects: frozenset[str] = frozenset(),
        habits: frozenset[str] = frozenset(),
    ) -> None:
        self.network, self.flags = network, defects | habits
        self.key = PrivateKey(from_hex(key, 32))
        self.node = Node(rpc_url, None if self.has("waits for ever") else ASK_S)
        self.turn = asyncio.Lock()
        self.known: dict[Authorization | bytes, Settling] = {}
        self.next_nonce: int | None = None
        self.last_hash = to_hex(keccak256(b"nothing"))
        self.is_dead = False
        self.asked_s: list[float] = []
        self.trusted: set[bytes] = set()

    def has(self, name: str) -> bool:
        return name in self.flags

    # --- HTTP ----------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [(b"content-type", b"application/json")]
        self.asked_s = [each for each in self.asked_s if each > time.time() - 1]
        if self.has("four a second") and len(self.asked_s) == 4:
            status, said = 429, {"error": "too many requests"}
            headers.append((b"retry-after", b"1"))
        elif self.has("busy for ever"):
            self.asked_s.append(time.time())
            status, said = 429, {"error": "too many requests"}
        else:
            self.asked_s.append(time.time())
            status, said = await self.answer(scope["method"], scope["path"], body)
        content = json.dumps(said).encode()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return what is answered: a status, and JSON."""
        name = path.rstrip("/").rpartition("/")[2]
        match method, name:
            case _ if self.is_dead:
                return 503, {"error": "gone"}
            case "GET", "supported":
                return 200, self.supported()
            case "GET", "health":
                return 200, {"status": "ok"}
            case "POST", "verify" | "settle":
                pass
            case _:
                return 404, {"error": "not found"}
        try:
            sent = self.read_json(body)
            done = self.verify(sent) if name == "verify" else self.settle(sent)
            return 200, await done
        except Invalid as why:
            status = 400 if self.has("answers 400") else 200
            return status, self.refused(name, sent, str(why))
        except Malformed as why:
            if self.has("5xx"):
                return 500, {"error": str(why)}
            if self.has("malformed is 200"):
                return 200, self.refused(name, {}, "invalid_payload")
            return 400, {"error": str(why)} | self.refused(name, {}, "invalid_payload")

    def refused(self, name: str, sent: Any, reason: str) -> dict[str, Any]:
        if self.has("words of its own"):
            reason = f"sorry: {reason}"
        if self.has("one word for all"):
            reason = "insufficient_funds"
        by = {"payer": payer} if (payer := _payer_in(sent)) else {}
        if name == "verify":
            return {"isValid": False, "invalidReason": reason, **by}
        failed = {"success": False, "errorReason": reason, "transaction": ""}
        return failed | {"network": self.name(_version_in(sent)), **by}

    def name(self, version: Any) -> str:
        return self.network.name if version == 1 else self.network.caip2

    def supported(self) -> dict[str, Any]:
        kinds = [
            {"x402Version": version, "scheme": "exact", "network": self.name(version)}
            for version in (2, 1)
        ]
        own = checksum(self.key.address)
        upto = {"x402Version": 2, "scheme": "upto", "network": self.name(2)}
        if not self.has("EIP-3009 alone"):
            kinds.append(upto | {"extra": {"facilitatorAddress": own}})
        if self.has("offers what it has not"):
            kinds.append({"x402Version": 2, "scheme": "exact", "network": "eip155:8453"})
        if self.has("hides a version"):
            del kinds[1]
        signers = {"eip155:*": [checksum(self.key.address)]}
        if self.has("another signer"):
            signers = {"eip155:*": [checksum(Address(b"\x11" * 20))]}
        return {"kinds": kinds, "extensions": ["eip2612GasSponsoring"], "signers": signers}

    # --- reading -------------------------------------------------------------------------

    def read_json(self, body: bytes) -> Any:
        if _depth(body) > 60:
            if self.has("dies of depth"):
                self.is_dead = True
            raise Malformed("nested too deeply")

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(dict(pairs)) < len(pairs):
                raise Malformed("a name stands there twice")
            return dict(pairs)

        def no(name: str) -> Any:
            raise Malformed(f"{name} is no JSON")

        reads = json.JSONDecoder(object_pairs_hook=unique, parse_constant=no)
        try:
            text = body.decode()
            # as Go's decoder does: bytes behind the first value are ignored
            found = reads.raw_decode(text)[0] if self.has("first value") else reads.decode(text)
        except (ValueError, RecursionError) as wrong:
            raise Malformed(f"no JSON: {wrong!r}") from None
        if not isinstance(found, dict):
            raise Malformed("no object")
        return found

    def number(self, text: Any, wrong: str) -> int:
        for name, parse in LENIENT.items():
            if self.has(name) and isinstance(text, str):
                with suppress(ValueError, OverflowError):
                    if (found := parse(text)) < 2**256:
                        return found
        if self.has("numbers for texts") and type(text) in (int, float):
            return int(text)
        if not isinstance(text, str) or not _DIGITS.fullmatch(text) or int(text) >= 2**256:
            raise Invalid(wrong)
        return int(text)

    def read(self, sent: Any) -> Asked:
        payment, wanted = sent.get("paymentPayload"), sent.get("paymentRequirements")
        if not isinstance(payment, dict) or not isinstance(wanted, dict):
            raise Malformed("paymentPayload and paymentRequirements are objects")
        version = _version_in(sent)
        if self.has("any version"):
            version = 1 if "maxAmountRequired" in wanted else 2
        elif version not in (1, 2) or payment.get("x402Version") != version:
            raise Invalid("invalid_x402_version")
        bad = "invalid_payment_requirements"
        amount = self.number(wanted.get("maxAmountRequired" if version == 1 else "amount"), bad)
        pay_to, asset = (_address(wanted.get(name), bad) for name in ("payTo", "asset"))
        timeout = wanted.get("maxTimeoutSeconds")
        if type(timeout) not in (int, float) or timeout < 1:
            raise Invalid(bad)
        if version == 1 and not all(
            isinstance(wanted.get(n), str) for n in ("resource", "description")
        ):
            raise Invalid(bad)
        accepted = payment if version == 1 else payment.get("accepted")
        if not isinstance(accepted, dict):
            raise Invalid("invalid_payload")
        if self.has("the payer's scheme"):
            wanted = {**wanted, "scheme": accepted.get("scheme")}
        is_upto = version == 2 and wanted.get("scheme") == "upto"
        if version == 2 and self.has("the payer's token"):
            wanted = {**wanted, "asset": accepted.get("asset")}
            asset = _address(wanted["asset"], bad)
        for name, right, habit, reason in (
            ("scheme", "upto" if is_upto else "exact", "any scheme", "unsupported_scheme"),
            ("network", self.name(version), "any network", "invalid_network"),
        ):
            said = [wanted.get(name), accepted.get(name)]
            if said != [right, right] and not self.has(habit):
                raise Invalid(reason)
        if version == 2:
            for name in ("payTo", "asset") if is_upto else ("amount", "payTo", "asset"):
                if str(accepted.get(name)).lower() != str(wanted[name]).lower():
                    raise Invalid("invalid_payload")
        extra = {} if self.has("ignores extra") else wanted.get("extra")
        if not isinstance(extra, dict):
            raise Invalid(bad)
        method = "permit2" if is_upto else "eip3009"
        payload = payment.get("payload")
        if self.has("ignores extra") and isinstance(payload, dict):  # its form tells the method
            method = "permit2" if "permit2Authorization" in payload else method
        named = extra.get("assetTransferMethod", method)
        if named != method and (version, named) != (2, "permit2"):
            raise Invalid("unsupported_asset_transfer_method" if version == 2 else bad)
        if named == "permit2" and self.has("EIP-3009 alone"):
            raise Invalid("unsupported_asset_transfer_method")
        if named == "permit2":
            permit, signature = self.read_permit(payload, is_upto=is_upto)
            if asset != self.network.asset:
                raise Invalid("permit2_token_mismatch")
            return Asked(
                version, terms_of(permit), signature, amount, pay_to, asset, self.network.domain,
                permit, _sponsored(payment.get("extensions")),
            )  # fmt: skip
        auth, signature = self.read_payload(payload)
        is_long = auth.valid_before - auth.valid_after > 1800
        if (is_long or auth.valid_before > time.time() + timeout) and self.has(
            "no window beyond the timeout"
        ):
            raise Invalid("invalid_exact_evm_payload_authorization_valid_before")
        own = {} if not self.has("ignores extra") else {"extra": x402.domain_of(self.network)}
        domain = self.domain({**wanted, **own}, asset, bad)
        if self.has("any asset"):
            asset = self.network.asset
        return Asked(version, auth, signature, amount, pay_to, asset, domain)

    def read_payload(self, payload: Any) -> tuple[Authorization, bytes]:
        bad = "invalid_payload"
        said = payload.get("authorization") if isinstance(payload, dict) else None
        if not isinstance(said, dict):
            raise Invalid(bad)
        value, after, before = (
            self.number(said.get(name), bad) for name in ("value", "validAfter", "validBefore")
        )
        nonce, signature = said.get("nonce"), payload.get("signature")
        if not isinstance(nonce, str) or not re.fullmatch("0x[0-9a-fA-F]{64}", nonce):
            raise Invalid(bad)
        if nonce.startswith("0x00") and self.has("drops zeros"):
            raise Invalid(bad)
        if not isinstance(signature, str) or not _BYTES.fullmatch(signature):
            raise Invalid(bad)
        sender, to = (Address(_address(said.get(name), bad)) for name in ("from", "to"))
        auth = Authorization(sender, to, value, after, before, bytes.fromhex(nonce[2:]))
        return auth, bytes.fromhex(signature[2:])

    def read_permit(self, payload: Any, *, is_upto: bool) -> tuple[Permit2Authorization, bytes]:
        bad = "invalid_payload"
        said = payload.get("permit2Authorization") if isinstance(payload, dict) else None
        parts = [said.get("permitted"), said.get("witness")] if isinstance(said, dict) else []
        signature = payload.get("signature") if parts else None
        if not parts or not all(isinstance(each, dict) for each in parts):
            raise Invalid(bad)
        if not isinstance(signature, str) or not _BYTES.fullmatch(signature):
            raise Invalid(bad)
        permitted, witness = parts
        named = _address(witness.get("facilitator"), bad) if is_upto else None
        found = Permit2Authorization(
            from_=Address(_address(said.get("from"), bad)),
            token=Address(_address(permitted.get("token"), bad)),
            amount=self.number(permitted.get("amount"), bad),
            spender=Address(_address(said.get("spender"), bad)),
            nonce=self.number(said.get("nonce"), bad),
            deadline=self.number(said.get("deadline"), bad),
            to=Address(_address(witness.get("to"), bad)),
            valid_after=self.number(witness.get("validAfter"), bad),
            facilitator=None if named is None else Address(named),
        )
        return found, bytes.fromhex(signature[2:])

    def domain(self, wanted: Any, asset: bytes, bad: str) -> Domain:
        extra = wanted["extra"]
        name, own = (extra.get("name"), extra.get("version")), self.network.domain
        if self.has("any asset settles"):
            return Domain(str(name[0]), str(name[1]), own.chain_id, Address(asset))
        if self.has("believes the domain"):
            return Domain(str(name[0]), str(name[1]), own.chain_id, own.verifying_contract)
        if asset != self.network.asset and not self.has("any asset"):
            raise Invalid(bad)
        if name != (own.name, own.version):
            raise Invalid(bad)
        return own

    # --- what is checked -----------------------------------------------------------------

    async def check(self, asked: Asked, *, is_settle: bool) -> Asked:
        """Raise `Invalid` for a payment that is refused; return it as the token takes it."""
        auth, now_s = asked.auth, time.time()
        if auth.to != asked.pay_to and not self.has("any payee"):
            kind = "exact_evm_payload" if asked.permit is None else "permit2"
            raise Invalid(f"invalid_{kind}_recipient_mismatch")
        self.check_amount(asked, is_settle=is_settle)
        early = "invalid_exact_evm_payload_authorization_valid_after"
        if asked.permit is not None:
            self.check_permit(asked.permit)
            early = "permit2_not_yet_valid"
        if auth.valid_after >= now_s and not self.has("no validAfter"):
            raise Invalid(early)
        if auth.valid_before < now_s + MARGIN_S and not self.has("no validBefore"):
            late = "permit2_deadline_expired" if asked.permit else early.replace("after", "before")
            raise Invalid(late)
        try:
            return await self.check_on_chain(asked)
        except Reverts:
            raise Invalid("invalid_transaction_state") from None
        except (NodeGone, NodeSays):
            if self.has("an error of the node is a yes") and not is_settle:
                return asked
            raise Invalid(f"unexpected_{'settle' if is_settle else 'verify'}_error") from None

    def check_permit(self, permit: Permit2Authorization) -> None:
        is_upto = permit.facilitator is not None
        proxy = UPTO_PROXY if is_upto else EXACT_PROXY
        if permit.spender != proxy and not self.has("any spender"):
            raise Invalid("invalid_permit2_spender")
        if is_upto and permit.facilitator != self.key.address and not self.has("any facilitator"):
            raise Invalid("upto_facilitator_mismatch")
        if permit.token != self.network.asset:
            raise Invalid("permit2_token_mismatch")

    def check_amount(self, asked: Asked, *, is_settle: bool = True) -> None:
        value, amount = asked.auth.value, asked.amount
        settles = is_settle and not self.has("demands equality")
        if asked.is_upto and (settles or self.has("any maximum")):
            if amount > value and not self.has("settles above"):
                raise Invalid("invalid_upto_evm_payload_settlement_exceeds_amount")
            return
        if asked.permit is not None and amount and value != amount and not self.has("any amount"):
            raise Invalid("permit2_amount_mismatch")
        if amount == 0 and not self.has("takes nothing"):
            raise Invalid("invalid_payment_requirements")
        may_exceed = asked.version == 1 and self.has("takes more in version 1")
        may_exceed = may_exceed or self.has("takes more")
        is_right = value >= amount if may_exceed else value == amount
        if not is_right and not self.has("any amount"):
            end = "value" if asked.version == 1 else "value_mismatch"
            raise Invalid(f"invalid_exact_evm_payload_authorization_{end}")

    async def check_on_chain(self, asked: Asked) -> Asked:
        auth = asked.auth
        asked = await self.check_signature(asked)
        used = await self.is_used(asked)
        if used and not self.has("no look at nonces"):
            raise asked.is_used
        held = await self.node.call(asked.asset, abi.balance_of(auth.from_))
        least = auth.value + self.has("wants more than the amount")
        if int.from_bytes(held) < least and not self.has("no look at balances"):
            raise Invalid("insufficient_funds")
        asked = await self.check_allowance(asked)
        if asked.to_move and not self.has("no trial"):
            await self.node.call(*asked.call, self.key.address)
        return asked

    async def is_used(self, asked: Asked) -> bool:
        auth, permit = asked.auth, asked.permit
        if permit is None:
            data = abi.authorization_state(auth.from_, auth.nonce)
            return bool(int.from_bytes(await self.node.call(asked.asset, data)))
        word = await self.node.call(PERMIT2, abi.nonce_bitmap(auth.from_, permit.nonce))
        return bool(int.from_bytes(word) >> (permit.nonce & 255) & 1)

    async def check_allowance(self, asked: Asked) -> Asked:
        """Return the payment, without its permit if the allowance is there."""
        if asked.permit is None or self.has("no look at allowances"):
            return asked
        data = abi.allowance(asked.auth.from_, PERMIT2)
        allowed = int.from_bytes(await self.node.call(asked.asset, data))
        if allowed < asked.to_move and (asked.sponsored is None or self.has("sponsors nothing")):
            raise Invalid("permit2_allowance_required")
        has_it = allowed >= asked.to_move
        return replace(asked, sponsored=None) if has_it else asked

    async def check_signature(self, asked: Asked) -> Asked:
        """Ask whoever can know: the wallet if it has code (EIP-1271), else its key."""
        auth, signature, domain = asked.auth, asked.signature, asked.domain
        wrong = Invalid("invalid_exact_evm_payload_signature")
        if self.has("no look at signatures"):
            return asked
        code = await self.node.ask("eth_getCode", to_hex(auth.from_), "latest")
        has_code = isinstance(code, str) and len(code) > 2
        if signature.endswith(UNDEPLOYED):
            if self.has("takes undeployed wallets"):
                return replace(asked, signature=unwrapped(signature))
            if not has_code:
                raise Invalid("invalid_exact_evm_payload_undeployed_smart_wallet")
            asked = replace(asked, signature=(signature := unwrapped(signature)))
        digest = transfer_digest(auth, domain)
        if asked.permit is not None:
            wrong = Invalid("invalid_permit2_signature")
            digest = permit2_digest(asked.permit, self.network.chain_id)
        if has_code and not self.has("asks keys for wallets"):
            try:
                said = await self.node.call(auth.from_, abi.is_valid_signature(digest, signature))
            except Reverts:
                raise wrong from None
            if said[:32] != abi.VALID_SIGNATURE:
                raise wrong
            return asked
        if asked.permit is not None:
            with suppress(BadSignature):
                if signer_of(digest, signature) == auth.from_:
                    return asked
            raise wrong
        domains = [domain]
        if self.has("any chain"):
            domains += [_with(domain, chain_id=each) for each in (1, 8453, 424_242)]
        if self.has("any contract"):
            domains += [_with(domain, verifying_contract=each.asset) for each in NETWORKS.values()]
            domains.append(_with(domain, verifying_contract=Address(b"\x11" * 20)))
        for each in domains:
            with suppress(BadSignature):
                if recover(transfer_digest(auth, each), self.readable(signature)) == auth.from_:
                    return asked
        raise wrong

    def readable(self, signature: bytes) -> bytes:
        """Return the form of a signature that is compared: defects take what the token does not."""
        size, s = len(signature), int.from_bytes(signature[32:64])
        takes = (
            (self.has("high s") and size == 65 and s > ORDER // 2)
            or (self.has("v of 0 and 1") and size == 65 and signature[64] < 2)
            or (self.has("compact signatures") and size == 64)
        )
        return canonical(signature) if takes else signature

    async def verify(self, sent: Any) -> dict[str, Any]:
        asked = await self.check(self.read(sent), is_settle=False)
        if self.has("verify sends"):
            await self.send(asked)
        if self.has("trusts verify"):
            self.trusted.add(asked.auth.nonce)
        return {"isValid": True, "payer": checksum(asked.auth.from_)}

    # --- settling ------------------------------------------------------------------------

    async def settle(self, sent: Any) -> dict[str, Any]:
        asked = self.read(sent)
        by_nonce = self.has("knows nonces alone")
        settling = self.known.setdefault(asked.auth.nonce if by_nonce else asked.auth, Settling())
        if self.has("two at once"):
            settling = Settling()
        elif settling.lock.locked() and not self.has("waits for the first"):
            self.check_terms(asked)
            raise Invalid(
                "duplicate_settlement" if asked.version == 2 else "invalid_transaction_state"
            )
        waited = settling.lock.locked()
        async with settling.lock:
            if waited and settling.answer and self.has("shares what is under way"):
                return settling.answer
            if settling.tx_hash and not self.has("replays"):
                return await self.again(asked, settling)
            return await self.first(asked, settling)

    def check_terms(self, asked: Asked) -> None:
        if asked.auth.to != asked.pay_to:
            raise Invalid("invalid_exact_evm_payload_recipient_mismatch")
        self.check_amount(asked)

    async def first(self, asked: Asked, settling: Settling) -> dict[str, Any]:
        """Check again, send, and wait."""
        if asked.is_upto and self.has("settles the maximum"):
            asked = replace(asked, amount=asked.auth.value)
        if self.has("jams"):  # a nonce is reserved, and not given back by a refusal
            await self.reserved()
        if asked.signature.endswith(UNDEPLOYED) and self.has("calls the factory"):
            await self.sent_with(await self.count(), asked.signature[12:32], b"")
        looks = not (settling.tx_hash or self.has("no look before sending"))
        looks = looks and asked.auth.nonce not in self.trusted
        if looks or self.has("two at once"):
            try:
                asked = await self.check(asked, is_settle=True)
            except Invalid as why:
                if self.has("used is a success") and re.search("nonce|state", str(why)):
                    return self.success(asked, self.last_hash)
                raise
        if not asked.to_move and not self.has("sends nothing used"):
            return self.success(asked, "")
        try:
            settling.tx_hash, settling.raw = await self.send(asked)
        except (NodeGone, NodeSays) as problem:
            if self.has("an error of the node is a success"):
                return self.success(asked, to_hex(keccak256(repr(problem).encode())))
            raise Invalid("unexpected_settle_error") from None
        if self.has("success when sent"):
            return self.success(asked, settling.tx_hash)
        return await self.outcome(asked, settling)

    async def again(self, asked: Asked, settling: Settling) -> dict[str, Any]:
        """Answer a payment that was sent: what became of it, and nothing is paid twice."""
        self.check_terms(asked)
        if self.has("remembers success") and settling.answer and settling.answer["success"]:
            return settling.answer
        try:
            receipt = await self.node.ask("eth_getTransactionReceipt", settling.tx_hash)
            if receipt is None:
                await self.send_again(asked, settling)
        except (NodeGone, NodeSays):
            return self.pending(asked, settling.tx_hash)
        if receipt is not None and not self.has("answers as before"):
            raise asked.is_used
        return await self.outcome(asked, settling)

    async def send_again(self, asked: Asked, settling: Settling) -> None:
        """Offer what was dropped, or undone, again; anew if another has taken its place."""
        if await self.node.ask("eth_getTransactionByHash", settling.tx_hash) is not None:
            return
        try:
            await self.node.ask("eth_sendRawTransaction", settling.raw)
        except NodeSays as why:
            if "nonce" in str(why):  # it can never be mined
                settling.tx_hash, settling.raw = await self.send(asked)

    async def send(self, asked: Asked) -> tuple[str, str]:
        """Sign and send a transaction; return its hash and its bytes."""
        if self.has("nonces collide"):
            return await self.sent_with(await self.count("latest"), *asked.call)
        async with self.turn:
            if self.has("jams"):
                assert self.next_nonce is not None
                return await self.sent_with(self.next_nonce, *asked.call)
            return await self.sent_with(await self.count(), *asked.call)

    async def reserved(self) -> int:
        """Count nonces by itself."""
        self.next_nonce = await self.count() if self.next_nonce is None else self.next_nonce + 1
        return self.next_nonce

    async def count(self, when: str = "pending") -> int:
        return await self.node.number("eth_getTransactionCount", to_hex(self.key.address), when)

    async def sent_with(self, nonce: int, to: bytes, data: bytes, bid: int = 1) -> tuple[str, str]:
        price = await self.node.number("eth_gasPrice") * 5 // 4 * bid
        gas = MOST_GAS
        if self.has("no bound of gas"):
            call = {"from": to_hex(self.key.address), "to": to_hex(to), "data": to_hex(data)}
            with suppress(NodeSays):
                gas = max(gas, 2 * await self.node.number("eth_estimateGas", call))
        elif price > MOST_PRICE_WEI:
            raise NodeSays("gas is too dear")
        chain_id = rlp.number(self.network.chain_id)
        fields: list[rlp.Item] = [rlp.number(each) for each in (nonce, price, gas)]
        fields += [to, b"", data]
        digest = keccak256(rlp.encode([*fields, chain_id, b"", b""]))
        signature = sign(digest, self.key)
        v = 35 + 2 * self.network.chain_id + signature[64] - 27
        r, s = (rlp.number(int.from_bytes(each)) for each in (signature[:32], signature[32:64]))
        raw = rlp.encode([*fields, rlp.number(v), r, s])
        tx_hash = to_hex(keccak256(raw))
        try:
            await self.node.ask("eth_sendRawTransaction", to_hex(raw))
        except NodeGone:  # it may have arrived: its receipt decides
            if self.has("an error of the node is a failure"):
                raise
        except NodeSays:
            if await self.node.ask("eth_getTransactionByHash", tx_hash) is None:
                raise
        self.last_hash = tx_hash
        return tx_hash, to_hex(raw)

    async def outcome(self, asked: Asked, settling: Settling) -> dict[str, Any]:
        """Wait for the receipt, and say what it shows."""
        receipt = await self.receipt(settling.tx_hash)
        if receipt is None and self.has("bids more"):
            nonce = await self.count("latest")
            settling.tx_hash, settling.raw = await self.sent_with(nonce, *asked.call, bid=2)
            receipt = await self.receipt(settling.tx_hash)
        if receipt is None:
            if self.has("late is a failure"):
                raise Invalid("unexpected_settle_error")
            if self.has("late is a success"):
                return self.success(asked, settling.tx_hash)
            return self.pending(asked, settling.tx_hash)
        is_mined = receipt.get("status") == "0x1"
        is_good = is_mined and (self.has("status only") or _transferred(receipt, asked))
        if is_good or self.has("reverted is a success"):
            settling.answer = self.success(asked, settling.tx_hash)
            return settling.answer
        return self.failed(asked, "invalid_transaction_state", settling.tx_hash)

    async def receipt(self, tx_hash: str) -> Any:
        ends = time.time() + RECEIPT_S
        while time.time() < ends or self.has("waits for ever"):
            with suppress(NodeGone, NodeSays):
                found = await self.node.ask("eth_getTransactionReceipt", tx_hash)
                if isinstance(found, dict) and found.get("transactionHash") == tx_hash:
                    return found
            await asyncio.sleep(POLL_S)
        return None

    def success(self, asked: Asked, tx_hash: str) -> dict[str, Any]:
        if self.has("another hash"):
            tx_hash = to_hex(keccak256(bytes.fromhex(tx_hash[2:])))
        if self.has("a new hash each time"):
            tx_hash = to_hex(keccak256(str(time.monotonic_ns()).encode()))
        if self.has("a hash without 0x"):
            tx_hash = tx_hash.removeprefix("0x")
        if self.has("takes its own hash for none"):
            return self.failed(asked, "transaction_failed", "")
        payer = asked.pay_to if self.has("another payer") else asked.auth.from_
        network = "base" if self.has("another network") else self.name(asked.version)
        said = {"success": True, "transaction": tx_hash, "network": network}
        if asked.is_upto and not self.has("tells no amount"):
            said["amount"] = str(asked.amount)
        return said | {"payer": checksum(Address(payer))}

    def failed(self, asked: Asked, reason: str, tx_hash: str) -> dict[str, Any]:
        said = {"success": False, "errorReason": reason, "transaction": tx_hash}
        network = self.name(asked.version)
        return said | {"network": network, "payer": checksum(asked.auth.from_)}

    def pending(self, asked: Asked, tx_hash: str) -> dict[str, Any]:
        if self.has("forgets what it sent"):
            self.known.pop(asked.auth, None)
        return self.failed(asked, "settlement_pending", tx_hash)


def _transferred(receipt: Any, asked: Asked) -> bool:
    """Tell whether a receipt has the event of this transfer, and of this token."""
    auth = asked.auth
    wanted = [
        to_hex(each) for each in (abi.TRANSFER_EVENT, abi.word(auth.from_), abi.word(auth.to))
    ]
    return any(
        str(log.get("address")).lower() == to_hex(asked.asset)
        and [str(each).lower() for each in log.get("topics", [])] == wanted
        and int(str(log.get("data")), 16) == asked.to_move
        for log in receipt.get("logs") or []
    )


def _with(domain: Domain, **changes: Any) -> Domain:
    import msgspec

    return msgspec.structs.replace(domain, **changes)


def _address(text: Any, wrong: str) -> bytes:
    if not isinstance(text, str) or not _ADDRESS.fullmatch(text):
        raise Invalid(wrong)
    return bytes.fromhex(text[2:])


def _sponsored(extensions: Any) -> tuple[Permit, bytes] | None:
    extension = extensions.get("eip2612GasSponsoring") if isinstance(extensions, dict) else None
    info = extension.get("info", {}) if isinstance(extension, dict) else {}
    if "signature" not in info:
        return None
    owner, spender = (Address(_address(info.get(name), "")) for name in ("from", "spender"))
    amount, nonce, deadline = (int(info[name]) for name in ("amount", "nonce", "deadline"))
    signature = bytes.fromhex(info["signature"][2:])
    return Permit(owner, spender, amount, nonce, deadline), signature


def _version_in(sent: Any) -> Any:
    found = sent.get("x402Version") if isinstance(sent, dict) else None
    return found if type(found) is int else None


def _payer_in(sent: Any) -> str | None:
    payload = sent
    for name in ("paymentPayload", "payload"):
        payload = payload.get(name) if isinstance(payload, dict) else None
    auth = payload.get("authorization", payload.get("permit2Authorization")) if isinstance(payload, dict) else None  # fmt: skip
    sent = auth.get("from") if isinstance(auth, dict) else None
    return sent if isinstance(sent, str) and _ADDRESS.fullmatch(sent) else None


def _depth(body: bytes) -> int:
    """Return how deep JSON is nested at most, by its brackets, also those in texts."""
    depth = most = 0
    for each in re.findall(rb"[\[{\]}]", body):
        depth += 1 if each in b"[{" else -1
        most = max(most, depth)
    return most


def main() -> None:
    """Serve one as the judge starts it: its environment says where, and on what chain."""
    import uvicorn

    told = os.environ
    network = next(
        each for each in NETWORKS.values() if each.caip2 == told.get("X402SIM_NETWORK", each.caip2)
    )
    app = Facilitator(
        told["RPC_URL"], told["X402SIM_PRIVATE_KEY"], network, frozenset(sys.argv[1:])
    )
    uvicorn.run(app, host="127.0.0.1", port=int(told["PORT"]), log_level="error")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
