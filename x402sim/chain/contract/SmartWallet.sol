// SPDX-License-Identifier: MIT
pragma solidity ^0.8.24;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// A wallet that is a contract (EIP-1271): its owner's signature is its own. Where an account has
/// this code by delegation (EIP-7702), the account's own key signs.
contract SmartWallet {
    address private _owner;

    constructor(address owner) {
        _owner = owner;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        (address signer, ECDSA.RecoverError problem, ) = ECDSA.tryRecover(hash, signature);
        bool valid = problem == ECDSA.RecoverError.NoError &&
            (signer == _owner || signer == address(this));
        return valid ? this.isValidSignature.selector : bytes4(0xffffffff);
    }
}
