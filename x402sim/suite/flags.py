"""The flags of a run, in one table: the command's and pytest's options are made from it."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

KEY_VARIABLE = "X402SIM_PAYER_KEY"


@dataclass(frozen=True, slots=True)
class Flag:
    """One option. `name` is the argument of `parse_options.parse` that takes its value."""

    name: str
    help: str
    _: KW_ONLY
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
        "target",
        "Target file: how the service differs from the specification. A TOML file, or "
        "spec, x402sim or cronos-paywall.",
        metavar="NAME|FILE",
        default="spec",
    ),
    Flag(
        "payer_key",
        "Private key of a funded payer: 0x and 64 hex digits.",
        metavar="HEX",
        variable=KEY_VARIABLE,
    ),
    Flag(
        "world",
        "Control API of the world around the service (`serve --no-service`).",
        metavar="URL",
    ),
    Flag("rpc_url", "JSON-RPC node of the chain, to read transfers.", metavar="URL"),
    Flag("pay_to", "Expected payTo address.", metavar="ADDRESS"),
    Flag(
        "budget",
        "Most that the payer may sign for, in tokens; what does not fit is left out.",
        metavar="AMOUNT",
        default="3.00",
    ),
    Flag("allow_mainnet", "Allow payments with real money.", kind=bool),
    Flag(
        "network_file",
        "TOML file of more networks, a table `[[network]]` for each: name, chain_id, asset, "
        "token_name, token_symbol, token_version, decimals.",
        kind=Path,
        metavar="FILE",
    ),
    Flag("strict", "Treat SHOULD failures as failures.", kind=bool, pytest=""),
    Flag("patient", "Wait for what takes minutes, too: a run takes about six minutes.", kind=bool),
    Flag(
        "restart",
        "Shell command that restarts the service and returns while it runs: checks what "
        "must survive.",
        metavar="COMMAND",
    ),
    Flag(
        "skip",
        "Skip the ids with this prefix; the reason stands in the report. Repeatable.",
        metavar="ID=REASON",
        is_repeatable=True,
        is_repeated=False,
    ),
    Flag(
        "require",
        "Exit 2 unless the run has these: payments, chain, world, clock, restart, expiry, "
        "refunds; with payments, also the budget for all of them.",
        metavar="NEEDS",
        is_repeatable=True,
        is_repeated=False,
    ),
    Flag("seed", "Random seed of inputs and wallets, to repeat a run.", kind=int),
    Flag(
        "header",
        "Send this header with every request to the service; reports hide the value. Repeatable.",
        metavar="NAME:VALUE",
        is_repeatable=True,
    ),
    Flag("cacert", "Trust the certificates of this PEM file, too.", kind=Path, metavar="FILE"),
    Flag("insecure", "Accept any TLS certificate.", kind=bool),
    Flag(
        "timeout",
        "Longest time for one whole answer.",
        kind=float,
        metavar="SECONDS",
        default=90.0,
        also="--deadline",
        pytest="--answer-timeout",
    ),
    Flag("rate", "Send at most N requests in a second.", kind=float, metavar="N"),
    Flag(
        "max_answer_bytes",
        "Largest body of one answer, after decoding.",
        kind=int,
        metavar="BYTES",
        default=1_048_576,
    ),
)
