"""The chain's JSON-RPC server, for web3.py, ethers and wallets."""
