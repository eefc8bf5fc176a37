package bootimagecheck_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
	"github.com/refit-dev/refit/internal/convert"
)

const (
	aleph = "sysroot/.coreos-aleph-version.json"
	cpu   = "proc/cpuinfo"
	v2    = "flags\t: fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm\n"
)

// machine is a tree of real files.
type machine struct {
	t    *testing.T
	root string
	out  bytes.Buffer
}

func newMachine(t *testing.T, files map[string]string) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	for path, text := range files {
		to := filepath.Join(m.root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) check(patience time.Duration) error {
	return bootimagecheck.Check(context.Background(), bootimagecheck.Options{Root: m.root, Arch: "amd64", Now: time.Now, Out: &m.out, Patience: patience})
}

// all files below root, but for consoles' own.
func (m *machine) all() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(m.root, path)
		if name != "run/agetty.reload" {
			out[name] = string(data)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

func file(t *testing.T, f convert.SkewLimits) string {
	t.Helper()
	f.Pool, f.Fix = "workers", "Use image 9.6 or newer: refit bootimage status."
	data, err := f.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var atLeast96 = []v1alpha1.SkewRule{{Name: "os", MinimumOS: "9.6"}}

// A machine that may join is as it was but for the limits, one that may not
// is as it was but for what stands on its console.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		// says is on the console; empty if it joins.
		says []string
	}{
		"no limits": {map[string]string{aleph: `{"build":"8.4.20220101-0"}`}, nil},
		"new enough": {map[string]string{aleph: `{"build":"9.6.20251023-0"}`,
			"etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: atLeast96})}, nil},
		"too old by its aleph": {map[string]string{aleph: `{"build":"9.4.20250101-0"}`, "etc/os-release": "OSTREE_VERSION='9.6.20251023-0'\n",
			"etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: atLeast96})}, []string{"cannot join pool workers", "OS 9.4.20250101-0", "at least 9.6 is wanted", "Use image 9.6 or newer"}},
		"too old by os-release": {map[string]string{"etc/os-release": "OSTREE_VERSION='9.4.20250101-0'\n",
			"etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: atLeast96})}, []string{"OS 9.4.20250101-0"}},
		"it does not say what it is": {map[string]string{"etc/os-release": "ID=mine\n",
			"etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: atLeast96})}, []string{"from an image of an unknown version", "at least OS 9.6 is wanted"}},
		"a processor that is too old": {map[string]string{aleph: `{"build":"9.6.20251023-0"}`, cpu: v2,
			"etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: []v1alpha1.SkewRule{{Name: "cpu", MinimumFacts: map[string]string{"cpu": "x86-64-v3"}}}})}, []string{"this machine has cpu x86-64-v2, at least x86-64-v3 is wanted"}},
		"limits that are unreadable": {map[string]string{aleph: `{"build":"9.6.20251023-0"}`,
			"etc/refit/first-boot.json": `{"apiVersion":"refit.dev/first-boot/v9"}`}, []string{"does not join", "first-boot/v9", "Start it from a newer image"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tc.files)
			before := m.all()
			for range 2 { // the second boot says the same
				err := m.check(time.Minute)
				var refused *bootimagecheck.RefusedError
				if errors.As(err, &refused) != (tc.says != nil) || err != nil && refused == nil {
					t.Fatalf("%v", err)
				}
			}
			after := m.all()
			issue := after["run/issue.d/99-refit-boot-image.issue"]
			for _, s := range tc.says {
				if !strings.Contains(issue, s) || !strings.Contains(m.out.String(), s) {
					t.Errorf("%q is not said: %s", s, issue)
				}
			}
			delete(after, "run/issue.d/99-refit-boot-image.issue")
			if tc.says == nil {
				if issue != "" {
					t.Errorf("a machine that joins says %s", issue)
				}
				delete(before, "etc/refit/first-boot.json")
			}
			if len(after) != len(before) {
				t.Errorf("something else was changed: %v", after)
			}
			for path, text := range before {
				if after[path] != text {
					t.Errorf("%s was changed", path)
				}
			}
		})
	}
}

// stranger is an authority that signed nothing here.
func stranger(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// The report goes to the server whose authority the machine was given, and to no
// other; who cannot be reached changes nothing of the decision.
func TestReport(t *testing.T) {
	t.Parallel()
	var reports []convert.RefusalReport
	busy := true
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy {
			busy = false
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		var received convert.RefusalReport
		if err := json.NewDecoder(r.Body).Decode(&received); err != nil || r.Method != http.MethodPost || r.URL.Path != "/join/secret-token" {
			t.Errorf("%v %s %s", err, r.Method, r.URL)
		}
		reports = append(reports, received)
	}))
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	at := func(r convert.ReportTo) *machine {
		return newMachine(t, map[string]string{aleph: `{"build":"9.4.20250101-0"}`, cpu: v2, "etc/refit/first-boot.json": file(t, convert.SkewLimits{Rules: atLeast96, Report: &r})})
	}
	m := at(convert.ReportTo{URL: server.URL + "/join/secret-token", CA: ca})
	if err := m.check(time.Minute); err == nil {
		t.Error("it joins")
	}
	if len(reports) != 1 || reports[0].OS != "9.4.20250101-0" || reports[0].Machine["cpu"] != "x86-64-v2" || !strings.Contains(reports[0].Message, "at least 9.6") {
		t.Errorf("%+v", reports)
	}
	for name, r := range map[string]convert.ReportTo{
		"an authority that is another": {URL: server.URL + "/join/secret-token", CA: stranger(t)},
		"no server is there":           {URL: "https://127.0.0.1:1/join/secret-token", CA: ca},
		"no authority":                 {URL: server.URL + "/join/secret-token", CA: "x"},
	} {
		m := at(r)
		var refused *bootimagecheck.RefusedError
		if err := m.check(time.Millisecond); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(m.out.String(), "could not be reported everywhere") || strings.Contains(m.out.String(), "secret-token") {
			t.Errorf("%s: %s", name, m.out.String())
		}
	}
	if len(reports) != 1 {
		t.Errorf("another server got the report: %+v", reports)
	}
}
