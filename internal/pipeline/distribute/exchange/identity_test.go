package exchange

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "key.pem")
	a, err := LoadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the key must be its owner's alone: %v, %v", st.Mode(), err)
	}
	b, err := LoadIdentity(path)
	if err != nil || a.PublicKey() != b.PublicKey() {
		t.Fatalf("after a restart it is another node: %v", err)
	}
	if len(a.PublicKey()) > 256 {
		t.Fatalf("the public key has %d characters, the API takes 256", len(a.PublicKey()))
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(path); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Fatalf("a rotten key: %v; it must say what to do", err)
	}
}
