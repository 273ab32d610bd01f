"""SECURITY.md is true: its bounds are the code's, and no key is in a repr."""

from tests.house import ROOT
from x402sim import Wallet
from x402sim.http.bounded import Limits
from x402sim.payer.auth import DEADLINE_S
from x402sim.payer.flow import MAX_REDIRECTS
from x402sim.payer.wallet import AFTER_SIGNING_S
from x402sim.service.environment import Environment
from x402sim.serving.control.client import JOURNAL_ANSWER_BYTES, WORLD_ANSWER_BYTES

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
KEY = bytes(range(1, 33))
SETUP = Environment(private_key=KEY, facilitator_url="f", explorer_url="e", rpc_url="r")
SETTINGS = SETUP.settings


def test_the_bounds_are_those_of_the_code() -> None:
    """Limits for strangers have a separate table: `tests/serve/test_limits.py`."""
    of_others, of_world, of_journal = (
        size >> 20 for size in (Limits().max_answer_bytes, WORLD_ANSWER_BYTES, JOURNAL_ANSWER_BYTES)
    )
    assert f"decoded | {of_others} MiB (a setting, but not of the service)" in TEXT
    assert f"control API {of_world} MiB, its journal {of_journal} MiB |" in TEXT
    assert f"| {DEADLINE_S:g} s, {MAX_REDIRECTS} |" in TEXT
    assert f"authorization may be used | {AFTER_SIGNING_S} s |" in TEXT
    waits = (SETTINGS.verify_timeout_s, SETTINGS.settle_timeout_s, SETTINGS.explorer_timeout_s)
    assert "| {:g} s, {:g} s; {:g} s |".format(*waits) in TEXT


def test_no_key_is_in_a_repr() -> None:
    shown = repr(SETUP) + str(SETUP) + repr(Wallet("0x" + KEY.hex()))
    assert KEY.hex() not in shown
    assert repr(KEY)[2:-1] not in shown
    assert repr(SETUP.secret)[2:-1] not in shown
