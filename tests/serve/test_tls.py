"""`serve --tls`: https for clients that insist on it, by an authority that they can trust."""

import ssl
from pathlib import Path

import httpx
import pytest

from tests.cli.runner import run
from tests.serve.driver import started


def test_whoever_trusts_the_authority_pays_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "ca.pem"
    with started("--tls", str(authority)) as server:
        url = server.ready["service"] + "/api/perp/market"
        assert url.startswith("https://127.0.0.1:")
        distrustful = run("pay", url)
        assert (distrustful.exit_code, "set SSL_CERT_FILE" in distrustful.stderr) == (2, True)
        trusted = ssl.create_default_context(cafile=str(authority))
        with httpx.Client(verify=trusted, trust_env=False) as http:
            assert http.get(url).json()["accepts"][0]["resource"] == url
            by_page = http.post(
                server.ready["control"] + "/ui/pay", json={"buys": "GET /api/perp/market"}
            )
            assert by_page.json()["status"] == 200
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        paid = run("pay", url)
        assert paid.exit_code == 0, paid.output
