"""No command of these tests is so long that it shows its progress, however busy the machine is."""

import pytest


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.report.progress._SILENT_S", 3600.0)
