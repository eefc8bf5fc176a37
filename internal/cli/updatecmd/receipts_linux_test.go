package updatecmd

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

var receiptDay = time.Date(2026, 11, 26, 11, 20, 0, 0, time.UTC)

// receiptOf is the receipt of a site whose only node is done, or failed.
func receiptOf(site, phase string) explain.Receipt {
	f := explain.ReceiptFacts{Now: receiptDay, Cluster: "cluster-of-" + site, Site: site, Refit: "v0.1.0", UpdateUID: "1", Kubelets: []string{"v1.36.3"},
		Update: explain.Update{Name: "u", Phase: phase, Total: 1, Done: 1, StartedAt: receiptDay.Add(-time.Hour)}}
	if phase == "Halted" {
		f.Update.Done, f.Update.Failed, f.Kubelets = 0, 1, []string{"v1.35.4"}
		f.Update.Blockers, f.Failed = []explain.Blocker{{Reason: "StepFailed", Message: "node w1: step kubelet failed"}}, []explain.FailedNode{{Node: "w1", Reason: "StepFailed"}}
	}
	return explain.NewReceipt(f)
}

func signKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func signedBytes(t testing.TB, r explain.Receipt, key ed25519.PrivateKey, text bool) []byte {
	t.Helper()
	f, err := explain.NewReceiptFile(r, key)
	if err != nil {
		t.Fatal(err)
	}
	if text {
		return []byte(f.Text())
	}
	return f.JSON()
}

