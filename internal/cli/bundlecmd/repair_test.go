package bundlecmd

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

func TestRepair(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "release", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	must(t, "bundle", "split", "release", "--size", "24Ki", "--output", "parts")
	if out := must(t, "bundle", "repair", "release"); !strings.HasPrefix(out, "intact ") || !strings.Contains(out, digest) {
		t.Errorf("nothing is damaged: %s", out)
	}
	whole, err := os.ReadFile("release")
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(whole)
	broken[len(broken)-1500] ^= 1
	spoil := func(b []byte) {
		t.Helper()
		if err := os.WriteFile("damaged", b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil(broken)
	r := refit(t, "bundle", "repair", "damaged")
	if r.code != console.ExitVerification || !strings.Contains(r.err, "damaged: ") || !strings.Contains(r.err, " at offset ") || !strings.Contains(r.err, "Fix: name another copy with --repair-from") {
		t.Errorf("without a copy: exit %d: %s%s", r.code, r.out, r.err)
	}
	if got, _ := os.ReadFile("damaged"); !bytes.Equal(got, broken) {
		t.Error("it was changed without a copy")
	}
	for _, from := range []string{"release", "parts"} {
		spoil(broken)
		if out := must(t, "bundle", "repair", "damaged", "--repair-from", from); !strings.HasPrefix(out, "repaired ") || !strings.Contains(out, "1 range") {
			t.Errorf("from %s: %s", from, out)
		}
		if got, _ := os.ReadFile("damaged"); !bytes.Equal(got, whole) {
			t.Errorf("from %s: not the bundle", from)
		}
	}
	spoil(broken)
	if r := refit(t, "bundle", "repair", "release", "--repair-from", "damaged"); r.code != 0 || !strings.HasPrefix(r.out, "intact ") {
		t.Errorf("an intact one from a damaged one: exit %d: %s%s", r.code, r.out, r.err)
	}
	twice := bytes.Clone(broken)
	if err := os.WriteFile("twice", twice, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := refit(t, "bundle", "repair", "damaged", "--repair-from", "twice"); r.code != console.ExitVerification || !strings.Contains(r.err, "from a third copy") {
		t.Errorf("damaged in both: exit %d: %s", r.code, r.err)
	}
	header := bytes.Clone(whole)
	header[3*512] ^= 1
	spoil(header)
	if r := refit(t, "bundle", "repair", "damaged", "--repair-from", "release"); r.code != console.ExitVerification || !strings.Contains(r.err, "--digest") {
		t.Errorf("a damaged header: exit %d: %s", r.code, r.err)
	}
	must(t, "bundle", "repair", "damaged", "--repair-from", "release", "--digest", digest)
	if got, _ := os.ReadFile("damaged"); !bytes.Equal(got, whole) {
		t.Error("a damaged header: not the bundle")
	}
	for want, args := range map[string][]string{
		"want sha256":   {"damaged", "--digest", "x"},
		"same file":     {"release", "--repair-from", "release"},
		"no such file":  {"none"},
		"expected sha2": {"release", "--digest", "sha256:" + strings.Repeat("0", 64)},
	} {
		if r := refit(t, append([]string{"bundle", "repair"}, args...)...); r.code != console.ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
}
