"""A wrong setting is named, and no error shows a key, a phrase or a password."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.service.test_settings import ENV
from x402sim import Wallet
from x402sim.chain.base import ChainError
from x402sim.cli import app
from x402sim.protocol.crypto import ORDER, from_hex, parse_address, parse_key
from x402sim.service.environment import read_environment
from x402sim.suite.service.subject import parse
from x402sim.world.chains import keys_of

DIGITS = "5ec4e7" * 10 + "5ec4"
MALFORMED = {
    "without 0x": DIGITS,
    "a digit too few": "0x" + DIGITS[:-1],
    "a digit too many": "0x" + DIGITS + "5",
    "not hex": "0x" + DIGITS[:-1] + "g",
    "in quotation marks": f'"0x{DIGITS}"',
    "with a newline": f"0x{DIGITS}\n",
    "upper case 0X": "0X" + DIGITS,
    "two of them": f"0x{DIGITS},0x{DIGITS}",
    "with a blank": f"0x{DIGITS[:-2]} 5",
}
PHRASE = "test test test test test test test test test test test secret"


def _told(act: Callable[[], object]) -> str:
    """Return all that the error of a call shows: its text, its `repr` and its causes."""
    with pytest.raises((ValueError, ChainError)) as caught:
        act()
    error: BaseException | None = caught.value
    shown = [line for line in traceback.format_exception(caught.value) if '  File "' not in line]
    while error is not None:
        shown.append(repr(error))
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


READERS: dict[str, Callable[[str], object]] = {
    "Wallet": Wallet,
    "parse_key": parse_key,
    "from_hex": lambda key: from_hex(key, 32),
    "an address": parse_address,
    "PRIVATE_KEY": lambda key: read_environment({**ENV, "PRIVATE_KEY": key}),
    "MERCHANT_ADDRESS": lambda key: read_environment({**ENV, "MERCHANT_ADDRESS": key}),
    "TOKEN_ADDRESS": lambda key: read_environment({**ENV, "TOKEN_ADDRESS": key}),
    "X402SIM_CHAIN_KEYS": lambda key: keys_of((), {"X402SIM_CHAIN_KEYS": f"{key};"}),
    "Node(keys=)": lambda key: keys_of((f"{key};",), {}),
    "--payer-key": lambda key: parse("http://127.0.0.1:1", payer_key=key),
    "--pay-to": lambda key: parse("http://127.0.0.1:1", pay_to=key),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_error_shows_a_malformed_key(read: Callable[[str], object]) -> None:
    for how, key in MALFORMED.items():
        assert "5ec4e7" not in _told(lambda key=key: read(key)).lower(), how  # type: ignore[misc]


@pytest.mark.parametrize("words", [PHRASE, "secret " * 12, "secret", PHRASE + " zebra"])
def test_no_error_shows_a_phrase(words: str) -> None:
    told = _told(lambda: Wallet.from_mnemonic(words))
    assert "secret" not in told
    assert f"got {len(words.split())} words" in told


@pytest.mark.parametrize("key", ["", "0x12", b"", b"abc", None])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        Wallet(key)


@pytest.mark.parametrize("number", [0, ORDER, 2**256 - 1])
def test_a_number_that_is_no_key_is_refused(number: int) -> None:
    raw = number.to_bytes(32)
    for key in (raw, "0x" + raw.hex()):
        assert "a private key is a number above 0" in _told(lambda key=key: Wallet(key))  # type: ignore[misc]
    with pytest.raises(ChainError, match="X402SIM_CHAIN_KEYS"):
        keys_of((), {"X402SIM_CHAIN_KEYS": "0x" + raw.hex()})


@pytest.mark.clause("2.8/settings")
@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("PRIVATE_KEY", "0xabc", "0x and 64 hex digits, got 5 characters"),
        ("MERCHANT_ADDRESS", "foo", "0x and 40 hex digits, got 'foo'"),
        ("TOKEN_ADDRESS", "foo", "0x and 40 hex digits, got 'foo'"),
        ("NETWORK", "foo", "Possible: cronos-testnet, cronos-mainnet"),
        *(
            ("FINAL_DEPTH", wrong, f"a number from 0, not {wrong!r}")
            for wrong in ("-1", "1.5", "¹")
        ),
        ("FACILITATOR_URL", "foo", "a URL such as http://127.0.0.1:4020, got 'foo'"),
        ("EXPLORER_URL", "ftp://host/x", "got 'ftp://host'"),
        ("RPC_URL", "http://", "got 'http://'"),
        ("RPC_URL", "http://host:99999", "got 'http://host:99999'"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str, wanted: str) -> None:
    env: dict[str, Any] = {**ENV, name: value}
    done = CliRunner().invoke(app, ["service", "--port", "0"], env=env)
    assert done.exit_code == 2
    assert f"the environment variable {name}" in done.output
    assert wanted in done.output


@pytest.mark.parametrize("url", ["host/v2/5ec4e7", "//u:5ec4e7@host", "ws://host?key=5ec4e7"])
def test_no_error_shows_the_key_in_a_url(url: str) -> None:
    assert "5ec4e7" not in _told(lambda: read_environment({**ENV, "RPC_URL": url}))
