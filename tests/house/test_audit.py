"""The audit of the dependencies tells a vulnerability from a source that does not answer."""

import json

import pytest

from tests.house.audit import NPM, PYTHON, read_npm_audit, read_pip_audit, report

KNOWN = {"id": "PYSEC-2019-179", "fix_versions": ["1.0"], "aliases": [], "description": "…"}
UNFIXED = KNOWN | {"fix_versions": []}
SKIPPED = {"name": "msgspec", "skip_reason": "Dependency not found and could not be audited"}


def pip_audit(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_a_known_vulnerability_fails_and_names_the_version_that_fixes_it(capsys):
    answer = pip_audit({"name": "flask", "version": "0.5", "vulns": [KNOWN, UNFIXED]}, SKIPPED)
    assert report(PYTHON, read_pip_audit(answer)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "audit: 2 known vulnerabilities in Python packages",
        "  flask 0.5: PYSEC-2019-179, fixed in 1.0",
        "  flask 0.5: PYSEC-2019-179, fixed in no version yet",
    ]


def test_packages_without_vulnerabilities_pass(capsys):
    answer = pip_audit({"name": "flask", "version": "3.0", "vulns": []}, SKIPPED)
    assert report(PYTHON, read_pip_audit(answer)) == 0
    assert capsys.readouterr().out == "audit: 0 known vulnerabilities in Python packages\n"


@pytest.mark.parametrize(
    "answer", [pip_audit(SKIPPED, SKIPPED), pip_audit(), "", "Traceback", "[]"]
)
def test_a_source_that_does_not_answer_passes_and_says_so(answer, capsys):
    assert report(PYTHON, read_pip_audit(answer)) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "Python packages NOT audited" in line


def test_npm_reports_its_vulnerabilities(capsys):
    found = {"vulnerabilities": {"solc": {"severity": "high", "range": "<0.8"}}}
    assert report(NPM, read_npm_audit(json.dumps(found))) == 1
    assert "  solc: high, <0.8" in capsys.readouterr().out
    assert report(NPM, read_npm_audit('{"vulnerabilities": {}}')) == 0
    assert "0 known vulnerabilities in npm packages" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ['{"message": "405 Method Not Allowed", "error": {}}', ""])
def test_npm_whose_registry_has_no_advisories_passes_and_says_so(answer, capsys):
    assert report(NPM, read_npm_audit(answer)) == 0
    assert "npm packages NOT audited" in capsys.readouterr().out
