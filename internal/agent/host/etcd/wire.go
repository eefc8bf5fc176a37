package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The few messages of etcd's API that are needed are read by hand: its own client
// would make the agent half as large again.

var errWire = errors.New("etcd answers in an unknown way")

// field is one field of a message: a number, or bytes.
type field struct {
	num   int
	value uint64
	bytes []byte
}

// fields of a message, in their order.
func fields(b []byte) ([]field, error) {
	var out []field
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errWire
		}
		b = b[n:]
		f := field{num: int(tag >> 3)}
		switch tag & 7 {
		case 0:
			if f.value, n = binary.Uvarint(b); n <= 0 {
				return nil, errWire
			}
			b = b[n:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return nil, errWire
			}
			f.bytes, b = b[n:n+int(size)], b[n+int(size):]
		default:
			return nil, errWire
		}
		out = append(out, f)
	}
	return out, nil
}

// raw sends and receives messages as bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("%w: %T", errWire, v)
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%w: %T", errWire, v)
	}
	*b = append([]byte(nil), data...) // what is given is used again
	return nil
}
