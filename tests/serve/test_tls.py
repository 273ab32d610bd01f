"""`serve --tls`: https for clients that insist on it, by an authority that they can trust."""

import ssl
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.serve.driver import started
from x402sim.cli import app


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    said = CliRunner().invoke(
        app, ["serve", "--port", "0", "--tls", str(tmp_path / "no" / "ca.pem")]
    )
    assert (said.exit_code, said.stderr.count("\n")) == (2, 1)
    assert "cannot write the file: No such file or directory" in said.stderr


def test_whoever_trusts_the_authority_pays_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "ca.pem"
    with started("--tls", str(authority)) as server:
        url = server.ready["service"] + "/api/perp/market"
        assert url.startswith("https://127.0.0.1:")
        distrustful = CliRunner().invoke(app, ["pay", url])
        assert (distrustful.exit_code, "set SSL_CERT_FILE" in distrustful.stderr) == (2, True)
        trusted = ssl.create_default_context(cafile=str(authority))
        with httpx.Client(verify=trusted, trust_env=False) as http:
            assert http.get(url).json()["accepts"][0]["resource"] == url
            by_page = http.post(server.ready["control"] + "/ui/pay", json={"buys": "market"})
            assert by_page.json()["status"] == 200
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        paid = CliRunner().invoke(app, ["pay", url])
        assert paid.exit_code == 0, paid.output
