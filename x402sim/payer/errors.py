"""The exceptions of paying."""

from x402sim.text.printable import printable


class PaymentFailed(Exception):
    """The payment was not made, or it is not known whether it was.

    The text says which, what the server answered, and what to do about it. What the server
    answered is escaped. `why` is the text without what a program that goes on is to do, `todo`.
    """

    def __init__(self, why: str, todo: str = "") -> None:
        self.why = printable(why)
        super().__init__(f"{self.why}. {printable(todo)}" if todo else self.why)


class PaidNotServed(PaymentFailed):
    """The server took a payment and answers 402 again; nothing more was signed.

    The text says what was paid, and how to go on.
    """


class SpendingCapExceeded(PaymentFailed):
    """The server asks for more than this payer may spend; nothing was signed.

    The text says what was asked for, what is allowed, and which option raises it.
    """
