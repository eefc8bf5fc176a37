package bench

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// receiptSites is a large fleet, and receiptLimit the time in which its receipts must add up.
const (
	receiptSites = 500
	receiptLimit = time.Second
)

// receiptSpeed is the time of `refit receipts DIR` with verified signatures.
type receiptSpeed struct {
	Sites        int     `json:"sites"`
	BestSeconds  float64 `json:"bestSeconds"`
	WorstSeconds float64 `json:"worstSeconds"`
	LimitSeconds float64 `json:"limitSeconds"`
	// FloorSeconds is the best time of reading the same files and verifying as many signatures,
	// Ratio that of BestSeconds to it: the same on slow and fast machines.
	FloorSeconds float64 `json:"floorSeconds"`
	Ratio        float64 `json:"ratio"`
	Machine      machine `json:"machine"`
}

// TestReceipts measures five runs of `refit receipts DIR --pub KEY`; the best shows the
// program, the worst what else the machine does. It fails if the best is over the limit.
func TestReceipts(t *testing.T) {
	resultsDir(t) // skips where nothing is measured
	dir, pub := receiptDir(t)
	s := receiptSpeed{Sites: receiptSites, LimitSeconds: receiptLimit.Seconds(), Machine: thisMachine()}
	s.BestSeconds, s.WorstSeconds = fiveRuns(func() { addReceipts(t, dir, pub) })
	s.FloorSeconds, _ = fiveRuns(func() { readAndVerify(t, dir) })
	s.Ratio = s.BestSeconds / s.FloorSeconds
	if s.BestSeconds > s.LimitSeconds {
		t.Errorf("%d receipts took %.2f s, the limit is %.0f s", receiptSites, s.BestSeconds, s.LimitSeconds)
	}
	writeResult(t, "receipts.json", s)
}

// fiveRuns returns the shortest and the longest time of five runs, in seconds.
func fiveRuns(run func()) (best, worst float64) {
	for i := range 5 {
		start := time.Now()
		run()
		took := time.Since(start).Seconds()
		if i == 0 || took < best {
			best = took
		}
		worst = max(worst, took)
	}
	return best, worst
}

// addReceipts runs the command, and counts the sites in its answer.
func addReceipts(t *testing.T, dir, pub string) {
	t.Helper()
	var out bytes.Buffer
	c := updatecmd.NewReceipts(&inputs.Access{Out: &out, Err: io.Discard})
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{dir, "--pub", pub})
	if err := c.Execute(); err != nil {
		t.Fatalf("exit code %d: %v", console.ExitCode(err), err)
	}
	if n := strings.Count(out.String(), "site-"); n < receiptSites {
		t.Fatalf("the table has %d sites, want %d", n, receiptSites)
	}
}

// readAndVerify reads each file, and verifies a signature of as many bytes.
func readAndVerify(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != receiptSites {
		t.Fatalf("%d files, %v", len(files), err)
	}
	key := receiptKey()
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if ed25519.Verify(key.Public().(ed25519.PublicKey), data, make([]byte, ed25519.SignatureSize)) {
			t.Fatal("an empty signature is valid")
		}
	}
}

func receiptKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
}

// receiptDir has the signed receipt of each site.
func receiptDir(t *testing.T) (dir, pub string) {
	t.Helper()
	dir = t.TempDir()
	key := receiptKey()
	now := time.Date(2026, 11, 26, 11, 20, 0, 0, time.UTC)
	for i := range receiptSites {
		site := fmt.Sprintf("site-%03d", i)
		f, err := explain.NewReceiptFile(explain.NewReceipt(explain.ReceiptFacts{
			Now: now, Cluster: "cluster-of-" + site, Site: site, Refit: "v0.1.0", UpdateUID: "1", Kubelets: []string{"v1.36.3"},
			Update: explain.Update{Name: "u", Phase: "Done", Total: 1, Done: 1, StartedAt: now.Add(-time.Hour)},
		}), key)
		if err != nil {
			t.Fatal(err)
		}
		writeReceiptFile(t, filepath.Join(dir, site+".json"), f.JSON())
	}
	pem, err := bundle.PublicKeyPEM(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	pub = filepath.Join(t.TempDir(), "refit.pub")
	writeReceiptFile(t, pub, pem)
	return dir, pub
}

func writeReceiptFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
