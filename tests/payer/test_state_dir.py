"""`PaymentAuth(state_dir=…)`: payments outlive the object, and no two payers sign for one purchase."""

import json
import os
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import httpx
import pytest

from tests.payer.shop import LOST, URL, Shop, ask, receipt, served
from tests.payer.test_bodies import Streaming, whole
from x402sim import LocalServer, PaymentAuth, PaymentFailed, SessionAuth, Wallet, World
from x402sim.clock import Clock
from x402sim.payer import stored
from x402sim.protocol.networks import BASE_SEPOLIA

WALLET = Wallet("0x" + "5" * 64)


def payer(folder: Path, **options: Any) -> PaymentAuth:
    return PaymentAuth(WALLET, state_dir=folder, **options)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def test_a_payer_that_starts_again_sends_the_same_payment_again(tmp_path: Path) -> None:
    """It is stored before it is sent, for its owner only, and removed when it has bought something."""
    answers: list[Any] = [LOST, None]

    def settles(body: dict[str, Any]) -> Any:
        (file,) = files(tmp_path)
        assert body["paymentId"] in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        return answers.pop(0) or receipt(body)

    shop = Shop(served, settles)
    first = payer(tmp_path)
    assert ask(shop, first) is LOST
    del first
    again = payer(tmp_path)
    assert ask(shop, again) == 200
    assert (len(shop.settled), len(shop.headers), again.signed_base) == (2, 1, 10_000)
    assert files(tmp_path) == []
    assert ask(shop, again) == 200, "the payment id pays again, without the folder"


def test_a_receipt_outlives_a_payer_that_is_killed_before_the_goods(tmp_path: Path) -> None:
    """The file says "settled" before the payment is shown; else it would expire, and be replaced."""

    def goods(proof: str | None) -> Any:
        for file in files(tmp_path) if proof else []:
            kept = json.loads(file.read_text())["unfinished"]
            seen.append((len(kept["sent"]), len(kept["unserved"])))
        return served(proof)

    seen = list[tuple[int, int]]()
    assert ask(Shop(goods), payer(tmp_path)) == 200
    assert seen == [(0, 1)]


def test_a_full_disk_signs_nothing_and_loses_no_goods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is sent that is not stored; what happens after that is a warning."""
    room = [0]

    def write(path: Path, data: bytes) -> None:
        if not room[0]:
            raise OSError(28, "No space left on device")
        room[0] -= 1
        write_whole(path, data)

    write_whole = stored.write_whole
    monkeypatch.setattr(stored, "write_whole", write)
    shop = Shop(served)
    assert "No space left" in str(ask(shop, payer(tmp_path)))
    assert shop.settled == []
    room[0] = 1
    assert ask(shop, payer(tmp_path)) == 200
    assert "is sent again" in caplog.text
    assert (len(shop.headers), files(tmp_path)) == (1, [])


def test_what_is_left_counts_for_the_cap(tmp_path: Path) -> None:
    lost = Shop(served, lambda body: LOST)
    assert ask(lost, payer(tmp_path)) is LOST
    again = payer(tmp_path, max_total="0.01")
    assert ask(lost, again) is LOST
    assert "0 devUSDC.e is left of max_total" in str(ask(lost, again, "http://shop/y"))


def test_a_body_that_nobody_reads_to_its_end_is_bought_again(tmp_path: Path) -> None:
    shop = Shop(served)
    streaming = httpx.MockTransport(Streaming(shop, [whole]))
    http = httpx.Client(transport=streaming, auth=payer(tmp_path))
    with http, http.stream("GET", URL) as answer:
        assert answer.status_code == 200
        assert len(files(tmp_path)) == 1, "while it is read"
    assert len(files(tmp_path)) == 1
    del http, answer
    with httpx.Client(transport=streaming, auth=payer(tmp_path)) as http:
        assert http.get(URL).status_code == 200
    assert (len(shop.headers), files(tmp_path)) == (1, [])


def test_two_payers_never_sign_for_one_purchase(tmp_path: Path) -> None:
    """Also while the first is at work: the other says so, and goes on when the first is gone."""
    told = []

    def settles(body: dict[str, Any]) -> Any:
        told.append(ask(Shop(served), payer(tmp_path)))
        return LOST

    shop = Shop(served, settles)
    first = payer(tmp_path)
    assert ask(shop, first) is LOST
    assert "another payer is buying the same" in str(told[0])
    assert ask(other := Shop(served), payer(tmp_path)) == 200
    assert other.headers == shop.headers
    assert ask(Shop(served), PaymentAuth(WALLET, state_dir=tmp_path), "http://shop/y") == 200


def test_a_relative_folder_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(served, lambda body: LOST)
    monkeypatch.chdir(tmp_path)
    auth = payer(Path("state"))
    assert ask(shop, auth) is LOST
    monkeypatch.chdir("/")
    assert ask(shop, auth) is LOST
    assert (len(shop.headers), auth.signed_base) == (1, 10_000)


def test_what_another_payer_gave_up_for_a_later_purchase_counts(tmp_path: Path) -> None:
    """Each gives up a payment of its own; sums of two purchases tell nothing."""
    now = [1_800_000_000.0]
    one, two = (payer(tmp_path, clock=Clock(lambda: now[0]), reuse=False) for _ in range(2))

    def give_up_and_lose(auth: PaymentAuth) -> None:
        assert ask(Shop(served, lambda body: LOST), auth) is LOST
        now[0] += 1000
        settles: list[Any] = [(400, {"error": "Authorization expired"}), LOST]
        assert ask(Shop(settles=lambda body: settles.pop(0)), auth) is LOST

    give_up_and_lose(one)
    assert ask(Shop(served), two) == 200
    give_up_and_lose(two)
    assert (one.signed_base, two.signed_base) == (20_000, 40_000)
    assert ask(Shop(served), one) == 200
    assert one.signed_base == 40_000, "two of its own, and two of the other"


def test_the_caps_are_in_the_unit_of_what_is_left(tmp_path: Path) -> None:
    shop = Shop(served, lambda body: LOST)
    assert ask(shop, payer(tmp_path)) is LOST
    fine = replace(BASE_SEPOLIA, decimals=18)
    other = payer(tmp_path, network=fine)
    for _ in range(2):
        assert "token of 6 decimals" in str(ask(shop, other))
    assert len(shop.settled) == 1
    assert ask(shop, payer(tmp_path)) is LOST, "the file is free, and as it was"
    assert len(shop.headers) == 1


def test_a_folder_remembers_by_itself(tmp_path: Path) -> None:
    request = httpx.Request("GET", URL)
    with pytest.raises(ValueError, match="resume: the unfinished payments are those of"):
        payer(tmp_path).resume(request, PaymentAuth(WALLET).unfinished(request))


def test_a_fork_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a copy of the caps, and of the lock on the file."""
    shop = Shop(served)
    auth = payer(tmp_path)
    with monkeypatch.context() as forked:
        forked.setattr("os.getpid", lambda: -1)
        assert "a fork has copied its caps" in str(ask(shop, auth))
    assert shop.asked == []
    assert ask(shop, auth) == 200


