"""Permit2 and both x402 proxies on the ledger, by selector: transfers of one token by signature,
nonces as bits of words, and settle of `exact` and `upto`.

The ledger runs no code. Checks have the contracts' order, and reverts their names. A function that
is not here (Permit2's own allowances, and several tokens in one message) reverts without data.
"""

from collections.abc import Callable

import msgspec

from x402sim.chain.base import Call, Reverted
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import (
    OUT_OF_GAS,
    Arguments,
    Event,
    Execution,
    Frame,
    Token,
    call_other,
)
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.ledger.token import run as run_token
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, BadSignature, keccak256
from x402sim.protocol.eip3009 import Permit
from x402sim.protocol.permit2 import (
    CONTRACTS,
    EXACT_PROXY,
    EXACT_WITNESS,
    PERMIT2,
    TRANSFER_STUB,
    TRANSFER_TYPEHASH,
    UPTO_PROXY,
    UPTO_WITNESS,
    Permit2Authorization,
    permit2_digest,
    separator,
    signer_of,
    typed_digest,
    witness_type_string,
)

NOT_TRANSFERRED = "TRANSFER_FROM_FAILED"
"""Permit2's revert for any reason of the token."""


class Running(msgspec.Struct, gc=False):
    """One running call of these contracts: events with their contract, and gas so far."""

    token: Token
    state: LedgerState
    call: Call
    now_s: int
    gas_used: int = gas.PERMIT2_ENTERED
    refund: int = 0
    logs: list[Event] = []
    allowed_before: int | None = None
    """The payer's allowance before a permit in this call."""

    def emit(self, event: bytes, *indexed: bytes, data: bytes = b"") -> None:
        """Emit an event of the called contract."""
        topics = (event, *[each.rjust(32, b"\0") for each in indexed])
        self.logs.append((self.call.to, topics, data))

    def least(self) -> int:
        """Return the gas that the accepted call needs: each of three inner calls is lent 63/64."""
        return self.gas_used + self.gas_used // 20

    def run_token(self, sender: Address, data: bytes) -> None:
        """Run a call of the token; a refusal changes nothing. Raises `Reverted`."""
        call = Call(sender, self.token.network.asset, data)
        frame = Frame(self.token, self.state, call, self.now_s)
        mark = self.state.mark()
        try:
            run_token(frame)
        except Reverted as reverted:
            self.state.undo(mark)
            self.gas_used += frame.refused(str(reverted), frame.gas_used + gas.TRANSACTION)[1]
            raise
        self.gas_used += frame.gas_used
        self.refund += frame.refund
        self.logs += frame.logs

    def transfer(self, token: Address, owner: Address, to: Address, amount_base: int) -> None:
        """Move tokens by the owner's allowance to Permit2; raises `Reverted`."""
        data = abi.calldata(abi.TRANSFER_FROM, owner, to, amount_base)
        self.gas_used += gas.PERMIT2_TOKEN
        try:
            if token == self.token.network.asset:
                allowed_base = self.state.allowances.get((owner, PERMIT2), 0)
                if self.allowed_before is not None:
                    self.gas_used += gas.PERMITTED_BEFORE
                self.run_token(PERMIT2, data)
                if self.allowed_before is not None and self.allowed_before != allowed_base:
                    # the second write, as a permit has changed it, was charged for a first one
                    self.gas_used += gas.REWRITTEN
                    if allowed_base - amount_base == self.allowed_before:
                        self.refund += gas.RESTORED if self.allowed_before else gas.NOTHING_AGAIN
                return
            answer = call_other(self.state, token, data)
        except Reverted:
            raise Reverted(NOT_TRANSFERRED) from None
        if answer and answer[:32] != abi.word(1):
            raise Reverted(NOT_TRANSFERRED)

    def take(
        self, auth: Permit2Authorization, amount_base: int, digest: bytes, signature: bytes
    ) -> None:
        """Use the nonce, and move the tokens of a signed message; raises `Reverted`."""
        if self.now_s > auth.deadline:
            raise Reverted(f"SignatureExpired({auth.deadline})")
        if amount_base > auth.amount:
            raise Reverted(f"InvalidAmount({auth.amount})")
        word, bit = (auth.from_, auth.nonce >> 8), 1 << (auth.nonce & 255)
        used = self.state.nonce_bitmaps.get(word, 0)
        if used & bit:
            raise Reverted("InvalidNonce()")
        self.state.put(self.state.nonce_bitmaps, word, used | bit)
        self.gas_used += gas.PERMIT2_SIGNED + (gas.CHANGED_WORD if used else gas.NEW_WORD)
        self._require_signed(auth.from_, digest, signature)
        self.transfer(auth.token, auth.from_, auth.to, amount_base)

    def _require_signed(self, owner: Address, digest: bytes, signature: bytes) -> None:
        if owner in self.state.codes:
            answer = call_other(self.state, owner, abi.is_valid_signature(digest, signature))
            if len(answer) < 32:
                raise Reverted("")
            if answer[:32] != abi.VALID_SIGNATURE:
                raise Reverted("InvalidContractSignature()")
            return
        try:
            signer = signer_of(digest, signature)
        except BadSignature as bad:
            raise Reverted(f"{bad}()") from None
        if signer != owner:
            raise Reverted("InvalidSigner()")


