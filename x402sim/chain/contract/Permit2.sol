// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

// Permit2's transfers of one token by signature, and the x402 proxies of `exact` and of `upto`, as far as a
// payment uses them: written for this project after the published interfaces. Functions, events, errors and the
// order of checks are those of the deployed contracts; the bytecode and the gas are not.

struct TokenPermissions {
    address token;
    uint256 amount;
}

struct PermitTransferFrom {
    TokenPermissions permitted;
    uint256 nonce;
    uint256 deadline;
}

struct SignatureTransferDetails {
    address to;
    uint256 requestedAmount;
}

interface Signs {
    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4);
}

interface Permits {
    function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external;
}

contract Permit2 {
    mapping(address => mapping(uint256 => uint256)) public nonceBitmap;

    event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask);

    error SignatureExpired(uint256 signatureDeadline);
    error InvalidAmount(uint256 maxAmount);
    error InvalidNonce();
    error InvalidSignatureLength();
    error InvalidSignature();
    error InvalidSigner();
    error InvalidContractSignature();

    string constant PERMISSIONS = "TokenPermissions(address token,uint256 amount)";
    string constant FIELDS = "TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline";

    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        bytes32 kind = keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)");
        return keccak256(abi.encode(kind, keccak256("Permit2"), block.chainid, address(this)));
    }

    function permitTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes calldata signature
    ) external {
        bytes32 kind = keccak256(abi.encodePacked("PermitTransferFrom(", FIELDS, ")", PERMISSIONS));
        take(permit, details, owner, keccak256(fields(kind, permit)), signature);
    }

    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 witness,
        string calldata witnessTypeString,
        bytes calldata signature
    ) external {
        bytes32 kind = keccak256(abi.encodePacked("PermitWitnessTransferFrom(", FIELDS, ",", witnessTypeString));
        take(permit, details, owner, keccak256(abi.encodePacked(fields(kind, permit), witness)), signature);
    }

    function invalidateUnorderedNonces(uint256 word, uint256 mask) external {
        nonceBitmap[msg.sender][word] |= mask;
        emit UnorderedNonceInvalidation(msg.sender, word, mask);
    }

    function fields(bytes32 kind, PermitTransferFrom calldata permit) private view returns (bytes memory) {
        bytes32 permitted =
            keccak256(abi.encode(keccak256(bytes(PERMISSIONS)), permit.permitted.token, permit.permitted.amount));
        return abi.encode(kind, permitted, msg.sender, permit.nonce, permit.deadline);
    }

    function take(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 hashed,
        bytes calldata signature
    ) private {
        uint256 amount = details.requestedAmount;
        if (block.timestamp > permit.deadline) revert SignatureExpired(permit.deadline);
        if (amount > permit.permitted.amount) revert InvalidAmount(permit.permitted.amount);
        uint256 bit = 1 << uint8(permit.nonce);
        uint256 used = nonceBitmap[owner][permit.nonce >> 8];
        if (used & bit != 0) revert InvalidNonce();
        nonceBitmap[owner][permit.nonce >> 8] = used | bit;
        requireSigned(owner, keccak256(abi.encodePacked(hex"1901", DOMAIN_SEPARATOR(), hashed)), signature);
        (bool done, bytes memory answer) = permit.permitted.token.call(
            abi.encodeWithSignature("transferFrom(address,address,uint256)", owner, details.to, amount)
        );
        bool agreed = answer.length == 0 || (answer.length > 31 && abi.decode(answer, (uint256)) == 1);
        require(done && agreed, "TRANSFER_FROM_FAILED");
    }

    function requireSigned(address owner, bytes32 digest, bytes calldata signature) private view {
        if (owner.code.length != 0) {
            bytes4 answer = Signs(owner).isValidSignature(digest, signature);
            if (answer != Signs.isValidSignature.selector) revert InvalidContractSignature();
            return;
        }
        if (signature.length != 65 && signature.length != 64) revert InvalidSignatureLength();
        bytes32 s = bytes32(signature[32:64]);
        uint8 v = signature.length == 65 ? uint8(signature[64]) : uint8(uint256(s) >> 255) + 27;
        if (signature.length == 64) s = bytes32(uint256(s) & type(uint256).max >> 1);
        address signer = ecrecover(digest, v, bytes32(signature[:32]), s);
        if (signer == address(0)) revert InvalidSignature();
        if (signer != owner) revert InvalidSigner();
    }
}

