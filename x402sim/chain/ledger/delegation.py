"""Accounts that use the code of another, by transactions of type 4 (EIP-7702)."""

from x402sim.chain.ledger import gas, wallets
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol.crypto import ZERO_ADDRESS
from x402sim.protocol.raw_transaction import SignedTransaction


def delegate(state: LedgerState, chain_id: int, signed: SignedTransaction) -> int:
    """Do what the delegations of a transaction say, before it runs; return the gas to refund.

    One that does not fit is passed over: of another chain, of nobody, with another nonce than its
    account has now, or of a contract.
    """
    refund = 0
    for each in signed.delegations:
        if (account := each.authority) is None or each.chain_id not in (0, chain_id):
            continue
        nonce, code = state.account_nonces.get(account, 0), state.codes.get(account, b"")
        if nonce != each.nonce or (code and code[:3] != wallets.DELEGATED):
            continue
        if nonce or code or state.native.get(account):
            refund += gas.DELEGATION_OF_KNOWN
        state.put(state.account_nonces, account, nonce + 1)
        following = max(nonce + 1, state.next_nonces.get(account, 0))
        state.put(state.next_nonces, account, following)
        if each.account != ZERO_ADDRESS:
            state.put(state.codes, account, wallets.DELEGATED + each.account)
        elif code:
            state.remove(state.codes, account)
    return refund
