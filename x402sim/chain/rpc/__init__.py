"""The JSON-RPC that the chain shows to web3.py, ethers and wallets."""
