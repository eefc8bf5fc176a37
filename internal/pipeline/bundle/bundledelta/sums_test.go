package bundledelta

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSumsOfBytesDoNotCarry compares sums of eight bytes at a time with those of one.
func TestSumsOfBytesDoNotCarry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "difference")
		old := rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, "old")
		want := slices.Clone(b)
		for i := range want {
			want[i] += old[i]
		}
		if addBytes(b, old); !bytes.Equal(b, want) {
			t.Fatalf("sums are %x, want %x", b, want)
		}
	})
}