abstract contract Proxy {
    Permit2 public constant PERMIT2 = Permit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);

    event Settled();
    event SettledWithPermit();
    event EIP2612PermitFailedWithReason(address indexed token, address indexed owner, string reason);
    event EIP2612PermitFailedWithPanic(address indexed token, address indexed owner, uint256 errorCode);
    event EIP2612PermitFailedWithData(address indexed token, address indexed owner, bytes data);

    error InvalidAmount();
    error InvalidOwner();
    error InvalidDestination();
    error PaymentTooEarly();
    error Permit2612AmountMismatch();

    struct EIP2612Permit {
        uint256 value;
        uint256 deadline;
        bytes32 r;
        bytes32 s;
        uint8 v;
    }

    function transfer(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails memory details,
        address owner,
        uint256 validAfter,
        bytes32 witness,
        string memory kind,
        bytes calldata signature
    ) internal {
        if (details.requestedAmount == 0) revert InvalidAmount();
        if (owner == address(0)) revert InvalidOwner();
        if (details.to == address(0)) revert InvalidDestination();
        if (block.timestamp < validAfter) revert PaymentTooEarly();
        PERMIT2.permitWitnessTransferFrom(permit, details, owner, witness, kind, signature);
    }

    function approve(EIP2612Permit calldata given, TokenPermissions calldata permitted, address owner) internal {
        if (given.value != permitted.amount) revert Permit2612AmountMismatch();
        address token = permitted.token;
        try Permits(token).permit(owner, address(PERMIT2), given.value, given.deadline, given.v, given.r, given.s) {}
        catch Error(string memory reason) {
            emit EIP2612PermitFailedWithReason(token, owner, reason);
        } catch Panic(uint256 code) {
            emit EIP2612PermitFailedWithPanic(token, owner, code);
        } catch (bytes memory data) {
            emit EIP2612PermitFailedWithData(token, owner, data);
        }
    }
}

contract ExactProxy is Proxy {
    string public constant WITNESS_TYPE_STRING =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH = keccak256("Witness(address to,uint256 validAfter)");

    struct Witness {
        address to;
        uint256 validAfter;
    }

    function settle(
        PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        pay(permit, owner, witness, signature);
        emit Settled();
    }

    function settleWithPermit(
        EIP2612Permit calldata permit2612,
        PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        approve(permit2612, permit.permitted, owner);
        pay(permit, owner, witness, signature);
        emit SettledWithPermit();
    }

    function pay(
        PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) private {
        bytes32 hashed = keccak256(abi.encode(WITNESS_TYPEHASH, witness.to, witness.validAfter));
        SignatureTransferDetails memory details = SignatureTransferDetails(witness.to, permit.permitted.amount);
        transfer(permit, details, owner, witness.validAfter, hashed, WITNESS_TYPE_STRING, signature);
    }
}

contract UptoProxy is Proxy {
    string public constant WITNESS_TYPE_STRING =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH = keccak256("Witness(address to,address facilitator,uint256 validAfter)");

    error UnauthorizedFacilitator();
    error AmountExceedsPermitted();

    struct Witness {
        address to;
        address facilitator;
        uint256 validAfter;
    }

    function settle(
        PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        authorize(permit, amount, witness);
        pay(permit, amount, owner, witness, signature);
        emit Settled();
    }

    function settleWithPermit(
        EIP2612Permit calldata permit2612,
        PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        authorize(permit, amount, witness);
        approve(permit2612, permit.permitted, owner);
        pay(permit, amount, owner, witness, signature);
        emit SettledWithPermit();
    }

    function authorize(PermitTransferFrom calldata permit, uint256 amount, Witness calldata witness) private view {
        if (amount > permit.permitted.amount) revert AmountExceedsPermitted();
        if (msg.sender != witness.facilitator) revert UnauthorizedFacilitator();
    }

    function pay(
        PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) private {
        bytes32 hashed =
            keccak256(abi.encode(WITNESS_TYPEHASH, witness.to, witness.facilitator, witness.validAfter));
        SignatureTransferDetails memory details = SignatureTransferDetails(witness.to, amount);
        transfer(permit, details, owner, witness.validAfter, hashed, WITNESS_TYPE_STRING, signature);
    }
}