func writeBytes(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func publicFile(t testing.TB, key ed25519.PrivateKey) string {
	t.Helper()
	pem, err := bundle.PublicKeyPEM(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return writeBytes(t, filepath.Join(t.TempDir(), "refit.pub"), pem)
}

// receipts runs the command and returns its exit code, its output and its error.
func receipts(t testing.TB, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	c := NewReceipts(&inputs.Access{Out: &b, Err: &b})
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	err := c.Execute()
	if err != nil && err.Error() != "" {
		fmt.Fprintln(&b, err)
	}
	return console.ExitCode(err), b.String()
}

func receiptsJSON(t testing.TB, want int, args ...string) (v explain.Receipts) {
	t.Helper()
	code, out := receipts(t, append(args, "-o", "json")...)
	if code != want {
		t.Fatalf("exit code %d, want %d: %s", code, want, out)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

// A directory full of traps: only the good receipts count, nothing outside is read, and each file
// that claims to be a receipt and is none is named.
func TestHostileDirectoryOfReceipts(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "receipts")
	north, other := signKey(1), signKey(2)
	good := signedBytes(t, receiptOf("north", "Done"), north, false)
	writeBytes(t, filepath.Join(dir, "any name"), good)
	writeBytes(t, filepath.Join(dir, "copy", "b.json"), good)
	writeBytes(t, filepath.Join(dir, "mail.txt"), signedBytes(t, receiptOf("south", "Done"), north, true))
	writeBytes(t, filepath.Join(dir, "other.json"), signedBytes(t, receiptOf("east", "Done"), other, false))
	writeBytes(t, filepath.Join(dir, "unsigned.json"), signedBytes(t, receiptOf("west", "Done"), nil, false))
	writeBytes(t, filepath.Join(dir, "changed.json"), bytes.Replace(good, []byte("eyJ"), []byte("eyK"), 1))
	writeBytes(t, filepath.Join(dir, "torn.json"), good[:len(good)/2])
	writeBytes(t, filepath.Join(dir, "refit-receipt-zeros.json"), make([]byte, 512))
	writeBytes(t, filepath.Join(dir, "large.json"), append(bytes.Clone(good), bytes.Repeat([]byte{' '}, 10<<20)...))
	writeBytes(t, filepath.Join(dir, "evil\x1b[2J\n.json"), []byte(`{"apiVersion":"refit.dev/receipt/v1","kind":"Receipt","site":"\u001b[2J"}`))
	writeBytes(t, filepath.Join(dir, "README.md"), []byte("A receipt has the version refit.dev/receipt/v1.\n"))
	writeBytes(t, filepath.Join(dir, "photo.jpg"), bytes.Repeat([]byte{0xff, 0xd8}, 5000))
	outside := writeBytes(t, filepath.Join(top, "outside", "a.json"), signedBytes(t, receiptOf("outside", "Done"), north, false))
	for link, to := range map[string]string{"link.json": outside, "dir": filepath.Dir(outside), "loop": ".", "up": ".."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	makePipe(t, filepath.Join(dir, "pipe.json"))
	pub := publicFile(t, north)
	v := receiptsJSON(t, console.ExitVerification, dir, "--pub", pub)
	if len(v.Sites) != 2 || v.Sites[0].Receipt.Site != "north" || v.Sites[1].Receipt.Site != "south" || v.Sites[0].SignedBy[0] != pub || v.Copies != 1 || !v.Verified {
		t.Errorf("counted: %+v", v)
	}
	states := map[string]string{}
	for _, r := range v.Rejected {
		states[r.File] = r.State
	}
	for file, state := range map[string]string{"other.json": "UnknownKey", "unsigned.json": "Unsigned", "changed.json": "Damaged", "torn.json": "Damaged", "refit-receipt-zeros.json": "Damaged",
		"large.json": "Damaged", "evil\x1b[2J\n.json": "Damaged"} {
		if states[file] != state {
			t.Errorf("%q is %q, want %s", file, states[file], state)
		}
	}
	if len(v.Rejected) != 7 || v.OtherFiles != 3 || len(v.Skipped) != 1 || !strings.Contains(v.Skipped[0].Why, "4 symbolic links") {
		t.Errorf("%d rejected, %d others, skipped %v", len(v.Rejected), v.OtherFiles, v.Skipped)
	}
	// For people: what does not count stands apart, with the reason.
	code, out := receipts(t, dir, "--pub", pub)
	_, rejected, _ := strings.Cut(out, "Rejected, not counted:")
	if code != console.ExitVerification || !strings.Contains(rejected, "unsigned.json: Unsigned: it is not signed (it claims to be of west)") || strings.Contains(out, "outside") || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d: %s", code, out)
	}
	// Without keys signatures are not verified, and that is in the first line.
	v = receiptsJSON(t, console.ExitVerification, dir)
	if len(v.Sites) != 4 || v.Verified || len(v.Rejected) != 5 {
		t.Errorf("without keys: %d sites, verified %t, %d rejected", len(v.Sites), v.Verified, len(v.Rejected))
	}
	if _, out := receipts(t, dir); !strings.Contains(strings.Split(out, "\n")[0], "not verified") {
		t.Error(out)
	}
}

// The exit code and the table tell whether a person must act, and where.
func TestReceiptsOfSitesInNeed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	north := writeBytes(t, filepath.Join(dir, "a"), signedBytes(t, receiptOf("north", "Done"), nil, false))
	if code, out := receipts(t, dir); code != console.ExitOK || !strings.Contains(out, "1 site with 1 node; sites that need a person: 0.") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := receipts(t, north); code != console.ExitOK || !strings.Contains(out, "1 site with 1 node") {
		t.Errorf("a single file: exit code %d: %s", code, out)
	}
	writeBytes(t, filepath.Join(dir, "b"), signedBytes(t, receiptOf("south", "Halted"), nil, true))
	code, out := receipts(t, dir, "-o", "wide")
	for _, want := range []string{"2 sites with 2 nodes; sites that need a person: 1.", "south (cluster-), update u is Halted: StepFailed: node w1: step kubelet failed", "failed: w1 StepFailed", "v1.36.3  1      1", "StepFailed  1      1"} {
		if code != console.ExitBlocked || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is missing:\n%s", code, want, out)
		}
	}
	for _, args := range [][]string{{filepath.Join(dir, "none")}, {t.TempDir()}, {dir, "-o", "text"}, {dir, "--pub", north}, {}, {dir, dir}} {
		if code, out := receipts(t, args...); code != console.ExitUsage {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

// A directory that is too deep or too large is read as far as the bounds, and the answer says so.
func TestReceiptsBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeBytes(t, filepath.Join(dir, "a"), signedBytes(t, receiptOf("north", "Done"), nil, false))
	writeBytes(t, filepath.Join(dir, strings.Repeat("d/", maxReceiptDepth+1), "b"), signedBytes(t, receiptOf("south", "Done"), nil, false))
	v := receiptsJSON(t, console.ExitBlocked, dir)
	if len(v.Sites) != 1 || len(v.Skipped) != 1 || !strings.Contains(v.Skipped[0].Why, "deep") {
		t.Errorf("%+v", v)
	}
	many := filepath.Join(t.TempDir(), "many")
	writeBytes(t, filepath.Join(many, "0"), signedBytes(t, receiptOf("north", "Done"), nil, false))
	for i := range maxReceiptFiles + 5 {
		if err := os.Symlink("x", filepath.Join(many, fmt.Sprintf("link-%05d", i))); err != nil {
			t.Fatal(err)
		}
	}
	w, err := readReceipts(many, nil)
	if err != nil || !w.incomplete || w.seen != maxReceiptFiles+1 || len(w.unread) != 1 {
		t.Errorf("%v: %d entries read, %v", err, w.seen, w.unread)
	}
}

// 500 files of a stick add up.
func TestReceiptsOf500Sites(t *testing.T) {
	t.Parallel()
	dir, pub := sampleDir(t)
	v := receiptsJSON(t, console.ExitBlocked, dir, "--pub", pub)
	if len(v.Sites) != 500 || v.NeedPerson != 50 || v.Older != 0 || len(v.Rejected) != 0 || len(v.Versions) != 2 || v.Versions[0].Nodes != 450 || v.Reasons[0] != (explain.FleetReason{Reason: "StepFailed", Sites: 50, Nodes: 50}) {
		t.Errorf("%d sites, %d need a person: %v %v", len(v.Sites), v.NeedPerson, v.Versions, v.Reasons)
	}
}

func sampleDir(t testing.TB) (dir, pub string) {
	t.Helper()
	dir = t.TempDir()
	key := signKey(1)
	for i := range 500 {
		phase := "Done"
		if i%10 == 0 {
			phase = "Halted"
		}
		writeBytes(t, filepath.Join(dir, fmt.Sprint(i%20), fmt.Sprintf("receipt-%d.json", i)), signedBytes(t, receiptOf(fmt.Sprintf("site-%03d", i), phase), key, i%3 == 0))
	}
	return dir, publicFile(t, key)
}

func BenchmarkReceipts500(b *testing.B) {
	dir, pub := sampleDir(b)
	for b.Loop() {
		if code, out := receipts(b, dir, "--pub", pub); code != console.ExitBlocked {
			b.Fatal(out)
		}
	}
}
