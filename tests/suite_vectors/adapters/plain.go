// An adapter in Go without any library of x402 or Ethereum: amounts and typed data.
// Run: go run plain.go
package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"math/bits"
	"os"
	"regexp"
	"strings"
)

type object = map[string]any

var digits = regexp.MustCompile(`^(0|[1-9][0-9]{0,77})$`)
var terms = "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"
var types = map[string]string{
	"TransferWithAuthorization": terms, "ReceiveWithAuthorization": terms,
	"CancelAuthorization": "address authorizer,bytes32 nonce",
	"Permit":              "address owner,address spender,uint256 value,uint256 nonce,uint256 deadline",
	"TokenPermissions":    "address token,uint256 amount", "Witness": "address to,address facilitator,uint256 validAfter",
	"PermitWitnessTransferFrom": "TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,Witness witness",
	"EIP712Domain":              "string name,string version,uint256 chainId,address verifyingContract",
}

func keccak(data []byte) []byte {
	data = append(append([]byte{}, data...), 1)
	data = append(data, make([]byte, (136-len(data)%136)%136)...)
	data[len(data)-1] |= 0x80
	var a [25]uint64
	for ; len(data) > 0; data = data[136:] {
		for i := 0; i < 17; i++ {
			a[i] ^= binary.LittleEndian.Uint64(data[8*i:])
		}
		for lfsr, round := byte(1), 0; round < 24; round++ {
			var c [5]uint64
			for x := range c {
				c[x] = a[x] ^ a[x+5] ^ a[x+10] ^ a[x+15] ^ a[x+20]
			}
			for i := range a {
				a[i] ^= c[(i+4)%5] ^ bits.RotateLeft64(c[(i+1)%5], 1)
			}
			for x, y, last, t := 1, 0, a[1], 1; t <= 24; t++ {
				x, y = y, (2*x+3*y)%5
				a[x+5*y], last = bits.RotateLeft64(last, t*(t+1)/2%64), a[x+5*y]
			}
			for y := 0; y < 25; y += 5 {
				row := [5]uint64{a[y], a[y+1], a[y+2], a[y+3], a[y+4]}
				for x := range row {
					a[y+x] = row[x] ^ (^row[(x+1)%5] & row[(x+2)%5])
				}
			}
			for j := 0; j < 7; j++ {
				if lfsr&1 == 1 {
					a[0] ^= 1 << (1<<j - 1)
				}
				lfsr = lfsr<<1 ^ lfsr>>7*0x71
			}
		}
	}
	out := make([]byte, 32)
	for i := 0; i < 4; i++ {
		binary.LittleEndian.PutUint64(out[8*i:], a[i])
	}
	return out
}

// word is a value in 32 bytes: hex on the right, or a decimal number.
func word(value string) []byte {
	number, _ := new(big.Int).SetString(strings.TrimPrefix(value, "0x"), map[bool]int{true: 16, false: 10}[strings.HasPrefix(value, "0x")])
	return number.FillBytes(make([]byte, 32))
}

// hashed returns a struct's type and hash; fields without a value are not in the type.
func hashed(kind string, values object) (string, []byte) {
	var fields []string
	inner, data := "", []byte{}
	for _, field := range strings.Split(types[kind], ",") {
		kind, name, _ := strings.Cut(field, " ")
		value, isText := values[name].(string)
		switch parts, isStruct := values[name].(object); {
		case isStruct:
			its, hash := hashed(kind, parts)
			inner, data = inner+its, append(data, hash...)
		case !isText:
			continue
		case kind == "string":
			data = append(data, keccak([]byte(value))...)
		default:
			data = append(data, word(value)...)
		}
		fields = append(fields, field)
	}
	whole := kind + "(" + strings.Join(fields, ",") + ")" + inner
	return whole, keccak(append(keccak([]byte(whole)), data...))
}

func hash(kind, values any) []byte {
	_, found := hashed(kind.(string), values.(object))
	return found
}

func perform(op string, in object) (result object, isValid bool) {
	found := []byte{}
	switch op {
	case "capabilities":
		return object{"name": "Go by hand", "operations": strings.Fields("amount domain struct digest")}, true
	case "amount":
		text, _ := in["text"].(string)
		number, _ := new(big.Int).SetString(text, 10)
		return object{"base": text}, digits.MatchString(text) && number.BitLen() <= 256
	case "domain":
		found = hash("EIP712Domain", in["domain"])
	case "struct":
		found = hash(in["type"], in["message"])
	case "digest":
		found = keccak(append(append([]byte{0x19, 1}, hash("EIP712Domain", in["domain"])...), hash(in["type"], in["message"])...))
	}
	return object{"hash": "0x" + hex.EncodeToString(found)}, true
}

func main() {
	lines, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var request struct {
			Id    int
			Op    string
			Input object
		}
		if lines.Decode(&request) != nil {
			return
		}
		answer := object{"id": request.Id}
		if result, isValid := perform(request.Op, request.Input); isValid {
			answer["result"] = result
		} else {
			answer["error"] = object{"code": "invalid"}
		}
		answers.Encode(answer)
	}
}
