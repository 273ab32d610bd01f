"""The audit of the dependencies tells a vulnerability from a source that does not answer."""

import json

import pytest

from tests.house.dependencies import NPM, PYTHON, read_npm_audit, read_pip_audit, report

KNOWN = {"id": "PYSEC-2019-179", "fix_versions": ["1.0"], "aliases": [], "description": "…"}
FLASK = {"name": "flask", "version": "0.5", "vulns": [KNOWN, KNOWN | {"fix_versions": []}]}
SKIPPED = {"name": "msgspec", "skip_reason": "Dependency not found and could not be audited"}
SOLC = {"vulnerabilities": {"solc": {"severity": "high", "range": "<0.8"}}}
READ = {PYTHON: read_pip_audit, NPM: read_npm_audit}


def pip_audit(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


@pytest.mark.parametrize(
    ("what", "answer", "found"),
    [
        (PYTHON, pip_audit(FLASK, SKIPPED), [
            "flask 0.5: PYSEC-2019-179, fixed in 1.0",
            "flask 0.5: PYSEC-2019-179, fixed in no version yet",
        ]),
        (PYTHON, pip_audit(FLASK | {"vulns": []}, SKIPPED), []),
        (NPM, json.dumps(SOLC), ["solc: high, <0.8"]),
        (NPM, '{"vulnerabilities": {}}', []),
    ],
)  # fmt: skip
def test_a_known_vulnerability_fails_and_is_named(what, answer, found, capsys):
    assert report(what, READ[what](answer)) == bool(found)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"audit: {len(found)} known vulnerabilities in {what}"
    assert lines == [f"  {line}" for line in found]


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize(
    "answer", [pip_audit(SKIPPED), pip_audit(), "", "Traceback", "[]", '{"error": {}}']
)
def test_a_source_that_does_not_answer_passes_and_says_so(what, answer, capsys):
    assert report(what, READ[what](answer)) == 0
    assert f"{what} NOT audited" in capsys.readouterr().out
