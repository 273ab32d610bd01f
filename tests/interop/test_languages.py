"""The guide's programs in TypeScript, a shell and Go run as they stand.

Each passes with a payer that pays once, and fails with one that signs another payment when no answer came.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import npm
from tests.house import blocks
from tests.house.reference import GUIDE
from tests.interop.programs import FOLDER, NO_PROXY
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import environment

pytestmark = THOROUGH
TYPESCRIPT = (GUIDE / "typescript.md").read_text("utf-8")
NAIVE, _, TEST, GOOD = blocks(TYPESCRIPT, "ts")
(SAID,) = blocks(TYPESCRIPT, "text")
OTHERS = (GUIDE / "other-languages.md").read_text("utf-8")
(SHELL,) = blocks(OTHERS, "sh")
(GO,) = blocks(OTHERS, "go")
CHECKED = ["--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "--types", "node"]  # fmt: skip


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with `x402sim` on its PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command, cwd=folder, env=environment() | NO_PROXY | {"PATH": path}, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip


def tool(folder: Path, package: str, name: str) -> list[str]:
    """Return the command of a program of an npm package, whose packages the folder gets."""
    packages = npm.packages(FOLDER / "npm_vitest")
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(packages)
    return [str(npm.node()), str(packages / package / name)]


@shows("client, in vitest", "npm @x402/fetch", "x402 version 2", "ledger")
@pytest.mark.parametrize(("payer", "code"), [(GOOD, 0), (NAIVE, 1)], ids=["good", "naive"])
def test_a_test_in_typescript_catches_who_signs_twice(
    payer: str, code: int, tmp_path: Path
) -> None:
    shutil.copy(GUIDE / "sim.ts", tmp_path)
    (tmp_path / "payer.ts").write_text(payer)
    (tmp_path / "payer.test.ts").write_text(TEST)
    checked = ran([*tool(tmp_path, "typescript", "bin/tsc"), *CHECKED, "payer.test.ts"], tmp_path)
    assert checked.returncode == 0, checked.stdout
    done = ran([*tool(tmp_path, "vitest", "vitest.mjs"), "run"], tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert (SAID.strip() in done.stdout + done.stderr) is (code == 1), done.stdout + done.stderr


SIM = """
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sim, start } from "./sim.ts";

const address = "0x00000000000000000000000000000000000000aa";

test("a world is steered, and ends", async () => {
  const listeners = process.listenerCount("exit");
  const { ready, sim, stop } = await start(["--network", "base-sepolia", "--network", "base", "--control-token", "secret"]);
  await assert.rejects(sim.who(), /answered 401: .*Control token needed/);
  const control = new Sim(ready.control!, { token: "secret" });
  assert.deepEqual((await control.accounts()).map((each) => each.address), ready.accounts.map((each) => each.address));
  const failing = await control.failingAccounts();
  assert.deepEqual(failing.map((each) => each.fails), ["no balance", "blacklisted", "used nonce", "contract wallet"]);
  assert.deepEqual(failing.map((each) => each.balance === "0"), [true, false, false, false]);
  assert.deepEqual(failing.map((each) => typeof each.nonce), ["object", "object", "string", "object"]);
  assert.deepEqual(await control.payments(), []);
  const [path, times] = ["/api/perp/market", 1];
  await assert.rejects(control.payments({ path, times }), /answered 409: .*wanted 1, and there are 0/);
  const headers = { Authorization: "Bearer secret", "Content-Type": "application/json" };
  await fetch(`${ready.control}/ui/pay`, { method: "POST", headers, body: JSON.stringify({ buys: `GET ${path}` }) });
  const [paid] = await control.payments({ path, times });
  assert.deepEqual([paid?.payer, paid?.amountBase], [ready.accounts[0]?.address, "10000"]);
  const { snapshot } = await control.snapshot();
  assert.equal((await control.faucet({ address, amount: "2.50" })).balance, "2500000");
  const [minted] = await control.transfers({ account: address });
  assert.equal(minted?.amountBase, "2500000");
  const on = new Sim(ready.control!, { token: "secret", network: "base" });
  assert.equal((await on.who()).network, "base");
  assert.deepEqual(await on.balances({ accounts: [address] }), ["0"]);
  await control.revert({ snapshot });
  assert.deepEqual(await control.transfers({ account: address }), []);
  await assert.rejects(control.addFault({ victim: "facilitator", does: "refuse", path: "/setle" }), /answered 400: .*setle/);
  const all = await control.journal();
  assert.ok(all.length > 1);
  assert.deepEqual(await control.journal({ since: all.at(-1)!.seq }), all.slice(-1));
  assert.equal(all.at(-1)!.event, "note");
  await stop();
  assert.equal(process.listenerCount("exit"), listeners);
  await assert.rejects(sim.who(), /fetch failed/);
});

test("what does not start says so", async () => {
  await assert.rejects(start(["--network", "nowhere"]), /serve .* nowhere ended with 2/);
  await assert.rejects(start([], ["no-such-program"]), /no-such-program/);
});
"""


def test_the_client_of_the_control_api_runs_in_node_without_a_build(tmp_path: Path) -> None:
    shutil.copy(GUIDE / "sim.ts", tmp_path)
    (tmp_path / "sim.test.ts").write_text(SIM)
    types = [*CHECKED, "--allowImportingTsExtensions", "sim.test.ts"]
    checked = ran([*tool(tmp_path, "typescript", "bin/tsc"), *types], tmp_path)
    assert checked.returncode == 0, checked.stdout
    done = ran([str(npm.node()), "--test", "sim.test.ts"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass 2" in done.stdout


def without_state(program: str, kept: str) -> str:
    """Return a program whose payer forgets what it has signed."""
    assert program.count(kept) == 1
    return program.replace(kept, "")


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_script_pays_once(shell: str, tmp_path: Path) -> None:
    done = ran([shell, "-c", SHELL], tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"market"' in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_shell_script_catches_who_signs_twice(tmp_path: Path) -> None:
    done = ran(["sh", "-c", without_state(SHELL, " --state-dir state")], tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "paid 2 times")


@pytest.mark.skipif(
    shutil.which("go") is None and "CI" not in os.environ,
    reason="Go is not installed: apt-get install golang-go",
)
def test_a_test_in_go_catches_who_signs_twice(tmp_path: Path) -> None:
    assert ran(["go", "mod", "init", "payer"], tmp_path).returncode == 0
    for program, code in ((GO, 0), (without_state(GO, ', "--state-dir", state'), 1)):
        (tmp_path / "payer_test.go").write_text(program)
        done = ran(["go", "test", "./..."], tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("paid 2 times" in done.stdout) is (code == 1), done.stdout
    formatted = ran(["gofmt", "-l", "."], tmp_path)
    assert formatted.stdout == "", "as Go writes it"
