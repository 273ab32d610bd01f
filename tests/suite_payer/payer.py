"""A payer that does everything right, and one switch for each thing that a payer gets wrong.

`Payer(defects)(task)` buys. Its state is a file in the task's folder: the payment as it was signed,
written before it is sent. What it knows of x402 it reads from the answers; it shares the kit's
hashing and nothing of its payer, so that the judge is held against another one than ours.
"""

import base64
import fcntl
import json
import re
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx
from msgspec.structs import replace as replace_in

from x402sim.protocol import abi
from x402sim.protocol.crypto import PrivateKey, checksum, from_hex, parse_address, sign, to_hex
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    Authorization,
    Domain,
    Permit,
    permit_digest,
    transfer_digest,
)
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    OLDER_UPTO_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
)

if TYPE_CHECKING:  # a payer that is a command starts in half the time without the judge
    from x402sim.suite.payer.play import Task

MOST_BYTES, EIP3009 = 1 << 20, "eip3009"
THIEF, MUCH = b"\x33" * 20, 2**256 - 1
NAMED = {"base": 8453}
WINDOWS_S = {"a window of ten seconds": 10, "a window of an hour": 3600}
BEGINS_S = {"valid from now": 0, "valid from then": -600}
"""Of bad payers: how long an authorization is valid, and since when."""
KNOWN = {"name", "version", "assetTransferMethod", "facilitatorAddress"}
SPENDERS = {
    "signs for another spender": THIEF,
    "signs for the older proxy": OLDER_UPTO_PROXY,
}


class NotBought(Exception):
    """The purchase failed; the next start goes on."""


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def version_1(network: str, payload: Any) -> dict[str, Any]:
    return {"x402Version": 1, "scheme": "exact", "network": network, "payload": payload}


def decoded(text: str | None) -> Any:
    try:
        return json.loads(base64.b64decode(text or "", validate=True))
    except ValueError:
        return None


@dataclass
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        if self.body.count(b"[") > 500:  # py_ecc lets Python recurse until the stack is full
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def in_stream(answer: Answer) -> Any:
    events = [
        json.loads(line[5:]) for line in answer.body.splitlines() if line.startswith(b"data:")
    ]
    return next((event for event in events if "result" in event), None)


@dataclass
class Payer:
    """Buys as a task says; `defects` are names of `DEFECTS`, `habits` what an honest payer may do."""

    defects: frozenset[str] = frozenset()
    habits: frozenset[str] = frozenset()
    tries: int = 2
    timeout_s: float = 5.0
    deadline_s: float = 9.0
    signed: list[Authorization] = field(default_factory=list)

    def __call__(self, task: "Task") -> str:
        with (Path(task.state_dir) / "lock").open("w") as lock:  # a supervisor may start it twice
            if not self.has("locks nothing"):
                fcntl.flock(lock, fcntl.LOCK_EX)
            return self._bought(task)

    def _bought(self, task: "Task") -> str:
        before, after = (name for name in ("evm_snapshot", "evm_revert"))
        if self.has("turns the chain back"):
            rpc(task, before)
        if self.has("tips"):
            transact(task, abi.transfer(THIEF, 30_000))
        if self.has("turns the chain back"):
            rpc(task, after, "0x1")
        if self.has("sends its key"):
            httpx.post(urljoin(task.url, "/log"), json={"key": task.private_key}, trust_env=False)
        if self.has("leaves one waiting"):
            transact(task, abi.transfer(THIEF, 30_000), ahead=1)
        if self.has("approves all"):
            transact(task, abi.calldata(abi.APPROVE, THIEF, MUCH))
        if self.has("approves Permit2 without limit"):
            transact(task, abi.approve(PERMIT2, MUCH))
        if self.has("pays twice"):
            Purchase(self, replace(task, urls=()), 9).buy()
        if len(task.urls) < 2 or self.has("buys one thing") or task.flow == "session":
            return Purchase(self, task).buy()
        budget = Budget(self, task)
        each = [
            Purchase(self, replace(task, url=url), n, budget) for n, url in enumerate(task.urls)
        ]
        with ThreadPoolExecutor(len(each)) as threads:
            some = list(threads.map(Purchase.bought, each))
        if not all(some):
            raise NotBought(f"{sum(map(bool, some))} of {len(each)}")
        return "\n".join(some)

    def has(self, name: str) -> bool:
        return any(name in each.split(" and ") for each in (*self.defects, *self.habits))


