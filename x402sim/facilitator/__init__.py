"""The mock facilitator: verifies EIP-3009 authorizations and settles them, paying the gas."""
