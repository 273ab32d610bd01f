import { createConfig } from "ponder";
import { parseAbi } from "viem";

const { rpc, token, chainId } = JSON.parse(process.env.TOLD);
const abi = parseAbi([
  "event Transfer(address indexed from, address indexed to, uint256 value)",
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
  "function balanceOf(address account) view returns (uint256)",
]);

export default createConfig({
  // In memory (`memory://`) this version does not start.
  database: { kind: "pglite" },
  chains: { world: { id: chainId, rpc, pollingInterval: 200 } },
  contracts: { Token: { chain: "world", abi, address: token, startBlock: 0 } },
});
