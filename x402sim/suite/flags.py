"""The flags of a run, in one table: the command's and pytest's options are made from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY_VARIABLE = "X402SIM_PAYER_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option. `name` is the argument of `parse_options.parse` that takes its value."""

    name: str
    help: str
    kind: type = str
    metavar: str | None = None
    default: Any = None
    variable: str | None = None
    """The environment variable that gives it, too."""
    is_repeatable: bool = False
    also: str = ""
    """Another name of the command's option."""
    pytest: str | None = None
    """The name of pytest's option, if it is another one; empty if pytest has none."""
    is_repeated: bool = True
    """Whether the command that repeats a run has it."""

    @property
    def option(self) -> str:
        """The name of the option."""
        return f"--{self.name.replace('_', '-')}"


FLAGS = (
    Flag(
        name="target",
        metavar="NAME|FILE",
        default="spec",
        help="Target file: how the service differs from the specification. A TOML file, or "
        "spec, x402sim or cronos-paywall.",
    ),
    Flag(
        name="payer_key",
        metavar="HEX",
        variable=KEY_VARIABLE,
        help="Private key of a funded payer: 0x and 64 hex digits.",
    ),
    Flag(
        name="world",
        metavar="URL",
        help="Control API of the world around the service (`serve --no-service`).",
    ),
    Flag(name="rpc_url", metavar="URL", help="JSON-RPC node of the chain, to read transfers."),
    Flag(name="pay_to", metavar="ADDRESS", help="Expected payTo address."),
    Flag(
        name="budget",
        metavar="AMOUNT",
        default="2.00",
        help="Most that the payer may sign for, in tokens; what does not fit is left out.",
    ),
    Flag(name="allow_mainnet", kind=bool, help="Allow payments with real money."),
    Flag(
        name="network_file",
        kind=Path,
        metavar="FILE",
        help="TOML file of more networks, a table `[[network]]` for each: name, chain_id, asset, "
        "token_name, token_symbol, token_version, decimals.",
    ),
    Flag(name="strict", kind=bool, pytest="", help="Treat SHOULD failures as failures."),
    Flag(
        name="patient",
        kind=bool,
        help="Wait for what takes minutes, too: a run takes about six minutes.",
    ),
    Flag(
        name="restart",
        metavar="COMMAND",
        help="Shell command that restarts the service and returns while it runs: checks what "
        "must survive.",
    ),
    Flag(
        name="skip",
        metavar="ID=REASON",
        is_repeatable=True,
        is_repeated=False,
        help="Skip the ids with this prefix; the reason stands in the report. Repeatable.",
    ),
    Flag(
        name="require",
        metavar="NEEDS",
        is_repeatable=True,
        is_repeated=False,
        help="Exit 2 unless the run has these: payments, chain, world, clock, restart, expiry, "
        "refunds; with payments, also the budget for all of them.",
    ),
    Flag(name="seed", kind=int, help="Random seed of inputs and wallets, to repeat a run."),
    Flag(
        name="header",
        metavar="NAME:VALUE",
        is_repeatable=True,
        help="Send this header with every request to the service; reports hide the value. "
        "Repeatable.",
    ),
    Flag(
        name="cacert",
        kind=Path,
        metavar="FILE",
        help="Trust the certificates of this PEM file, too.",
    ),
    Flag(name="insecure", kind=bool, help="Accept any TLS certificate."),
    Flag(
        name="timeout",
        kind=float,
        metavar="SECONDS",
        default=90.0,
        also="--deadline",
        pytest="--answer-timeout",
        help="Longest time for one whole answer.",
    ),
    Flag(name="rate", kind=float, metavar="N", help="Send at most N requests in a second."),
    Flag(
        name="max_answer_bytes",
        kind=int,
        metavar="BYTES",
        default=1_048_576,
        help="Largest body of one answer, after decoding.",
    ),
)
