package bundlecmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

func TestSplit(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "release", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	parts := strings.Fields(must(t, "bundle", "split", "release", "--size", "24Ki", "--output", "one"))
	if len(parts) < 2 {
		t.Fatal(parts)
	}
	must(t, "bundle", "verify", "one", "--pub", "keys/refit.pub")
	if out := must(t, "bundle", "inspect", parts[1]); !strings.Contains(out, digest) {
		t.Errorf("inspect: %s", out)
	}
	checkList(t, "one", map[string]string{filepath.Base(parts[0]): digest})

	// On two media.
	if err := os.Mkdir("two", 0o755); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join("two", "any name")
	if err := os.Rename(parts[1], moved); err != nil {
		t.Fatal(err)
	}
	must(t, "bundle", "verify", "one,two", "--digest", digest)
	must(t, "bundle", "write", "one,two", "again")
	whole, err := os.ReadFile("release")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile("again"); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("one file again: %d bytes, want %d: %v", len(again), len(whole), err)
	}
	r := refit(t, "bundle", "verify", "one", "--digest", digest)
	if r.code != console.ExitVerification || !strings.Contains(r.err, "is missing: add it") || !strings.Contains(r.err, parts[0]+"): intact") || r.out != "" {
		t.Errorf("one of two: exit %d: %s%s", r.code, r.out, r.err)
	}
	b, err := os.ReadFile(moved)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1000] ^= 1
	if err := os.WriteFile(moved, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"two", "one,two"} {
		if r := refit(t, "bundle", "verify", place, "--digest", digest); r.code != console.ExitVerification || !strings.Contains(r.err, "two/any name)") || !strings.Contains(r.err, "copy it again") {
			t.Errorf("damaged, %s: exit %d: %s", place, r.code, r.err)
		}
	}
	for want, args := range map[string][]string{
		"--size x":         {"release", "--size", "x", "--output", "three"},
		"--size -1":        {"release", "--size", "-1", "--output", "three"},
		"--output DIR":     {"release"},
		"exists already":   {"release", "--size", "24Ki", "--output", "one"},
		"no such file":     {"none", "--output", "three"},
		"a part has a hea": {"release", "--size", "512", "--output", "three"},
	} {
		if r := refit(t, append([]string{"bundle", "split"}, args...)...); r.code != console.ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
}
