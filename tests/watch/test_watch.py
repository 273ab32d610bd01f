"""`x402sim watch` as a program: before `serve`, from its ready line to the recording that it leaves."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.runner import assert_misuse, run as command
from tests.house import blocks
from tests.house.reference import GUIDE
from tests.serve.driver import ORDER, QUOTE, Running, Server, started, until
from x402sim import BASE_SEPOLIA, PaymentAuth, Wallet
from x402sim.events import AuthorizationConsumed, Begin, End, Note, PaymentSettled, Transfer
from x402sim.report.run import Run

NO_PORTS = ("--port", "0")
FAULT = {"victim": "service", "does": "lose answer", "contains": "payment"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started("--network", "base-sepolia", "--quiet") as running:
        yield running


class Watching(Running):
    """A `watch` that is ready."""

    def __init__(self, server: Server, *args: str) -> None:
        base = str(server.http.base_url).rstrip("/")
        super().__init__(
            "watch", "--upstream", base, "--facilitator", f"{base}/facilitator", *NO_PORTS,
            "--json", *args,
        )  # fmt: skip
        self.ready = json.loads(self.first_line())
        self.url = self.ready["service"]

    def stop(self) -> str:
        """Stop it as a person does; return its log."""
        assert self.end(signal.SIGINT) == 0, self.errors()
        log = self.errors()
        assert "Traceback" not in log, log
        return log


def payer_of(server: Server) -> PaymentAuth:
    wallet = Wallet(server.ready["accounts"][1]["privateKey"])
    return PaymentAuth(wallet, max_amount="0.05", network=BASE_SEPOLIA)


def bought(url: str, payer: PaymentAuth) -> httpx.Response:
    return httpx.post(f"{url}{QUOTE}", json=ORDER, auth=payer, trust_env=False)


@pytest.fixture(scope="module")
def recording(server: Server, tmp_path_factory) -> tuple[Path, str, dict[str, str]]:
    """One payment, one request that is free, and one of nobody: the file, the log, the ready line."""
    file = tmp_path_factory.mktemp("watch") / "shop.ndjson"
    with Watching(server, "--out", str(file), "--rpc", server.ready["rpc"]) as watching:
        assert bought(watching.url, payer_of(server)).status_code == 200
        assert httpx.get(f"{watching.url}/healthz", trust_env=False).status_code == 200
        assert httpx.get(f"{watching.ready['facilitator']}/supported", trust_env=False).is_success
        page = httpx.get(watching.ready["page"], trust_env=False)
        assert page.status_code == 200
        until(lambda: '"event":"transfer"' in file.read_text())  # it asks the chain meanwhile
        return file, watching.stop(), watching.ready


def test_its_recording_is_a_run(recording):
    run = Run.load(recording[0])
    (begin,), (end,) = run.journal.events(Begin), run.journal.events(End)
    assert (begin.upstream, end.outcome) == (begin.title.removeprefix("Recording of "), "passed")
    (settled,) = run.journal.events(PaymentSettled)
    (used,), (moved,) = run.journal.events(AuthorizationConsumed), run.journal.events(Transfer)
    assert settled.tx_hash == used.tx_hash == moved.tx_hash
    assert moved.amount_base == "10000"
    order = run.orders.iloc[0]
    assert (order["charged"], order["served"], order["resource"]) == (True, True, QUOTE)
    assert list(run.transfers["amount"]) == [0.01]
    assert list(run.steps["outcome"])[:1] == ["payment required"]
    assert "lanes" in run.show().page


def test_its_log_says_what_was_offered_signed_and_settled(recording):
    log = recording[1]
    assert "offers 0.01 USDC on base-sepolia to 0x" in log
    assert "signed 0.01 USDC on base-sepolia to 0x" in log
    assert "settled, transaction 0x" in log
    assert "/healthz" not in log  # a request that pays nothing
    assert all(len(line) <= 80 for line in log.splitlines()), log


def test_the_program_of_the_guide_reads_it(recording, tmp_path, monkeypatch, capsys):
    (program,) = blocks((GUIDE / "watch.md").read_text(), "python")
    (tmp_path / "monday.ndjson").write_bytes(recording[0].read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert QUOTE in capsys.readouterr().out


def test_a_recording_is_not_overwritten(recording):
    file, before = recording[0], recording[0].read_bytes()
    done = command("watch", "--upstream", "http://x", "--out", file, *NO_PORTS)
    assert_misuse(done, "the file exists, perhaps a recording")
    assert file.read_bytes() == before


def test_a_recorded_request_is_sent_again_changed_and_nothing_is_signed(server, tmp_path):
    """The proxy records the request; a payment is sent only if the user keeps the header."""
    file = tmp_path / "shop.ndjson"
    with Watching(server, "--out", str(file)) as watching:
        assert bought(watching.url, payer_of(server)).status_code == 200

        def again(headers=(), **changes):
            request = {"method": "POST", "target": QUOTE, "headers": [*headers]}
            request |= {"body": json.dumps(ORDER)} | changes
            url = watching.ready["page"] + "/send"
            return httpx.post(url, json=request, trust_env=False, timeout=30)

        def recorded():
            seen = [each.data for each in Run.load(file).journal.events(Note)]
            return [each for each in seen if each.get("path") == QUOTE]

        def notes(count):
            """The recorded exchanges; the recording is written after an answer has ended."""
            until(lambda: len(recorded()) == count)
            return recorded()

        (paid,) = [each for each in notes(2) if each["status"] == 200]
        kept = [each for each in paid["sent"]["headers"] if each[0].lower() != "content-length"]
        unpaid = [each for each in kept if "payment" not in each[0].lower()]
        odd = [["Content-Type", "text/plain"], ["X-Odd", "\xe9"]]
        transfers = server.account(1).transfers
        answers = [again(unpaid), again(kept), again(odd, target=f"{QUOTE}?a=b%20c")]
        assert [each.json()["status"] for each in answers] == [402, 200, 402], "it is paid"
        notes(4)  # the third has another path
        assert server.account(1).transfers == transfers
        supported = again(to="facilitator", target="/supported", method="GET", body="")
        assert "kinds" in supported.json()["said"]
        wrong = {"target": "http://elsewhere/"}, {"to": "rpc"}, {"headers": [["A", "\u2026"]]}
        assert [again(**each).status_code for each in wrong] == [400] * 3
        said = again(method="NO METHOD").json()
        assert (said["status"], "method" in said["said"]) == (None, True)
        origin = {"Origin": "http://elsewhere.example"}
        answer = httpx.post(
            watching.ready["page"] + "/send", headers=origin, json={}, trust_env=False
        )
        assert answer.status_code == 403
        watching.stop()


def test_a_fault_strikes_between_a_payer_and_its_shop(server):
    with Watching(server, "--fault", json.dumps(FAULT)) as watching:
        before, payer = len(server.transfers()), payer_of(server)
        with pytest.raises(httpx.RemoteProtocolError):
            bought(watching.url, payer)
        assert bought(watching.url, payer).status_code == 200
        assert len(server.transfers()) == before + 1  # paid once, although its answer was lost
        log = watching.stop()
    assert 'fault: "lose answer"' in log