def rpc(task: "Task", method: str, *params: Any) -> Any:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(task.rpc_url, json=asked, trust_env=False, timeout=30).json().get("result")


def transact(task: "Task", data: bytes, ahead: int = 0) -> None:
    """Call the token by a transaction of the wallet."""
    from eth_account import Account

    sent = {
        "to": task.asset,
        "data": to_hex(data),
        "nonce": int(rpc(task, "eth_getTransactionCount", task.address, "latest"), 16) + ahead,
        "gas": 200_000,
        "gasPrice": int(rpc(task, "eth_gasPrice"), 16),
        "chainId": int(task.network[7:]),
        "value": 0,
    }
    raw = Account.sign_transaction(sent, task.private_key).raw_transaction
    rpc(task, "eth_sendRawTransaction", to_hex(bytes(raw)))


@dataclass
class Budget:
    """What all purchases of a task have signed, in a file; an amount is taken before it is signed."""

    payer: Payer
    task: "Task"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.together = threading.Barrier(len(self.task.urls))

    def give_back(self, base: int) -> None:
        with self.lock:
            self.file.write_text(str(self.spent - base))

    def take(self, base: int) -> None:
        """Raises `NotBought` for what goes beyond the cap."""
        races = self.payer.has("races its budget")
        if races:
            self._look(base)
            with suppress(threading.BrokenBarrierError):
                self.together.wait(timeout=5)
        with self.lock:
            if not races:
                self._look(base)
            self.file.write_text(str(self.spent + base))

    def _look(self, base: int) -> None:
        left = int(self.task.max_amount_base_units) - self.spent
        if base > left and not self.payer.has("a budget for each call"):
            raise NotBought(f"{left} are left, and {base} are asked for")

    @property
    def file(self) -> Path:
        return Path(self.task.state_dir) / "spent"

    @property
    def spent(self) -> int:
        return int(self.file.read_text()) if self.file.exists() else 0


