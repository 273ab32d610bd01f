// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/**
 * @title A network's stablecoin on a test node: OpenZeppelin's ERC-3009, minted by its owner.
 * @dev Everything about authorizations is OpenZeppelin's. Added are the three functions of
 * Circle's FiatToken that a payer or a test asks for: `version`, `DOMAIN_SEPARATOR`, `mint`.
 */
contract Stablecoin is ERC3009, Ownable {
    /// @dev The name is that of the token and of its EIP-712 domain: at most 31 bytes.
    constructor(
        string memory name_,
        string memory symbol_,
        string memory version_,
        address owner_
    ) ERC20(name_, symbol_) EIP712(name_, version_) Ownable(owner_) {}

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function version() external view returns (string memory) {
        return _EIP712Version();
    }

    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    function mint(address to, uint256 amount) external onlyOwner returns (bool) {
        _mint(to, amount);
        return true;
    }
}