def test_nothing_is_sent_that_cannot_be_stored(tmp_path: Path) -> None:
    folder, shop = tmp_path / "state", Shop(served)
    folder.write_text("")
    assert "cannot be written" in str(ask(shop, payer(folder)))
    assert shop.settled == []


@pytest.mark.parametrize("is_former", [True, False])
def test_nothing_is_sent_for_a_file_that_cannot_be_read(tmp_path: Path, is_former: bool) -> None:
    """Such as a file in the form of an earlier version, with the payments at the top."""
    shop = Shop(served, lambda body: LOST)
    assert ask(shop, payer(tmp_path)) is LOST
    (file,) = files(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text())["unfinished"]) if is_former else "{")
    assert "remove it only if you may pay twice" in str(ask(shop, payer(tmp_path)))
    assert len(shop.settled) == 1


@pytest.mark.parametrize("network", ["cronos-testnet", "base-sepolia", "avalanche-fuji"])
def test_every_test_network_is_paid_by_default(network: str) -> None:
    with LocalServer(World(network=network)) as server:
        for auth in (
            PaymentAuth(server.wallets[0]),
            PaymentAuth(server.wallets[0], version=2),
            PaymentAuth(server.wallets[0], network=network),
            SessionAuth(server.wallets[0], deposit="0.05"),
        ):
            assert httpx.get(f"{server.url}/api/perp/market", auth=auth).status_code == 200


def test_real_money_is_paid_only_if_it_is_named() -> None:
    with LocalServer(World(network="base")) as server:
        url = f"{server.url}/api/perp/market"
        with pytest.raises(PaymentFailed, match="'base'"):
            httpx.get(url, auth=PaymentAuth(server.wallets[0]))
        auth = PaymentAuth(server.wallets[0], network="base")
        assert httpx.get(url, auth=auth).status_code == 200
    with pytest.raises(ValueError, match="unknown network 'basis'"):
        PaymentAuth(WALLET, network="basis")


def test_the_name_of_a_payment_is_on_the_disk_before_the_payment_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a renamed file may be lost, unless its folder was written, too."""
    done = list[str]()

    def fsync(file: int) -> None:
        done.append("folder" if S_ISDIR(os.fstat(file).st_mode) else "file")

    def settles(body: dict[str, Any]) -> Any:
        done.append("sent")
        return receipt(body)

    monkeypatch.setattr(os, "fsync", fsync)
    assert ask(Shop(served, settles), payer(tmp_path)) == 200
    assert done[:3] == ["file", "folder", "sent"]
