// SPDX-License-Identifier: MIT
pragma solidity ^0.8.24;

// What a judge of facilitators puts on its chain: tokens that lie, a wallet that burns gas, and code
// around the token's own code, which the judge moves to a fixed address first. Storage stays where
// the token is, as that code runs by delegatecall.

bytes4 constant TRANSFER = bytes4(
    keccak256("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)")
);
bytes4 constant TRANSFER_BYTES = bytes4(
    keccak256("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)")
);
// One and a half times the most gas that a settlement may take.
uint256 constant BURNT = 15_000_000;

function burn() view {
    uint256 left = gasleft();
    uint256 end = left > BURNT ? left - BURNT : 0;
    while (gasleft() > end) {}
}

function transferOf(bytes calldata called) pure returns (address from, address to, uint256 value) {
    return abi.decode(called[4:100], (address, address, uint256));
}

function delegated(address code, bytes memory called) returns (bytes memory) {
    (bool done, bytes memory answer) = code.delegatecall(called);
    if (!done) {
        assembly {
            revert(add(answer, 32), mload(answer))
        }
    }
    return answer;
}

interface HasTransfer {
    event Transfer(address indexed from, address indexed to, uint256 value);
}

/// A token of which everybody has plenty, and no authorization is used. A call as long as a transfer
/// with an authorization transfers, in the way of each token; any other call answers zero.
abstract contract Rich is HasTransfer {
    function balanceOf(address) external pure returns (uint256) {
        return 1 << 120;
    }

    function move(address from, address to, uint256 value) internal virtual;

    fallback(bytes calldata called) external returns (bytes memory) {
        if (called.length > 160) {
            (address from, address to, uint256 value) = transferOf(called);
            move(from, to, value);
        }
        return abi.encode(0);
    }
}

/// A transfer does nothing: no event, no revert.
contract Silent is Rich {
    function move(address, address, uint256) internal pure override {}
}

/// Keeps a base unit of each transfer, and says so in its event.
contract TakesFee is Rich {
    function move(address from, address to, uint256 value) internal override {
        emit Transfer(from, to, value - 1);
    }
}

/// Its event claims the signed transfer, of a token without worth.
contract Worthless is Rich {
    function move(address from, address to, uint256 value) internal override {
        emit Transfer(from, to, value);
    }
}

/// The same, after it has burnt gas.
contract Burns is Rich {
    function move(address from, address to, uint256 value) internal override {
        burn();
        emit Transfer(from, to, value);
    }
}

/// Answers whoever tries a call, which has no gas price, and reverts in a transaction.
contract RevertsWhenMined is Rich {
    function move(address, address, uint256) internal view override {
        require(tx.gasprice == 0);
    }
}

/// A wallet that accepts every signature (EIP-1271), after it has burnt gas.
contract BurningWallet {
    fallback(bytes calldata) external returns (bytes memory) {
        burn();
        return abi.encode(bytes4(0x1626ba7e));
    }
}

/// Asks payers with code for a transfer, as Circle's token does, and leaves all else to the token.
contract AsksWallets is HasTransfer {
    address constant OWN = address(uint160(uint256(keccak256("the code of a token that asks wallets"))));

    fallback(bytes calldata called) external returns (bytes memory) {
        if (bytes4(called) == TRANSFER || bytes4(called) == TRANSFER_BYTES) {
            (address from, address to, uint256 value) = transferOf(called);
            if (from.code.length > 0) {
                (bool agrees, ) = from.call("");
                require(agrees);
                emit Transfer(from, to, value);
                return "";
            }
        }
        return delegated(OWN, called);
    }
}

/// Gives a token the overload of transferWithAuthorization whose signature is bytes.
contract Overload {
    address constant OWN = address(uint160(uint256(keccak256("the token's own code"))));

    fallback(bytes calldata called) external returns (bytes memory) {
        if (bytes4(called) != TRANSFER_BYTES) return delegated(OWN, called);
        (, , , , , , bytes memory signature) = abi.decode(
            called[4:],
            (address, address, uint256, uint256, uint256, bytes32, bytes)
        );
        uint8 v;
        bytes32 r;
        bytes32 s;
        if (signature.length == 65) {
            assembly {
                r := mload(add(signature, 32))
                s := mload(add(signature, 64))
                v := byte(0, mload(add(signature, 96)))
            }
        }
        return delegated(OWN, bytes.concat(TRANSFER, called[4:196], abi.encode(v, r, s)));
    }
}
