"""The JSON-RPC methods of the ledger, by name; their docstrings are their documentation."""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim.chain.rpc import fees, reading, sending, signing

Method = Callable[..., Awaitable[Any]]
READS: dict[str, Method] = {
    "web3_clientVersion": reading.client_version,
    "net_version": reading.net_version,
    "eth_chainId": reading.chain_id,
    "eth_syncing": reading.syncing,
    "eth_blockNumber": reading.height,
    "eth_gasPrice": fees.gas_price,
    "eth_maxPriorityFeePerGas": fees.priority_fee,
    "eth_feeHistory": fees.fee_history,
    "eth_accounts": signing.accounts,
    "eth_requestAccounts": signing.accounts,
    "eth_getBalance": reading.balance,
    "eth_getTransactionCount": reading.transaction_count,
    "eth_getCode": reading.code,
    "eth_getStorageAt": reading.storage,
    "eth_getBlockByNumber": reading.block_by_number,
    "eth_getBlockByHash": reading.block_by_hash,
    "eth_getBlockReceipts": reading.block_receipts,
    "eth_getTransactionByHash": reading.transaction,
    "eth_getRawTransactionByHash": reading.raw_transaction,
    "eth_getTransactionReceipt": reading.receipt,
    "eth_getLogs": reading.logs,
    "eth_newFilter": reading.new_filter,
    "eth_newBlockFilter": reading.new_block_filter,
    "eth_newPendingTransactionFilter": reading.new_transaction_filter,
    "eth_getFilterChanges": reading.filter_changes,
    "eth_getFilterLogs": reading.filter_logs,
    "eth_uninstallFilter": reading.uninstall_filter,
    "eth_call": reading.call,
    "eth_estimateGas": reading.estimate_gas,
}
"""The methods that neither send nor sign; a proxy to a node passes these on to it for anybody."""
METHODS: dict[str, Method] = {
    **READS,
    "eth_sendRawTransaction": sending.send_raw_transaction,
    "eth_sendTransaction": sending.send_transaction,
    "eth_sign": signing.sign_message,
    "personal_sign": signing.personal_sign,
    "eth_signTypedData_v4": signing.sign_typed_data,
}
