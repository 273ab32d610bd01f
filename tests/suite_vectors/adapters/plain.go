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
var tokens = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.([0-9]+))?$`)
var terms = "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"

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

func hashed(kind, fields string, values object) []byte {
	data := keccak([]byte(kind + "(" + fields + ")"))
	for _, field := range strings.Split(fields, ",") {
		kind, name, _ := strings.Cut(field, " ")
		if value := values[name].(string); kind == "string" {
			data = append(data, keccak([]byte(value))...)
		} else {
			data = append(data, word(value)...)
		}
	}
	return keccak(data)
}

func structOf(in object) []byte {
	if in["type"] == "CancelAuthorization" {
		return hashed("CancelAuthorization", "address authorizer,bytes32 nonce", in["message"].(object))
	}
	return hashed(in["type"].(string), terms, in["message"].(object))
}

func domainOf(in object) []byte {
	return hashed("EIP712Domain", "string name,string version,uint256 chainId,address verifyingContract", in["domain"].(object))
}

// base turns a decimal text into base units; false for what is none, or less than a base unit.
func base(text string, decimals int) (string, bool) {
	parts := tokens.FindStringSubmatch(text)
	if parts == nil || len(strings.TrimRight(parts[3], "0")) > decimals {
		return "", false
	}
	fraction := (parts[3] + strings.Repeat("0", decimals))[:decimals]
	number, _ := new(big.Int).SetString(parts[1]+fraction, 10)
	return number.String(), number.BitLen() <= 256
}

func perform(op string, in object) (result object, isValid bool) {
	switch op {
	case "capabilities":
		return object{"name": "Go by hand", "operations": strings.Fields("amount units domain struct digest")}, true
	case "domain":
		return object{"hash": "0x" + hex.EncodeToString(domainOf(in))}, true
	case "struct":
		return object{"hash": "0x" + hex.EncodeToString(structOf(in))}, true
	case "digest":
		whole := append([]byte{0x19, 1}, append(domainOf(in), structOf(in)...)...)
		return object{"hash": "0x" + hex.EncodeToString(keccak(whole))}, true
	}
	text, isText := in["text"].(string)
	decimals, _ := in["decimals"].(float64)
	if !isText || op == "amount" && !digits.MatchString(text) {
		return nil, false
	}
	found, isValid := base(text, int(decimals))
	return object{"base": found}, isValid
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
