package bundlecmd

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

// deltaSite has the bundles old and new, and a delta between them.
func deltaSite(t *testing.T) (digest string) {
	t.Helper()
	site(t)
	program := make([]byte, 100_000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range program {
		program[i] = byte(r.Uint32())
	}
	for _, s := range []struct{ name, version string }{{"old", "v1.36.2"}, {"new", "v1.36.3"}} {
		program = append(program, s.version...)
		program[500]++
		if err := os.WriteFile("kubelet", program, 0o600); err != nil {
			t.Fatal(err)
		}
		digest = strings.TrimSpace(must(t, "bundle", "create", "--output", s.name, "--key", "keys/refit.key", "oci:layout", "payload:kubelet@"+s.version+"=kubelet"))
	}
	if got := strings.TrimSpace(must(t, "bundle", "create", "--base", "old", "--output", "d", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet")); got != digest {
		t.Fatalf("digest %s with --base, %s without", got, digest)
	}
	return digest
}

func TestDeltaAndBack(t *testing.T) {
	digest := deltaSite(t)
	if got := strings.TrimSpace(must(t, "bundle", "restore", "--base", "old", "d", "--output", "again", "--pub", "keys/refit.pub", "--digest", digest)); got != digest {
		t.Errorf("restored %s, want %s", got, digest)
	}
	full, err := os.ReadFile("new")
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile("again")
	if err != nil || !bytes.Equal(full, again) {
		t.Errorf("the restored bundle differs from the one made without --base: %v", err)
	}
	must(t, "bundle", "verify", "again", "--pub", "keys/refit.pub")
	if left, _ := filepath.Glob("d?*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	st, err := os.Stat("d")
	if err != nil || st.Size()*4 > int64(len(full)) {
		t.Errorf("the delta has %v of %d bytes", st.Size(), len(full))
	}
	var v deltaView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "d", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	var old bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "old", "-o", "json")), &old); err != nil {
		t.Fatal(err)
	}
	if v.Base != old.Digest || v.Target.Digest != digest || v.Size != st.Size() || len(v.Images) != 1 || v.Images[0].DeltaSize != 0 || v.Images[0].Copied == 0 ||
		len(v.Payloads) != 1 || v.Payloads[0].Patched != 1 || v.Payloads[0].DeltaSize == 0 || v.Payloads[0].DeltaSize > 1000 {
		t.Errorf("inspect: %+v", v)
	}
	if table := must(t, "bundle", "inspect", "d"); !strings.Contains(table, old.Digest) || !strings.Contains(table, digest) || !strings.Contains(table, "kubelet") {
		t.Error(table)
	}
	if out := must(t, "bundle", "verify", "d", "--pub", "keys/refit.pub"); !strings.Contains(out, "needs base "+old.Digest) {
		t.Error(out)
	}
}

func TestDeltaErrors(t *testing.T) {
	digest := deltaSite(t)
	must(t, "keys", "generate", "--out", "other")
	b, err := os.ReadFile("d")
	if err != nil {
		t.Fatal(err)
	}
	b[2000] ^= 1
	if err := os.WriteFile("bad", b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"bundle restore d --output x", console.ExitUsage, "--base OLD is missing"},
		{"bundle restore d --base old", console.ExitUsage, "--output NEW is missing"},
		{"bundle restore d --base old --output x --digest no", console.ExitUsage, "want sha256:"},
		{"bundle restore d --base new --output x", console.ExitVerification, "needs the base sha256:"},
		{"bundle restore d --base d --output x", console.ExitVerification, "it is a delta"},
		{"bundle restore d --base none --output x", console.ExitUsage, "no such file"},
		{"bundle restore old --base old --output x", console.ExitInternal, "not a delta bundle"},
		{"bundle restore d --base old --output x --pub other/refit.pub", console.ExitVerification, "expected a valid signature"},
		{"bundle restore d --base old --output x --digest sha256:" + strings.Repeat("0", 64), console.ExitVerification, "expected sha256:0000"},
		{"bundle restore bad --base old --output x", console.ExitVerification, "delta is damaged"},
		{"bundle verify bad --digest " + digest, console.ExitVerification, "delta is damaged"},
		{"bundle verify d --pub other/refit.pub", console.ExitVerification, "expected a valid signature"},
		{"bundle create --base d --output x --unsigned oci:layout", console.ExitVerification, "it is a delta"},
		{"bundle create --base none --output x --unsigned oci:layout", console.ExitUsage, "no such file"},
		{"bundle write d stick", console.ExitVerification, "it is a delta, which makes the bundle " + digest},
		{"bundle split d --output parts", console.ExitVerification, "refit bundle restore"},
		{"bundle diff d new", console.ExitVerification, "refit bundle restore"},
	} {
		r := refit(t, strings.Fields(c.line)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit %d, %s; want %d, %q", c.line, r.code, r.err, c.code, c.want)
		}
		for _, file := range []string{"x", "x.partial", "x.full"} {
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s: %s is there", c.line, file)
			}
		}
	}
}
