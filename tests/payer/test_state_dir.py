"""`PaymentAuth(state_dir=…)`: payments outlive the object, and no two payers sign for one purchase."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import httpx
import pytest

from tests.payer.shop import LOST, URL, Shop, ask, receipt, served
from tests.payer.test_bodies import Streaming, whole
from tests.payer.test_standard_servers import OFFER, StandardShop
from x402sim import LocalServer, PaymentAuth, PaymentFailed, SessionAuth, Wallet, World
from x402sim.clock import Clock
from x402sim.payer import stored
from x402sim.payer.purchases import Unfinished
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.protocol.x402 import domain_of

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


class Disk:
    """A disk with room for so many records; None is any number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = 0
        self.write_whole = stored.write_whole
        monkeypatch.setattr(stored, "write_whole", self.write)

    def write(self, path: Path, data: bytes) -> None:
        if self.room == 0:
            raise OSError(28, "No space left on device")
        self.room = None if self.room is None else self.room - 1
        self.write_whole(path, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_full_disk_loses_no_goods(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is sent that is not stored; what happens after that is a warning."""
    shop, disk.room = Shop(served), 1
    assert ask(shop, payer(tmp_path)) == 200
    assert "is sent again" in caplog.text
    assert (len(shop.headers), files(tmp_path)) == (1, [])


def sells_by_permit2(request: httpx.Request) -> httpx.Response:
    if "payment-signature" in request.headers:
        return httpx.Response(200)
    extra = domain_of(BASE_SEPOLIA) | {"assetTransferMethod": "permit2"}
    return StandardShop(2, offers=[OFFER | {"extra": extra}]).required()


TERMS = {"maxSpend": "0.01", "duration": 60}
SHOPS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "two steps": (lambda: Shop(served), {}),
    "version 1": (lambda: StandardShop(1), {"network": BASE_SEPOLIA}),
    "version 2": (lambda: StandardShop(2), {"network": BASE_SEPOLIA}),
    "Permit2": (lambda: sells_by_permit2, {"network": BASE_SEPOLIA, "permit2": True}),
}


@pytest.mark.parametrize("way", SHOPS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_payment_that_cannot_be_stored_was_not_sent_and_counts_nowhere(
    tmp_path: Path, disk: Disk, way: str, is_async: bool
) -> None:
    """Also a deposit: the body has its terms. Later the same object has its whole budget."""
    make, options = SHOPS[way]
    shop, auth, sent = make(), payer(tmp_path, max_total="0.01", **options), list[httpx.Request]()
    auth.signer.max_payments = 1

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        answer: httpx.Response = shop(request)
        return answer

    def buy() -> int:
        if not is_async:
            with httpx.Client(transport=httpx.MockTransport(serve), auth=auth) as http:
                return http.post(URL, json=TERMS).status_code

        async def main() -> int:
            transport = httpx.MockTransport(serve)
            async with httpx.AsyncClient(transport=transport, auth=auth) as http:
                return (await http.post(URL, json=TERMS)).status_code

        return asyncio.run(main())

    for _ in range(2):
        with pytest.raises(PaymentFailed, match=r"No space left on device; nothing was sent"):
            buy()
        request = sent.pop()
        assert (sent, auth.signed_base, auth.unfinished(request).payments) == ([], 0, [])
    disk.room = None
    assert buy() == 200
    assert auth.signed_base == 10_000


def test_a_payment_that_was_sent_stays_unresolved_on_a_full_disk(
    tmp_path: Path, disk: Disk
) -> None:
    shop, auth = Shop(settles=lambda _: (400, {"error": "Invalid signature"})), payer(tmp_path)
    request, disk.room = httpx.Request("GET", URL), None
    assert "the payment was refused" in str(ask(shop, auth))
    (before,) = auth.unfinished(request).payments
    disk.room = 0
    assert "nothing was sent" in str(ask(shop, auth))
    (after,) = auth.unfinished(request).payments
    assert (after.auth, after.sent, after.sent_s) == (before.auth, 1, before.sent_s)
    assert (len(shop.settled), auth.signed_base) == (1, 10_000)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_payment_that_the_folder_may_have_counts_until_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The write fails, or is interrupted, after the file has its new content."""
    shop, auth = Shop(served), payer(tmp_path, max_total="0.01")
    fsync, unlink = os.fsync, Path.unlink

    def sync(file: int) -> None:
        if S_ISDIR(os.fstat(file).st_mode):
            raise error
        fsync(file)

    def remove(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".json":
            raise error
        unlink(path, missing_ok)

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", sync)
        failing.setattr(Path, "unlink", remove)
        if isinstance(error, OSError):
            assert "nothing was sent" in str(ask(shop, auth))
        else:
            with pytest.raises(KeyboardInterrupt):
                ask(shop, auth)
    (file,) = files(tmp_path)
    (kept,) = json.loads(file.read_text())["unfinished"]["sent"]
    assert (auth.signed_base, shop.settled) == (10_000, [])
    assert "is left of max_total" in str(ask(shop, auth, "http://shop/y"))
    assert ask(shop, auth) == 200
    assert (auth.signed_base, shop.settled) == (10_000, [kept["settlement"]])


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


def test_a_payment_that_another_object_has_finished_is_forgotten(tmp_path: Path) -> None:
    answers: list[Any] = [LOST]
    shop = Shop(served, lambda body: answers.pop() if answers else receipt(body))
    one, two = (payer(tmp_path, reuse=False) for _ in range(2))
    assert ask(shop, one) is LOST
    assert ask(shop, two) == ask(shop, one) == 200
    assert (len(shop.settled), len(shop.headers), one.signed_base) == (3, 2, 20_000)


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
    """After a power cut a renamed file may be lost, unless its folder was written, too; so may a
    new folder.
    """
    done, names = list[str](), {os.stat(tmp_path).st_ino: "around"}

    def fsync(file: int) -> None:
        it = os.fstat(file)
        done.append(names.get(it.st_ino, "folder") if S_ISDIR(it.st_mode) else "file")

    def settles(body: dict[str, Any]) -> Any:
        done.append("sent")
        return receipt(body)

    monkeypatch.setattr(os, "fsync", fsync)
    assert ask(Shop(served, settles), payer(tmp_path / "new" / "er")) == 200
    assert sorted(done[:2]) == ["around", "folder"], "the folders of both new folders"
    assert done[2:5] == ["file", "folder", "sent"]
    assert done[-2:] == ["folder", "folder"], "a file that comes back has a payment that was used"
    done.clear()
    assert ask(Shop(served, settles), payer(tmp_path / "new" / "er", reuse=False)) == 200
    assert done[:3] == ["file", "folder", "sent"]


def test_a_new_folder_that_may_be_lost_holds_no_payment_at_the_next_request_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync, around = [], os.fsync, os.stat(tmp_path).st_ino

    def broken(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        if synced == [around]:
            raise OSError(5, "Input/output error")
        fsync(file)

    monkeypatch.setattr(os, "fsync", broken)
    shop, auth = Shop(served), payer(tmp_path / "new" / "er")
    assert "cannot be written" in str(ask(shop, auth))
    assert shop.settled == []
    assert ask(shop, auth) == 200
    assert synced[:2] == [around, around]


def test_a_removal_that_a_power_cut_may_undo_is_not_called_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    kept, record = (
        stored.Stored(tmp_path, "auth", "x"),
        stored.Record(url="", unfinished=Unfinished()),
    )
    record.bought = stored.Bought(at_s=0, status=200, body=b"", payment={})
    with kept.alone(0):
        kept.write(lambda: record)
        monkeypatch.setattr(os, "fsync", broken)
        record.bought = None
        with pytest.raises(PaymentFailed, match="cannot be written") as failed:
            kept.write(lambda: record)
    assert type(failed.value) is PaymentFailed, "NotStored says that the file is as before"
    assert files(tmp_path) == []
