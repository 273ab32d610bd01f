"""A wallet: a key, which signs EIP-3009 authorizations and messages of Permit2.

Clauses: 2.3/hex-header, 2.3/contents, 2.3/window, 8/validity-window.
"""

import hmac
from collections.abc import Callable
from contextlib import suppress
from secrets import token_bytes
from typing import TYPE_CHECKING, Protocol

from x402sim.protocol.crypto import (
    Address,
    PrivateKey,
    checksum,
    parse_address,
    sign,
    to_hex,
)
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    Authorization,
    Domain,
    Permit,
    cancel_digest,
    permit_digest,
    transfer_digest,
)
from x402sim.protocol.header import Spelling, encode_header
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.money import parse_base
from x402sim.protocol.networks import TESTNET, Network
from x402sim.protocol.permit2 import Permit2Authorization, permit2_digest

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

BEFORE_SIGNING_S = 60
AFTER_SIGNING_S = 300


class HasKey(Protocol):
    """An account of eth-account, or anything else with a 32-byte `key`."""

    @property
    def key(self) -> bytes:
        """The private key."""


class Wallet:
    """A payer's key. A wallet signs, never sends a transaction, and needs no gas."""

    def __init__(
        self,
        private_key: str | bytes | HasKey,
        *,
        nonces: Callable[[], bytes] = lambda: token_bytes(32),
    ) -> None:
        """Take a private key as 0x-hex, as 32 bytes, or as an eth-account account.

        `nonces` draws the 32-byte authorization nonces; a simulation passes its own. Raises
        `ValueError` for an invalid private key.
        """
        raw = private_key if isinstance(private_key, str | bytes) else _key_of(private_key)
        self._key = PrivateKey(raw)
        self._nonces = nonces
        self.address_bytes = self._key.address

    @classmethod
    def create(cls) -> "Wallet":
        """Return a wallet with a new random key."""
        return cls(token_bytes(32))

    @classmethod
    def from_mnemonic(cls, words: str, index: int = 0) -> "Wallet":
        """Return account `index` of a BIP-39 phrase, on Ethereum's path m/44'/60'/0'/0/index.

        Raises `ValueError` for an invalid phrase, without showing any word of the phrase.
        """
        from eth_account import Account
        from eth_utils.exceptions import ValidationError

        Account.enable_unaudited_hdwallet_features()
        key = b""
        with suppress(ValidationError):  # the error's text would show the words
            account = Account.from_mnemonic(words, account_path=f"m/44'/60'/0'/0/{index}")
            key = bytes(account.key)
        if not key:
            raise ValueError(
                "a phrase is 12 to 24 words of BIP-39, and the last holds a checksum; got "
                f"{len(words.split())} words that are none"
            )
        return cls(key)

    def of_contract(self, account: str) -> "Wallet":
        """Return this key as the owner of a contract wallet at an address (EIP-1271).

        The key signs authorizations from the contract's address. Raises `ValueError`.
        """
        wallet = Wallet(self._key.secret, nonces=self._nonces)
        wallet.address_bytes = parse_address(account)
        return wallet

    @property
    def address(self) -> str:
        """The address, in its EIP-55 spelling."""
        return checksum(self.address_bytes)

    @property
    def private_key(self) -> str:
        """The private key as 0x-hex, which gives full control of the wallet."""
        return to_hex(self._key.secret)

    @property
    def account(self) -> "LocalAccount":
        """This key as an account of eth-account."""
        from eth_account import Account

        account: LocalAccount = Account.from_key(self._key.secret)
        return account

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def authorize(self, requirements: PaymentRequirements, now_s: int) -> Authorization:
        """Return an unsigned authorization for exactly these requirements.

        The window is the specification's: from 60 s before signing to 300 s after
        (2.3/window, 8/validity-window), or less if the requirements allow less. Raises
        `ValueError`.
        """
        lifetime_s = min(AFTER_SIGNING_S, requirements.max_timeout_seconds)
        return self.authorization(
            to=parse_address(requirements.pay_to),
            amount_base=parse_base(requirements.max_amount_required),
            valid_after=now_s - BEFORE_SIGNING_S,
            valid_before=now_s + lifetime_s,
        )

    def authorization(
        self, *, to: Address, amount_base: int, valid_after: int, valid_before: int
    ) -> Authorization:
        """Return an authorization with a new nonce, not signed yet; times in Unix seconds."""
        return Authorization(
            from_=self.address_bytes,
            to=to,
            value=amount_base,
            valid_after=valid_after,
            valid_before=valid_before,
            nonce=self._nonces(),
        )

    def permit2_authorization(
        self, spender: Address, token: Address, terms: Authorization, facilitator: Address | None
    ) -> Permit2Authorization:
        """Return the message of Permit2 with these terms, not signed yet: `spender` is a proxy, and
        may take at most the value, to the payee alone.
        """
        return Permit2Authorization(
            from_=terms.from_,
            token=token,
            amount=terms.value,
            spender=spender,
            nonce=int.from_bytes(terms.nonce),
            deadline=terms.valid_before - 1,  # the last second, not the first outside
            to=terms.to,
            valid_after=terms.valid_after,
            facilitator=facilitator,
        )

    def sign_permit2(self, auth: Permit2Authorization, chain_id: int) -> bytes:
        """Return the 65-byte signature of a message of Permit2 on one chain."""
        return sign(permit2_digest(auth, chain_id), self._key)

    def sign_permit(self, permit: Permit, domain: Domain) -> bytes:
        """Return the 65-byte signature of an EIP-2612 permit for one token."""
        return sign(permit_digest(permit, domain), self._key)

    def sign(self, auth: Authorization, domain: Domain, *, receive: bool = False) -> bytes:
        """Return the 65-byte signature of an authorization for one token.

        `receive` signs a ReceiveWithAuthorization, which only the payee may submit.
        """
        other = (RECEIVE_TYPEHASH,) if receive else ()
        return sign(transfer_digest(auth, domain, *other), self._key)

    def name_of(self, auth: Authorization) -> str:
        """Return a payment id that nobody else can derive from the chain: 16 bytes as hex."""
        secret = self._key.secret
        return f"pay_{hmac.digest(secret, b'payment-identifier' + auth.nonce, 'sha256').hex()[:32]}"

    def sign_cancellation(self, nonce: bytes, domain: Domain) -> bytes:
        """Return the 65-byte signature for cancelling a nonce of this wallet."""
        return sign(cancel_digest(self.address_bytes, nonce, domain), self._key)

    def payment_header(
        self,
        requirements: PaymentRequirements,
        now_s: int,
        *,
        network: Network = TESTNET,
        spelling: Spelling = "hex",
    ) -> str:
        """Return a signed payment header for these requirements (2.3/hex-header).

        Raises `ValueError` if the requirements name another network or a field cannot be read.
        """
        if requirements.network != network.name:
            raise ValueError(
                f"the requirements are for {requirements.network[:80]!r}, and the token of "
                f"{network.name!r} would be signed for: give their network as `network`"
            )
        auth = self.authorize(requirements, now_s)
        return encode_header(auth, self.sign(auth, network.domain), network, spelling)


def _key_of(account: object) -> bytes:
    """Return the key of an account of eth-account; an error shows only what class was given."""
    key = getattr(account, "key", None)
    if not hasattr(key, "__bytes__"):
        raise ValueError(
            "a private key is 0x and 64 hex digits, 32 bytes, or an account with a 32-byte `key`; "
            f"got an object of the class {type(account).__name__}"
        )
    return bytes(key)  # type: ignore[arg-type]
