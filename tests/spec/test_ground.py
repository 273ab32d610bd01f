"""Every demand has its ground: sentences that the specification has, quoted word for word."""

import tomllib
from importlib.resources import files

import pytest

from tests.suite.cases import case
from x402sim.spec import ground
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.ground import (
    SENTENCES,
    GroundType,
    Sentence,
    derived,
    explicit,
    ours,
    read_ground,
    sentence,
    silent,
)
from x402sim.suite.case import by_id
from x402sim.suite.service.engine import all_checks, folder

CHECKS = all_checks()
DOCUMENT = files(ground.__package__).joinpath("sentences.md").read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """Return the words of Markdown, without the marks of lists and tables."""
    return [word for word in text.replace("|", " ").split() if word != "-"]


# --- the sentences -------------------------------------------------------------------


def test_every_line_of_the_document_is_a_sentence_or_a_title() -> None:
    lines = [line.strip() for line in DOCUMENT.splitlines() if line.strip()]
    heads = {number - 1 for number, line in enumerate(lines) if set(line) <= {"|", "-"}}
    rest = [
        line
        for number, line in enumerate(lines)
        if not line.startswith("#") and not set(line) <= {"|", "-"} and number not in heads
    ]
    assert len(rest) == len(SENTENCES) > 150
    for line, each in zip(rest, SENTENCES, strict=True):
        lines = words(line)
        numbered = lines[0].rstrip(".").isdigit() and lines[1:] == words(each.text)
        assert lines == words(each.text) or numbered, line
    assert {each.section.split(".")[0] for each in SENTENCES} == set("0123456789")
    assert {clause.section for clause in CLAUSES} <= {each.section for each in SENTENCES}
    assert len(set(SENTENCES)) == len(SENTENCES), "no sentence comes twice in a section"


def test_a_sentence_is_found_by_its_opening_words() -> None:
    found = sentence("7: Nonce already used")
    assert found.text == (
        "Nonce already used | Replay or stale nonce. | Get a fresh nonce from the token contract."
    )
    assert sentence("4.2: pair | string") == Sentence("4.2", "pair | string")


# --- the grounds ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an explicit ground names"),
        ("open", "or says why"),
        ("so: it follows", "a derived ground names"),
        ("- 5: The amount must equal\nso: ", "the step"),
        ("because: ", "why it is made"),
        ("- 5: The amount must equal\nthus: it is", "so, because or open, not 'thus'"),
        ("- 5: The amount must be", "begins with"),
        ("- 5: Otherwise", "is meant alone by"),
        ("- 99: Anything", "there is no section '99'"),
        ("- The amount must equal", "begins with"),
        ("- 5: ", "begins with"),
    ],
)
def test_a_ground_without_what_it_needs_or_with_a_wrong_quotation_is_an_error(
    text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_ground(text)


def test_the_cases_of_an_id_have_one_level() -> None:
    levels = {check_id: {case.level for case in cases} for check_id, cases in by_id(CHECKS).items()}
    assert {check_id for check_id, found in levels.items() if len(found) > 1} == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"level": "MUST", "ground": ours(because="so")},
            "check kit/2.2/body: .* so it is no MUST",
        ),
        (
            {"level": "SHOULD", "ground": silent(why="so")},
            "check silent/2.2/body: .* so it is no S",
        ),
        ({"clause": "2.2/strange"}, "2.2/strange"),
        ({"clause": "2.2/strange", "ground": explicit("2.2: paymentId")}, "2.2/strange"),
    ],
)
def test_a_demand_beyond_its_ground_is_an_error(options: dict[str, object], said: str) -> None:
    given = {"clause": "2.2/body", **options}
    with pytest.raises(ValueError, match=said):
        case(**given)  # type: ignore[arg-type]


def test_a_lower_level_than_the_ground_supports_is_possible() -> None:
    assert case("2.2/body", level="SHOULD").level == "SHOULD"


def test_a_ground_tells_its_sentences_and_then_why() -> None:
    ground = derived("5: An authorization outside", so="It must be in time.")
    assert case("2.2/body", ground=ground).ground is ground
    assert ground == read_ground("- 5: An authorization outside\nso: It must be\nin time.")
    assert (ground.kind, *ground.lines) == (
        GroundType.DERIVED,
        "5: “An authorization outside validAfter..validBefore is rejected.”",
        "so: It must be in time.",
    )


# --- what is not covered -------------------------------------------------------------


def test_every_sentence_without_a_check_has_its_reason() -> None:
    written = tomllib.loads((folder("service") / "uncovered.toml").read_text(encoding="utf-8"))
    reasons = {sentence(name): reason for name, reason in written.items()}
    quoted = {each for check in CHECKS for each in check.ground.sentences}
    assert [each for each in SENTENCES if each not in quoted] == list(reasons)
    assert all(reason.endswith(".") and len(reason) > 10 for reason in reasons.values())
