"""Each error of a service is documented: on its errors page, and in its OpenAPI document."""

import pytest

from x402sim.protocol.networks import TESTNET
from x402sim.protocol.refusals import Finality, Refusal, RequestError, status_of
from x402sim.service.docs import pages
from x402sim.service.docs.openapi import openapi
from x402sim.spec.decisions import Decisions, alternatives

ERRORS = [*Refusal, *RequestError]
BOTH = pytest.mark.parametrize("choices", [Decisions(), alternatives()], ids=["ours", "others"])


@BOTH
def test_every_error_is_on_the_errors_page(choices):
    text = pages.page("errors", choices, TESTNET, "http://service.test")
    for error in ERRORS:
        never = error is RequestError.SESSION_CANNOT_PAY and choices.short_session_status == 402
        row = f"| `{error.text}` | {status_of(error, choices)} |"
        assert (row in text) is not never


@BOTH
def test_every_refusal_is_in_the_openapi_document(choices):
    api = openapi(choices, 1, TESTNET)
    answers = api["paths"]["/api/pay"]["post"]["responses"]
    for refusal in Refusal:
        answer = answers[str(status_of(refusal, choices))]
        assert f"`{refusal.text}` (7): {refusal.row.cause}" in answer["description"]
        examples = answer["content"]["application/json"]["examples"].values()
        bodies = {each["value"]["error"]: each["value"] for each in examples}
        assert bodies[refusal.text]["final"] is (refusal.row.final is Finality.FINAL)
