"""The JSON-RPC methods of the ledger: one row each, with its line of documentation."""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim.chain.rpc import fees, reading, sending, signing

Method = Callable[..., Awaitable[Any]]
METHODS: dict[str, tuple[Method, str]] = {
    "web3_clientVersion": (reading.client_version, "the name and version of this server"),
    "net_version": (reading.net_version, "the chain id, as a decimal string"),
    "eth_chainId": (reading.chain_id, "the chain id"),
    "eth_syncing": (reading.syncing, "false: the chain is always in sync"),
    "eth_blockNumber": (reading.height, "the number of the newest block"),
    "eth_gasPrice": (fees.gas_price, "the price of one unit of gas in wei; it is all base fee"),
    "eth_maxPriorityFeePerGas": (fees.priority_fee, "zero: a tip is not needed"),
    "eth_feeHistory": (fees.fee_history, "base fees, how full the blocks were, and tips"),
    "eth_accounts": (signing.accounts, "the accounts of this server"),
    "eth_requestAccounts": (signing.accounts, "the same: a wallet would ask its user first"),
    "eth_getBalance": (reading.balance, "an account's native balance in wei"),
    "eth_getTransactionCount": (
        reading.transaction_count,
        "how many transactions an account has sent, the waiting ones too under `pending`",
    ),
    "eth_getCode": (reading.code, "a contract's code; 0x for any other account"),
    "eth_getStorageAt": (
        reading.storage,
        "a word of the token's storage, where Circle's FiatToken v2.2 has it",
    ),
    "eth_getBlockByNumber": (
        reading.block_by_number,
        "a block by tag or number, null if not mined; `pending` is the next one",
    ),
    "eth_getBlockByHash": (reading.block_by_hash, "a block by hash, null if unknown"),
    "eth_getBlockReceipts": (reading.block_receipts, "a block's receipts, null if not mined"),
    "eth_getTransactionByHash": (
        reading.transaction,
        "a transaction, null if unknown; v=r=s=0 if the chain sent it without a signature",
    ),
    "eth_getRawTransactionByHash": (reading.raw_transaction, "a signed transaction's bytes"),
    "eth_getTransactionReceipt": (
        reading.receipt,
        "the receipt of a transaction, null until mined",
    ),
    "eth_getLogs": (reading.logs, "events, by fromBlock and toBlock or blockHash, address, topics"),
    "eth_newFilter": (reading.new_filter, "a filter of new events; it ends after 5 idle minutes"),
    "eth_newBlockFilter": (reading.new_block_filter, "a filter of new blocks"),
    "eth_newPendingTransactionFilter": (
        reading.new_transaction_filter,
        "a filter of arriving transactions",
    ),
    "eth_getFilterChanges": (reading.filter_changes, "what is new for a filter"),
    "eth_getFilterLogs": (reading.filter_logs, "every event that passes a filter of events"),
    "eth_uninstallFilter": (reading.uninstall_filter, "forget a filter; false if unknown"),
    "eth_call": (reading.call, "the result of a call"),
    "eth_estimateGas": (reading.estimate_gas, "the gas a call needs"),
    "eth_sendRawTransaction": (
        sending.send_raw_transaction,
        "send a signed transaction of type 0 (EIP-155) or 2",
    ),
    "eth_sendTransaction": (
        sending.send_transaction,
        "send from an account of eth_accounts, signed here",
    ),
    "eth_sign": (signing.sign_message, "a message of EIP-191, signed by an account"),
    "personal_sign": (signing.personal_sign, "the same, with the message first"),
    "eth_signTypedData_v4": (
        signing.sign_typed_data,
        "typed data of EIP-712, signed by an account; an object or its JSON text",
    ),
}
