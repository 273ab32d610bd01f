"""What a service and a payer do where they have a choice: for `Settings(policy=...)` and payers.

`ServicePolicy` says what a service does about a lost answer (`lost_answer`), whether it verifies
(`verify`), when it writes its claim (`claim`), what it pays back (`refund`) and what it serves
(`serve`); `PayerPolicy` what a payer does about a payment that fails (`retry`), how it pays for
many requests (`sessions`) and what it may spend (`budget`). Each is an object with one method; an
own object with that method does as well.

    lost_answer  Reconcile, ReconcileLater, AskOnce, SettleAgain, Forget
    verify       VerifyFirst, VerifySome, VerifyFrom, SkipVerify
    claim        ClaimFirst, ClaimAfterVerify, ClaimAfterSettle, ClaimUnseen
    refund       RefundAtExpiry, RefundLater, RefundLessFee, NeverRefund
    serve        ServeSettled, ServeIndexed, ServeBeforeSettle, FailToServe

    retry        GiveUp, SameAuthorization, SameThenNew, NewAuthorization, StartOver
    sessions     PayEach, ReusePayment, OpenSessions, SessionAfter
    budget       NoLimit, AtMost, AtMostEach, AtMostPer

The first of each line is the default. Each is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

_LOST, _SETTLING = "service.policies.lost_answer", "service.policies.settling"
_SERVING, _RETRY = "service.policies.serving", "payer.policies.retry"
_SESSIONS, _BUDGET = "payer.policies.sessions", "payer.policies.budget"
_HOME = {
    "ServicePolicy": "service.policies",
    "PayerPolicy": "payer.policies",
    "AskOnce": _LOST,
    "AtMost": _BUDGET,
    "AtMostEach": _BUDGET,
    "AtMostPer": _BUDGET,
    "ClaimAfterSettle": _SETTLING,
    "ClaimAfterVerify": _SETTLING,
    "ClaimFirst": _SETTLING,
    "ClaimUnseen": _SETTLING,
    "EndedSession": _SERVING,
    "FailToServe": _SERVING,
    "Forget": _LOST,
    "GiveUp": _RETRY,
    "NeverRefund": _SERVING,
    "NewAuthorization": _RETRY,
    "NoLimit": _BUDGET,
    "OpenSessions": _SESSIONS,
    "PayBack": _SERVING,
    "PayEach": _SESSIONS,
    "Reconcile": _LOST,
    "ReconcileLater": _LOST,
    "RefundAtExpiry": _SERVING,
    "RefundLater": _SERVING,
    "RefundLessFee": _SERVING,
    "ReusePayment": _SESSIONS,
    "SameAuthorization": _RETRY,
    "SameThenNew": _RETRY,
    "ServeBeforeSettle": _SERVING,
    "ServeIndexed": _SERVING,
    "ServeSettled": _SERVING,
    "SessionAfter": _SESSIONS,
    "SettleAgain": _LOST,
    "SkipVerify": _SETTLING,
    "StartOver": _RETRY,
    "VerifyFirst": _SETTLING,
    "VerifyFrom": _SETTLING,
    "VerifySome": _SETTLING,
}
__all__ = sorted(_HOME)  # noqa: PLE0605 - one list of names


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'x402sim.policies' has no attribute {name!r}")
    value = getattr(import_module(f"x402sim.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