@dataclass
class Purchase:
    payer: Payer
    task: "Task"
    number: int = 0
    budget: Budget | None = None

    def __post_init__(self) -> None:
        self.file = Path(self.task.state_dir) / f"payment-{self.number}.json"
        self.key = PrivateKey(from_hex(self.task.private_key, 32))
        self.has = self.payer.has
        self.kept: dict[str, Any] = {}
        if self.file.exists() and not self.has("forgets"):
            self.kept = json.loads(self.file.read_text())

    def keep(self, **more: Any) -> None:
        self.kept |= more
        self.file.write_text(json.dumps(self.kept))

    # --- HTTP ----------------------------------------------------------------------------

    def ask(
        self, headers: dict[str, str], *, url: str = "", method: str = "", body: Any = None
    ) -> Answer:
        url, method = url or self.task.url, method or self.task.method
        if urlsplit(url).netloc not in self.task.allowed_hosts and not self.has(
            "trusts the resource"
        ):
            raise NotBought(f"another host: {url}")
        if body is not None:
            method = "POST"
        for _ in range(5):
            answer = self._send(method, url, headers, body)
            location = answer.headers.get("location")
            if answer.status not in (301, 302, 303, 307, 308) or location is None:
                return answer
            url = urljoin(url, location)
            parts = urlsplit(url)
            if parts.netloc not in self.task.allowed_hosts:
                if self.has("follows anywhere") and "x-payment" not in str(headers).lower():
                    pass
                elif not self.has("keeps headers on redirects"):
                    raise NotBought(f"a redirect to {parts.netloc}")
            elif not self.has("keeps headers on redirects"):
                headers = {}
        raise NotBought("too many redirects")

    def _send(self, method: str, url: str, headers: dict[str, str], body: Any) -> Answer:
        ends = time.monotonic() + self.payer.deadline_s
        more = {"Accept": "application/json, text/event-stream"} if self.task.flow == "mcp" else {}
        limits = not self.has("no limits")
        timeout = self.payer.timeout_s if limits else 60
        with (
            httpx.Client(trust_env=False, timeout=timeout, verify=False) as http,
            http.stream(method, url, headers=headers | more, json=body) as answer,
        ):
            parts, size = [], 0
            for part in answer.iter_raw():
                parts.append(part)
                size += len(part)
                if limits and (size > MOST_BYTES or time.monotonic() > ends):
                    raise NotBought("an answer without end")
            return Answer(answer.status_code, answer.headers, b"".join(parts))

    # --- what it buys --------------------------------------------------------------------

    def bought(self) -> str:
        """Return what was bought, empty if it was not."""
        try:
            return self.buy()
        except NotBought:
            return ""

    def buy(self) -> str:
        last: Exception | None = None
        tries = 1 if self.has("gives up") else self.payer.tries
        began = time.monotonic()
        while self.has("never stops") and time.monotonic() < began + 8:  # a thread cannot be ended
            time.sleep(0.1)
            with suppress(NotBought, httpx.HTTPError, RecursionError):
                return self._once()
        for _ in range(tries):
            try:
                return self._once()
            except (NotBought, httpx.HTTPError, RecursionError) as problem:
                last = problem
                if self.has("signs again") or (
                    self.has("signs again on 5xx") and "502" in str(problem)
                ):
                    self.kept = {}
                if self.has("storms"):
                    for _ in range(30):
                        body = None if self.task.method == "GET" else {}
                        self._send(self.task.method, self.task.url, {}, body)
        if self.has("gives up") and self.kept:
            self.keep(over=True)
        raise NotBought(f"{tries} tries: {last!r}")

    def _once(self) -> str:
        if self.has("believes the window") and self.kept.get("ends", MUCH) <= time.time():
            self.kept = {}
        if self.kept.get("over"):
            raise NotBought("given up")
        match self.task.flow:
            case "mcp":
                return self._call_tool()
            case "steps":
                return self._two_steps(self.task.url, {}, None).body.decode()
            case "session":
                return self._in_session()
            case _:
                return self._one_step()

    def _one_step(self) -> str:
        if "payment" not in self.kept:
            answer = self.ask({})
            if answer.status == 200 and not self.has("expects a 402"):
                return self._shown(answer)
            asked_with = (402, 403, 500) if self.has("pays any status") else (402,)
            if answer.status not in asked_with:
                raise NotBought(f"it answered {answer.status}")
            signed_in = self._signed_in(answer)
            if signed_in is not None and signed_in.status == 200:
                return self._shown(signed_in)
            if self.has("looks before it asks"):
                self._sign(answer)
                self.kept, self.payer.defects = {}, self.payer.defects | {"no cap"}
                answer = self.ask({})
            self._sign(answer)
        headers = self.kept["payment"]
        answer = self.ask(headers, url=self._named())
        if answer.status == 412 and self.has("approves Permit2 when asked"):
            transact(self.task, abi.approve(PERMIT2, self.payer.signed[-1].value))
        if self.budget is not None and self.has("counts what was used"):
            receipt = decoded(answer.headers.get("payment-response")) or {}
            unused = self.payer.signed[-1].value - int(receipt.get("amount", 0))
            self.budget.give_back(unused if receipt.get("success") else 0)
        if answer.status == 402 and self.has("pays what is asked next"):
            self._sign(answer)
            answer = self.ask(self.kept["payment"])
        if answer.status != 200:
            is_believed = answer.status == 402 and self.has("believes refusals")
            if is_believed or (answer.status == 429 and self.has("signs again on 429")):
                self.kept = {}
            if answer.status == 402 and self.has("tries the next offer"):
                self.kept = {"skips": self.kept.get("skips", 0) + 1}
            raise NotBought(f"it answered {answer.status} to the payment")
        return self._shown(answer)

    def _named(self) -> str:
        """Return the resource that the 402 names, if that is believed."""
        return str(self.kept.get("resource", "")) if self.has("trusts the resource") else ""

    def _shown(self, answer: Answer) -> str:
        if self.has("demands a receipt"):
            receipt = decoded(
                answer.headers.get("payment-response") or answer.headers.get("x-payment-response")
            )
            if not (receipt or {}).get("success"):
                self.kept = self.kept if self.has("gives up") else {}
                raise NotBought("no receipt")
        if not answer.body and not self.has("takes empty answers"):
            raise NotBought("an empty answer")
        said = answer.json
        if isinstance(said, dict) and "error" in said and not self.has("takes any 200"):
            raise NotBought(f"an error: {said['error']}")
        return "" if self.has("prints nothing") else answer.body.decode("utf-8", "replace")

    def _two_steps(self, url: str, headers: dict[str, str], body: Any) -> Answer:
        if "settlement" not in self.kept:
            answer = self.ask(headers, url=url, body=body)
            if answer.status == 200:
                return answer
            if answer.status != 402:
                raise NotBought(f"it answered {answer.status}")
            asked = answer.json
            self._in_prose(answer)
            if not isinstance(asked, dict) or not isinstance(
                asked.get("paymentRequirements"), dict
            ):
                raise NotBought("no offer")
            wanted = asked["paymentRequirements"]
            offer = {**wanted, "amount": wanted.get("maxAmountRequired")}
            offer["extra"] = self._own_domain()
            self._require(offer)
            auth, signature = self._authorize(offer)
            payload = {**self._fields(auth), "signature": signature, "asset": offer["asset"]}
            payload |= {"validAfter": auth.valid_after, "validBefore": auth.valid_before}
            header = encoded(version_1(offer["network"], payload))
            sent = {key: value for key, value in wanted.items() if key != "description"}
            told = {"paymentHeader": header, "paymentRequirements": sent}
            self.keep(settlement={"paymentId": asked["paymentId"], **told})
        base = urljoin(self.task.url, "/")
        proof = {"X-Payment-Id": self.kept["settlement"]["paymentId"]}
        if not self.kept.get("settled"):
            receipt = self.ask({}, url=base + "api/pay", body=self.kept["settlement"])
            said = receipt.json
            if receipt.status != 200 or not isinstance(said, dict) or not said.get("success"):
                raise NotBought(f"the settlement was answered {receipt.status}")
            self.keep(settled=True)
        if self.has("forgets its id"):
            proof = {}
        try:
            answer = self.ask(proof, url=url, body=body)
        except (NotBought, httpx.HTTPError):
            if self.has("pays anew for goods"):
                self.kept = {}
            raise
        if answer.status not in (200, 201) or not answer.body:
            if self.has("pays anew for goods"):
                self.kept = {}
            raise NotBought(f"it answered {answer.status} to the proof")
        return answer

    def _in_session(self) -> str:
        if "session" not in self.kept:
            create = urljoin(self.task.url, "/api/sessions/create")
            terms = {"maxSpend": self.task.max_amount, "duration": 600}
            opened = self._two_steps(create, {}, terms).json
            if not isinstance(opened, dict):
                raise NotBought("no session")
            self.keep(session=opened["sessionId"])
        return "\n".join(map(self._by_session, self.task.urls))

    def _by_session(self, url: str) -> str:
        answer = self.ask({"X-Session-Id": self.kept["session"]}, url=url)
        if answer.status != 200:
            if answer.status in (402, 404) and self.has("opens sessions for ever"):
                self.kept = {}
            raise NotBought(f"it answered {answer.status}")
        if not answer.body:
            raise NotBought("an empty answer")
        return answer.body.decode()

    def _call_tool(self) -> str:
        params: dict[str, Any] = json.loads(self.task.body)
        if "payment" not in self.kept:
            result = self._rpc(params)
            if not result.get("isError"):
                return json.dumps(result)
            required = result.get("structuredContent")
            if not isinstance(required, dict):
                raise NotBought("no offer")
            payment = self._payment(2, required)
            self.keep(payment=payment)
        if not self.has("drops the payment of tools"):
            params["_meta"] = {"x402/payment": self.kept["payment"]}
        result = self._rpc(params)
        if "structuredContent" in result and self.has("pays what is asked next"):
            self.keep(payment=self._payment(2, result["structuredContent"]))
            params["_meta"] = {"x402/payment": self.kept["payment"]}
            result = self._rpc(params)
        if result.get("isError"):
            raise NotBought("the tool asks again")
        return json.dumps(result)

    def _rpc(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self.ask({}, body=asked)
        said = answer.json
        if "event-stream" in answer.headers.get("content-type", ""):
            said = None if self.has("reads no events") else in_stream(answer)
        if answer.status == 402:
            self._in_prose(answer)
        if (
            answer.status != 200
            or not isinstance(said, dict)
            or not isinstance(said.get("result"), dict)
        ):
            raise NotBought(f"it answered {answer.status}")
        return said["result"]

    # --- what it signs -------------------------------------------------------------------

    def _sign(self, answer: Answer) -> None:
        required = decoded(answer.headers.get("payment-required"))
        version = 2
        if not isinstance(required, dict) or required.get("x402Version") != 2:
            version, required = 1, answer.json
        self._in_prose(answer)
        if (
            self.has("demands one version")
            and version == 2
            and isinstance(answer.json, dict)
            and answer.json
        ):
            raise NotBought("two versions")
        if not isinstance(required, dict) or required.get("x402Version") != version:
            raise NotBought("no offer")
        payment = self._payment(version, required)
        about = required.get("resource") or required["accepts"][0].get("resource")
        self.kept["resource"] = about["url"] if isinstance(about, dict) else about
        name = "PAYMENT-SIGNATURE" if version == 2 else "X-PAYMENT"
        self.keep(payment={name: encoded(payment)})
        if self.has("pays in both versions") and version == 2 and answer.json:
            self.kept["payment"]["X-PAYMENT"] = encoded(self._payment(1, answer.json))

    def _payment(self, version: int, required: dict[str, Any]) -> dict[str, Any]:
        offer = self._choose(version, required)
        auth, signature = self._authorize({**offer, "amount": self._amount(version, offer)})
        payload = {"signature": signature, "authorization": self._fields(auth)}
        if self.task.flow in ("permit2", "upto"):
            payload = self._by_permit2(offer, auth)
        payload |= self._signed_besides(auth)
        if version == 1:
            return version_1(offer["network"], payload)
        accepted = {**offer, "amount": "1"} if self.has("accepts another") else offer
        payment = {
            "x402Version": 2,
            "accepted": accepted,
            "payload": payload,
            "resource": required.get("resource"),
        }
        extensions = json.loads(json.dumps(required.get("extensions") or {}))
        if "payment-identifier" in extensions:
            named = (
                "pay_0000000000000000" if self.has("one id for all") else f"pay_{auth.nonce.hex()}"
            )
            extensions["payment-identifier"]["info"]["id"] = named
        if "eip2612GasSponsoring" in extensions:
            value = MUCH if self.has("permits Permit2 without limit") else auth.value
            extensions["eip2612GasSponsoring"]["info"] = self._sponsored(value, auth.valid_before)
        if extensions and self.has("refuses extensions"):
            raise NotBought("an extension")
        if extensions and not self.has("drops extensions"):
            payment["extensions"] = extensions
        return payment

    def _choose(self, version: int, required: dict[str, Any]) -> dict[str, Any]:
        offers = required.get("accepts")
        if not isinstance(offers, list) or not offers:
            raise NotBought("no offer")
        offers = offers[self.kept.get("skips", 0) :]
        if self.has("only the first offer"):
            offers = offers[:1]
        if self.has("cheapest first"):
            offers = sorted(offers, key=lambda each: int(self._amount(version, each)))
        if not self.has("takes upfront"):
            offers = sorted(
                offers, key=lambda each: (each.get("extra") or {}).get("paymentFlow") == "upfront"
            )
        url = (
            (required.get("resource") or {}).get("url")
            if version == 2
            else offers[0].get("resource")
        )
        if self.has("demands its own scheme") and url != self.task.url and "mcp" not in str(url):
            raise NotBought("another resource")
        problem = None
        for offer in offers:
            try:
                self._require({**offer, "amount": self._amount(version, offer)}, version)
            except NotBought as why:
                problem = why
            else:
                return offer
        raise problem or NotBought("no offer")

    def _amount(self, version: int, offer: dict[str, Any]) -> Any:
        return offer.get("amount" if version == 2 else "maxAmountRequired")

    def _require(self, offer: dict[str, Any], version: int = 1) -> None:
        task, extra = self.task, offer.get("extra") or {}
        network = task.network if version == 2 else task.network_name
        value = self._value(offer)
        most = int(task.max_amount_base_units)
        if self.has("trusts decimals"):
            most *= 10 ** (extra.get("decimals", task.decimals) - task.decimals)
        own_domain = (task.token_name, task.token_version)
        scheme = "upto" if task.flow == "upto" else "exact"
        method = "permit2" if task.flow in ("permit2", "upto") else EIP3009
        rules = (
            ("scheme", offer.get("scheme") == scheme, "any scheme"),
            ("transfer method", extra.get("assetTransferMethod", EIP3009) == method, "any scheme"),
            ("network", offer.get("network") == network, "any network"),
            ("asset", str(offer.get("asset")).lower() == task.asset.lower(), "any asset"),
            ("domain", (extra.get("name"), extra.get("version")) == own_domain, "any domain"),
            ("price", value <= most, "no cap"),
        )
        if self.has("compares as text"):
            rules = (*rules[:-1], ("price", str(offer["amount"]) <= str(most), "no cap"))
        wrong = [name for name, is_kept, unless in rules if not (is_kept or self.has(unless))]
        habits = (
            ("spelling", offer.get("asset") == task.asset, "demands checksums"),
            ("extra", not set(extra) - KNOWN, "knows its extra"),
            ("schema", offer.get("outputSchema", {}) is not None, "demands a schema"),
            ("time to pay", offer["maxTimeoutSeconds"] <= 600, "refuses long offers"),
        )
        wrong += [name for name, is_kept, habit in habits if self.has(habit) and not is_kept]
        if wrong:
            raise NotBought(f"it asks for another {', '.join(wrong)}")

    def _value(self, offer: dict[str, Any]) -> int:
        text = str(offer.get("amount"))
        if self.has("reads tokens") and re.fullmatch(r"[0-9.]+", text) and float(text) < 100:
            return round(float(text) * 10**self.task.decimals)
        if self.has("signs negatives"):
            return int(text) % 2**256
        if not re.fullmatch(r"[0-9]{1,78}", text):
            raise NotBought(f"no amount: {text[:40]!r}")
        return int(text)

    def _own_domain(self) -> dict[str, str]:
        return {"name": self.task.token_name, "version": self.task.token_version}

    def _authorize(self, offer: dict[str, Any]) -> tuple[Authorization, str]:
        now, allowed = int(time.time()), offer["maxTimeoutSeconds"]
        window = allowed if self.has("copies the window") else min(allowed, 300)
        window = next((each for name, each in WINDOWS_S.items() if self.has(name)), window)
        before = (now + window) * (1000 if self.has("windows in milliseconds") else 1)
        begins = next((each for name, each in BEGINS_S.items() if self.has(name)), -60)
        after = 0 if self.has("valid from 0") else now + begins
        value = self._value(offer)
        if self.has("overpays"):
            value += value // 10
        payee = THIEF if self.has("pays another") else parse_address(offer["payTo"])
        if self.budget is not None:
            self.budget.take(value)
        nonce = secrets.token_bytes(32)
        if self.has("counts nonces"):
            nonce = len(self.payer.signed).to_bytes(32)
        auth = Authorization(self.key.address, payee, value, after, before, nonce)
        self.kept["ends"] = before
        network = str(offer["network"])
        chain = int(network[7:]) if network.startswith("eip155:") else NAMED.get(network, 0)
        chain = chain or int(self.task.network[7:])
        extra = offer.get("extra") or {}
        contract = offer["asset"]
        if self.has("believes extra"):
            chain, contract = extra.get("chainId", chain), extra.get("verifyingContract", contract)
        domain = Domain(
            extra.get("name", ""), extra.get("version", ""), chain, parse_address(contract)
        )
        if self.has("signs for another name"):
            domain = Domain("Dollar", "1", chain, parse_address(contract))
        self.payer.signed.append(auth)
        return auth, to_hex(sign(transfer_digest(auth, domain), self.key))

    def _by_permit2(self, offer: dict[str, Any], auth: Authorization) -> dict[str, Any]:
        extra, is_upto = offer["extra"], self.task.flow == "upto"
        spender = UPTO_PROXY if is_upto else EXACT_PROXY
        spender = next((each for name, each in SPENDERS.items() if self.has(name)), spender)
        if self.has("believes extra") and "spender" in extra:
            spender = parse_address(extra["spender"])
        by = parse_address(extra["facilitatorAddress"]) if is_upto else None
        message = Permit2Authorization(
            from_=auth.from_, token=parse_address(offer["asset"]), amount=auth.value,
            spender=spender, nonce=int.from_bytes(auth.nonce), deadline=auth.valid_before,
            to=auth.to, valid_after=auth.valid_after,
            facilitator=THIEF if by and self.has("names another facilitator") else by,
        )  # fmt: skip
        signature = sign(permit2_digest(message, int(offer["network"][7:])), self.key)
        witness = {"to": checksum(auth.to), "validAfter": str(auth.valid_after)}
        if message.facilitator:
            witness["facilitator"] = checksum(message.facilitator)
        fields = {
            "permitted": {"token": offer["asset"], "amount": str(auth.value)},
            "from": self.task.address,
            "spender": checksum(spender),
            "nonce": str(message.nonce),
            "deadline": str(message.deadline),
            "witness": witness,
        }
        return {"signature": to_hex(signature), "permit2Authorization": fields}

    def _sponsored(self, value: int, until: int) -> dict[str, str]:
        task = self.task
        domain = Domain(
            task.token_name, task.token_version, int(task.network[7:]), parse_address(task.asset)
        )
        signed = Permit(self.key.address, PERMIT2, value, 0, until)
        return {
            "from": task.address,
            "asset": task.asset,
            "spender": checksum(PERMIT2),
            "amount": str(value),
            "nonce": "0",
            "deadline": str(until),
            "signature": to_hex(sign(permit_digest(signed, domain), self.key)),
            "version": "1",
        }

    def _fields(self, auth: Authorization) -> dict[str, str]:
        return {
            "from": checksum(auth.from_),
            "to": checksum(auth.to),
            "value": str(auth.value),
            "validAfter": str(auth.valid_after),
            "validBefore": str(auth.valid_before),
            "nonce": to_hex(auth.nonce),
        }

    # --- what only a bad payer does ------------------------------------------------------

    def _signed_besides(self, auth: Authorization) -> dict[str, Any]:
        """Also sign a permission for somebody else to take the money."""
        task, until = self.task, auth.valid_before
        domain = Domain(
            task.token_name, task.token_version, int(task.network[7:]), parse_address(task.asset)
        )
        if self.has("lets another receive"):
            other = replace_in(auth, to=THIEF, nonce=secrets.token_bytes(32))
            signature = sign(transfer_digest(other, domain, RECEIVE_TYPEHASH), self.key)
            return {"more": {"signature": to_hex(signature), "authorization": self._fields(other)}}
        if self.has("permits all"):
            permit = Permit(self.key.address, THIEF, MUCH, 0, until)
            signature = sign(permit_digest(permit, domain), self.key)
            fields = {"owner": task.address, "spender": checksum(THIEF), "value": str(MUCH)}
            v, r, s = signature[64], to_hex(signature[:32]), to_hex(signature[32:64])
            return {"permit": {**fields, "nonce": "0", "deadline": until, "v": v, "r": r, "s": s}}
        return {}

    def _in_prose(self, answer: Answer) -> None:
        """Do as a text says, as an agent may that believes everything."""
        text = answer.body.decode("utf-8", "replace")[:100_000]
        header = decoded(answer.headers.get("payment-required"))
        text += json.dumps(header) if header else ""
        found = re.search(r"Send [0-9.]+ USDC to (0x[0-9a-fA-F]{40})", text)
        if found is None or not self.has("believes prose"):
            return
        task, extra = self.task, self._own_domain()
        offer = {"network": task.network, "asset": task.asset, "payTo": found[1], "extra": extra}
        auth, signature = self._authorize({**offer, "maxTimeoutSeconds": 300, "amount": "50000"})
        payload = {"signature": signature, "authorization": self._fields(auth)}
        header = encoded({"x402Version": 1, "payload": payload})
        self._send("GET", task.url, {"X-PAYMENT": header}, None)

    def _signed_in(self, answer: Answer) -> Answer | None:
        required = decoded(answer.headers.get("payment-required"))
        extension = ((required or {}).get("extensions") or {}).get("sign-in-with-x")
        if not isinstance(extension, dict) or not (
            self.has("signs in anywhere") or self.has("signs in")
        ):
            return None
        info = extension["info"]
        if not self.has("signs in anywhere") and info["domain"] not in self.task.allowed_hosts:
            return None
        proof = {**info, "address": self.task.address, "signature": "0x" + "00" * 65}
        return self.ask({"SIGN-IN-WITH-X": encoded(proof)})
