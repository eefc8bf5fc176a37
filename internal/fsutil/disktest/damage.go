package disktest

import (
	"bytes"
	"os"
	"testing"
)

// Damage is what a power cut, or another program, makes of a file.
type Damage struct {
	Name string
	// Of returns the damaged content.
	Of func(whole []byte) []byte
}

// Damages of a file that has one value, such as JSON or PEM.
func Damages() []Damage {
	return []Damage{
		{"empty", func([]byte) []byte { return nil }},
		{"zero-filled", func(b []byte) []byte { return make([]byte, max(len(b), 64)) }},
		{"truncated", func(b []byte) []byte { return b[:len(b)/2] }},
		{"zero-tailed", func(b []byte) []byte { return append(bytes.Clone(b[:len(b)/2]), make([]byte, 4096)...) }},
		{"foreign", func([]byte) []byte { return []byte("<?xml version=\"1.0\"?>\n<plist/>\n") }},
	}
}

// Apply damages a file in place. A file that is missing counts as empty.
func (d Damage) Apply(t testing.TB, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, d.Of(b), 0o600); err != nil {
		t.Fatal(err)
	}
}
