"""What the suite tells is in the user's words: options, keys of target files, needs, ids."""

import pytest

from tests.suite import by_hand
from tests.suite.deployment import Deployment, conformance
from x402sim.suite.case import select
from x402sim.suite.service.case import IDS_BEGIN
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.options import REQUIRABLE


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (["4.5,2.2"], {"spec/4.5", "spec/2.2"}),
        (["4.5/, 2.2/", "1/"], {"spec/4.5", "spec/2.2", "spec/1"}),
        (["9"], {"silent/9"}),
        (["2.7"], {"silent/2.7"}),
        (["kit/7"], {"kit/7"}),
        (["5"], {"spec/5"}),
    ],
)
def test_only_takes_several_ids_and_those_of_every_document(
    only: list[str], found: set[str]
) -> None:
    assert {check.id.rpartition("/")[0] for check in select(only, all_checks(), IDS_BEGIN)} == found


def test_each_id_that_can_fail_has_words_for_its_cause_and_a_new_one_a_mutant() -> None:
    found = [*by_hand.missing()]
    assert not found, "\n".join(found)


def test_needs_have_one_name_in_the_list_and_in_require() -> None:
    done = conformance("--list")
    assert done.returncode == 0
    told = {
        word
        for line in done.stdout.splitlines()
        if line.startswith("  needs ")
        for word in line.removeprefix("  needs ").split(", ")
    }
    assert told >= set(REQUIRABLE) - {"expiry", "refunds"}
    assert not {"funds", "observe chain"} & told
    assert max(map(len, done.stdout.splitlines())) < 80


def test_a_skipped_id_carries_the_users_reason_even_if_a_need_is_missing(
    deployment: Deployment,
) -> None:
    done = conformance(deployment.url, "--skip", "5=later", "--only", "5,7,2.2/body", "--json")
    reasons = {
        each["reason"] for each in done.report["results"] if each["id"].startswith("spec/5/")
    }
    assert reasons == {"--skip: later"}
