"""The extension erc20ApprovalGasSponsoring: the payer signs a transaction that approves Permit2,
and the facilitator broadcasts the transaction before the settlement.

The facilitator sends the payer what the payer lacks for the gas. The two or three transactions
follow each other, and are no bundle: a payer who spends the gas meanwhile costs the facilitator
this gas, and nothing else. Whoever has an allowance needs no approval, so a settlement that is
repeated broadcasts nothing again.
"""

from typing import Any

import msgspec

from x402sim.chain.base import GAS_LIMIT, Call, ChainError, ChainUnavailable, Reverted
from x402sim.facilitator.engine import Facilitator, Refused
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, from_hex
from x402sim.protocol.messages import Wire
from x402sim.protocol.money import parse_base
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import APPROVAL
from x402sim.protocol.raw_transaction import SignedTransaction, read
from x402sim.protocol.rules import Rule, Rules, first_broken

FORMAT = "invalid_erc20_approval_extension_format"
TX_FAILED = "erc20_approval_tx_failed"
BROADCAST_FAILED = "erc20_approval_broadcast_failed"
FEES, TIP_WEI = 4, 4 * 10**9
"""The most that a payer is sent for a unit of gas: so many base fees, and this tip."""


class Info(Wire, frozen=True):
    """The `info` of the extension in a payment."""

    from_: str = msgspec.field(name="from")
    asset: str
    spender: str
    amount: str
    signed_transaction: str
    version: str


class Approval(msgspec.Struct, frozen=True):
    """A signed approval of a payer, for the token of the requirements."""

    info: Info
    tx: SignedTransaction
    payer: Address
    token: Address

    @property
    def data(self) -> bytes:
        """The calldata that the extension tells."""
        return abi.approve(PERMIT2, parse_base(self.info.amount))


_RULES: Rules[Approval, str] = (
    Rule("erc20/from", lambda c: _is(c.info.from_, c.payer), "erc20_approval_from_mismatch"),
    Rule("erc20/asset", lambda c: _is(c.info.asset, c.token), "erc20_approval_asset_mismatch"),
    Rule(
        "erc20/spender",
        lambda c: _is(c.info.spender, PERMIT2),
        "erc20_approval_spender_not_permit2",
    ),
    Rule("erc20/signer", lambda c: c.tx.sender == c.payer, "erc20_approval_tx_signer_mismatch"),
    Rule("erc20/target", lambda c: c.tx.to == c.token, "erc20_approval_tx_wrong_target"),
    Rule(
        "erc20/function",
        lambda c: c.tx.data[:4] == abi.APPROVE,
        "erc20_approval_tx_wrong_selector",
    ),
    Rule(
        "erc20/permit2",
        lambda c: c.tx.data[4:36] == abi.word(PERMIT2),
        "erc20_approval_tx_wrong_spender",
    ),
    Rule(
        "erc20/calldata",
        lambda c: c.tx.data == c.data and not c.tx.value and not c.tx.delegations,
        "erc20_approval_tx_invalid_calldata",
    ),
)
"""The rules of the extension in the order of the public libraries."""


def _is(text: str, account: Address) -> bool:
    return text.lower() == checksum(account).lower()


def read_approval(
    extensions: dict[str, Any] | None, payer: Address, token: Address
) -> Approval | None:
    """Return the approval in a payment's extensions; raises `Refused`."""
    extension = (extensions or {}).get(APPROVAL)
    told = extension.get("info") if isinstance(extension, dict) else None
    if not isinstance(told, dict) or "signedTransaction" not in told:  # the offer, sent back
        return None
    try:
        info = msgspec.convert(told, Info)
        parse_base(info.amount)
    except ValueError as wrong:
        raise Refused(FORMAT, f"{APPROVAL}: {wrong}") from None
    try:
        raw = info.signed_transaction
        tx = read(from_hex(raw, len(raw) // 2 - 1))
    except ValueError as wrong:
        raise Refused("erc20_approval_tx_parse_failed", f"{APPROVAL}: {wrong}") from None
    approval = Approval(info, tx, payer, token)
    if broken := first_broken(_RULES, approval):
        raise Refused(broken.refusal, f"{APPROVAL}: {broken.clause}")
    return approval


async def missing_wei(facilitator: Facilitator, approval: Approval) -> int:
    """Return what the payer lacks for the gas, in wei; raises `Refused` if the chain would not take
    the approval now, and `ChainUnavailable`.
    """
    chain, tx = facilitator.chain, approval.tx
    try:
        await chain.call(Call(tx.sender, approval.token, tx.data))
        nonce = await chain.account_nonce(tx.sender)
        held_wei = await chain.native_balance(tx.sender)
        head = await chain.block(await chain.height())
    except Reverted as reverted:
        raise Refused(TX_FAILED, str(reverted)) from None
    except ChainError as unknown:
        raise ChainUnavailable(f"the approval cannot be tried: {unknown}") from None
    chain_id, fee_wei = facilitator.network.chain_id, head.base_fee_wei if head else 0
    lacks_wei = max(tx.gas_limit * tx.max_fee_wei - held_wei, 0)
    most_wei = GAS_LIMIT * (FEES * fee_wei + TIP_WEI)
    for is_wrong, told in (
        (tx.chain_id != chain_id, f"chain id: wanted {chain_id}, got {tx.chain_id}"),
        (tx.nonce != nonce, f"nonce: wanted {nonce}, got {tx.nonce}"),
        (tx.max_fee_wei < fee_wei, f"fee: wanted at least {fee_wei} wei, got {tx.max_fee_wei}"),
        (
            lacks_wei > most_wei,
            f"gas: the payer lacks {lacks_wei} wei, gets at most {most_wei}",
        ),
    ):
        if is_wrong:
            raise Refused(TX_FAILED, f"the approval's {told}")
    return lacks_wei


async def broadcast(facilitator: Facilitator, approval: Approval, lacks_wei: int) -> None:
    """Send the payer the missing gas, then the approval, and wait for both; raises `Refused` unless
    the approval is mined.
    """
    chain, tx, wait_s = facilitator.chain, approval.tx, facilitator.settings.receipt_timeout_s
    try:
        if lacks_wei:
            gift = Call(facilitator.account, tx.sender, b"", lacks_wei)
            await chain.wait(await chain.send(gift), wait_s)
        receipt = await chain.wait(await chain.send_signed(tx.raw), wait_s)
    except TimeoutError:
        told = f"the approval is not mined after {wait_s:g} s; settle the same payment again"
        raise Refused(BROADCAST_FAILED, told) from None
    except ChainError as error:
        raise Refused(BROADCAST_FAILED, f"the approval was not sent: {error}") from None
    if receipt.revert_reason is not None:
        raise Refused(TX_FAILED, receipt.revert_reason, receipt.tx_hash)