# --- arguments ------------------------------------------------------------------------

Run = Callable[[Running, Arguments], bytes]


def _address(arguments: Arguments, position: int) -> Address:
    """Return an argument as an address; today's compilers refuse unused bits."""
    word = arguments.bytes32(position)
    if any(word[:12]):
        raise Reverted("")
    return Address(word[12:])


def _permitted(
    arguments: Arguments, first: int, owner: int, to: int, spender: Address, **witness: Address
) -> Permit2Authorization:
    """Return an authorization from the positions of the message, the owner and the payee; the time
    of a witness follows the last address.
    """
    return Permit2Authorization(
        token=_address(arguments, first),
        amount=arguments.uint(first + 1),
        nonce=arguments.uint(first + 2),
        deadline=arguments.uint(first + 3),
        from_=_address(arguments, owner),
        spender=spender,
        to=_address(arguments, to),
        valid_after=arguments.uint(to + 1 + len(witness)),
        **witness,
    )


# --- the proxies ----------------------------------------------------------------------


def _settle(upto: bool, sponsored: bool) -> Run:
    """Return settle or, `sponsored`, settleWithPermit of the proxy of a scheme."""

    def run(running: Running, arguments: Arguments) -> bytes:
        first = 5 if sponsored else 0
        owner = first + 4 + upto
        facilitator = {"facilitator": _address(arguments, owner + 2)} if upto else {}
        spender = UPTO_PROXY if upto else EXACT_PROXY
        auth = _permitted(arguments, first, owner, owner + 1, spender, **facilitator)
        amount_base = arguments.uint(first + 4) if upto else auth.amount
        signature = arguments.tail(owner + 3 + upto)
        if amount_base > auth.amount:
            raise Reverted("AmountExceedsPermitted()")
        if auth.facilitator not in (None, running.call.sender):
            raise Reverted("UnauthorizedFacilitator()")
        if sponsored:
            _permit(running, arguments, auth)
        for is_wrong, error in (
            (not amount_base, "InvalidAmount"),
            (auth.from_ == ZERO_ADDRESS, "InvalidOwner"),
            (auth.to == ZERO_ADDRESS, "InvalidDestination"),
            (running.now_s < auth.valid_after, "PaymentTooEarly"),
        ):
            if is_wrong:
                raise Reverted(f"{error}()")
        digest = permit2_digest(auth, running.token.network.chain_id)
        running.gas_used += gas.PERMIT2_CALLED
        running.take(auth, amount_base, digest, signature)
        running.emit(abi.SETTLED_WITH_PERMIT if sponsored else abi.SETTLED)
        return b""

    return run


def _permit(running: Running, arguments: Arguments, auth: Permit2Authorization) -> None:
    """Try the payer's EIP-2612 permit for Permit2; only an event tells of a failure."""
    value, deadline_s = arguments.uint(0), arguments.uint(1)
    r, s, v = arguments.bytes32(2), arguments.bytes32(3), arguments.uint(4)
    if v > 255:
        raise Reverted("")
    if value != auth.amount:
        raise Reverted("Permit2612AmountMismatch()")
    if not running.state.codes.get(auth.token):
        raise Reverted("")
    reason = ""
    if auth.token == running.token.network.asset:
        permit = Permit(auth.from_, PERMIT2, value, 0, deadline_s)
        allowed_base = running.state.allowances.get((auth.from_, PERMIT2), 0)
        try:
            running.run_token(running.call.to, abi.permit(permit, r + s + bytes([v])))
            running.allowed_before = allowed_base
            return
        except Reverted as reverted:
            reason = str(reverted)
            running.gas_used += gas.PERMIT_REFUSED
    event, data = abi.PERMIT_FAILED_WITH_DATA, abi.text("")
    if reason:
        event, data = abi.PERMIT_FAILED, abi.text(reason)
    running.emit(event, auth.token, auth.from_, data=data)


