"""What users build on does not change unnoticed: a name that goes, comes or changes is a line."""

from difflib import unified_diff

from tests.house import ROOT, public
from x402sim.version import VERSION

RENEW = (
    "What users build on has changed, as these lines show. Run python -m tests.renew --only public, "
    "and for each line that is gone (removed, or renamed) add a line to CHANGELOG.md: what to write "
    "instead. The guide's page stability.md says which version may do that."
)


def test_what_is_public_is_what_is_written_down() -> None:
    written, found = public.FILE.read_text(encoding="utf-8").splitlines(), public.lines()
    changed = [*unified_diff(written, found, "before", "now", n=0, lineterm="")]
    assert not changed, "\n".join([RENEW, *changed])


def test_every_kind_of_name_is_found() -> None:
    """Each is one that a user of 0.1.0 writes."""
    found = {*public.lines()}
    assert found >= {
        "action: input base-url",
        "check: server server/order/handler-fails-v2",
        "command: conformance server --also",
        "command: target init --out",
        "control: POST /_sim/faucet amount",
        "environment: X402SIM_FLOW",
        "environment: FINAL_DEPTH",
        "exit code: 2",
        "journal: payment settled, payment_id",
        "python: x402sim.World(seed)",
        "python: x402sim.PaymentAuth.receipts",
        "python: x402sim.LiveWorld.payer(balance)",
        "python: x402sim.policies.ServeBeforeSettle",
        "pytest: fixture x402_payer_case",
        "report: JSON results.outcome",
        "report: JUnit testcase name",
        "report: SARIF runs.results.ruleId",
        "target: protected.content",
    }


def test_the_log_of_changes_begins_with_the_next_ones_and_has_this_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    first, *versions = (line for line in lines if line.startswith("## "))
    assert first == "## Unreleased"
    assert f"## {VERSION}" in versions