# --- Permit2 --------------------------------------------------------------------------


def _transfer(running: Running, arguments: Arguments) -> bytes:
    """Move tokens for the caller, whom the owner has named as the spender."""
    auth = _permitted(arguments, 0, 6, 4, running.call.sender)
    digest = typed_digest(running.token.network.chain_id, TRANSFER_TYPEHASH, auth)
    running.take(auth, arguments.uint(5), digest, arguments.tail(7))
    return b""


def _witness_transfer(running: Running, arguments: Arguments) -> bytes:
    auth = _permitted(arguments, 0, 6, 4, running.call.sender)
    typehash = keccak256(TRANSFER_STUB.encode() + arguments.tail(8))
    witness = arguments.bytes32(7)
    digest = typed_digest(running.token.network.chain_id, typehash, auth, witness)
    running.take(auth, arguments.uint(5), digest, arguments.tail(9))
    return b""


def _invalidate(running: Running, arguments: Arguments) -> bytes:
    """Use up nonces of the caller: the bits of a mask, in one word."""
    word, mask = arguments.uint(0), arguments.uint(1)
    key, bitmaps = (running.call.sender, word), running.state.nonce_bitmaps
    used = bitmaps.get(key, 0)
    running.state.put(bitmaps, key, used | mask)
    running.gas_used += gas.CHANGED_WORD if used else gas.NEW_WORD
    running.emit(abi.NONCES_INVALIDATED, running.call.sender, data=abi.word(word, mask))
    return b""


def _bitmap(running: Running, arguments: Arguments) -> bytes:
    key = _address(arguments, 0), arguments.uint(1)
    return abi.word(running.state.nonce_bitmaps.get(key, 0))


def _proxy(upto: bool) -> dict[bytes, Run]:
    kind = UPTO_WITNESS if upto else EXACT_WITNESS
    settle, with_permit = abi.SETTLE_EXACT, abi.SETTLE_EXACT_WITH_PERMIT
    if upto:
        settle, with_permit = abi.SETTLE_UPTO, abi.SETTLE_UPTO_WITH_PERMIT
    return {
        settle: _settle(upto, sponsored=False),
        with_permit: _settle(upto, sponsored=True),
        abi.selector("PERMIT2()"): lambda *_: abi.word(PERMIT2),
        abi.selector("WITNESS_TYPEHASH()"): lambda *_: keccak256(kind.encode()),
        abi.selector("WITNESS_TYPE_STRING()"): lambda *_: abi.text(witness_type_string(kind)),
    }


FUNCTIONS: dict[Address, dict[bytes, Run]] = {
    EXACT_PROXY: _proxy(upto=False),
    UPTO_PROXY: _proxy(upto=True),
    PERMIT2: {
        abi.PERMIT_TRANSFER_FROM: _transfer,
        abi.PERMIT_WITNESS_TRANSFER_FROM: _witness_transfer,
        abi.INVALIDATE_NONCES: _invalidate,
        abi.NONCE_BITMAP: _bitmap,
        abi.DOMAIN_SEPARATOR: lambda running, _: separator(running.token.network.chain_id),
    },
}
"""The functions of each contract, by selector."""


def run(running: Running) -> bytes:
    """Run one call; return its result. Raises `Reverted`."""
    call = running.call
    function = FUNCTIONS[call.to].get(call.data[:4])
    if function is None or call.value:
        raise Reverted("")
    return function(running, Arguments(call.data[4:]))


def called(
    token: Token, state: LedgerState, call: Call, now_s: int
) -> tuple[bytes, Frame | Running | None]:
    """Run a call of any contract but Multicall3. Return the result, and of the token and of these
    contracts the frame; raises `Reverted`.
    """
    if call.to == token.network.asset:
        frame = Frame(token, state, call, now_s)
        return run_token(frame), frame
    if call.to in CONTRACTS:
        running = Running(token, state, call, now_s)
        return run(running), running
    return call_other(state, call.to, call.data), None


def execute(running: Running, left: int, *, is_forced: bool) -> Execution:
    """Run a transaction's call with the gas that is left; a forced revert does nothing else."""
    mark = running.state.mark()
    try:
        if is_forced:
            raise Reverted(NOT_TRANSFERRED)
        run(running)
        if running.least() > left:
            raise Reverted(OUT_OF_GAS)
    except Reverted as reverted:
        running.state.undo(mark)
        if str(reverted) == OUT_OF_GAS or running.gas_used > left:
            return Execution(left, OUT_OF_GAS)
        return Execution(running.gas_used, str(reverted))
    return Execution(running.gas_used, None, running.refund, running.logs)
