package updatecmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

func makePipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeTo writes a receipt as the command does.
func writeTo(t *testing.T, output string, text bool) (string, error) {
	t.Helper()
	var b bytes.Buffer
	r := &receiptCommand{Access: &inputs.Access{Out: &b, Err: &b}, output: output, text: text}
	f, err := explain.NewReceiptFile(receiptOf("north", "Done"), signKey(1))
	if err != nil {
		t.Fatal(err)
	}
	err = r.write(f)
	return b.String(), err
}

// On a full stick an earlier receipt stays whole, no half file is left, and the error says why.
func TestAReceiptOnAFullMedium(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		old := writeBytes(t, f.Path("receipt.json"), []byte("an earlier one"))
		f.Fill()
		for _, output := range []string{old, f.Dir} {
			if _, err := writeTo(t, output, false); !fsutil.IsFull(err) {
				t.Errorf("%s: %v", output, err)
			}
		}
		if got, err := os.ReadFile(old); err != nil || string(got) != "an earlier one" {
			t.Errorf("the earlier receipt is %q: %v", got, err)
		}
		after, err := os.ReadDir(f.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range after {
			if !strings.HasPrefix(e.Name(), "filler-") && e.Name() != "receipt.json" && e.Name() != "lost+found" {
				t.Errorf("left over: %s", e.Name())
			}
		}
	})
}

// The file gets a name that FAT takes. What is not a file or a mounted directory is refused, and
// nothing is created there.
func TestWhereAReceiptGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := "refit-receipt-cluster--u-20261126-112000"
	for output, want := range map[string]string{dir: filepath.Join(dir, name+".json"), filepath.Join(dir, "own.json"): filepath.Join(dir, "own.json")} {
		said, err := writeTo(t, output, false)
		if err != nil || !strings.HasPrefix(said, want+": update u is Done, 1 of 1 node done. The receipt is signed with key ") {
			t.Errorf("%s: %v", said, err)
		}
		if code, out := receipts(t, want); code != console.ExitOK {
			t.Errorf("%s is read with exit code %d: %s", want, code, out)
		}
	}
	if said, err := writeTo(t, dir, true); err != nil || !strings.HasPrefix(said, filepath.Join(dir, name+".txt")) {
		t.Errorf("%s: %v", said, err)
	}
	if said, err := writeTo(t, "", true); err != nil || !strings.Contains(said, "refit receipt v1\n") {
		t.Errorf("%s: %v", said, err)
	}
	pipe := filepath.Join(dir, "pipe")
	makePipe(t, pipe)
	for _, output := range []string{filepath.Join(dir, "none", "r.json"), filepath.Join(dir, "none") + "/", pipe, "/dev/null", filepath.Join(dir, "own.json", "x")} {
		if _, err := writeTo(t, output, false); console.ExitCode(err) != console.ExitUsage {
			t.Errorf("%s: %v", output, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory was created for a stick that is not there")
	}
	hostile := receiptOf("north", "Done")
	hostile.Cluster, hostile.Update = "../../x", "a/b:c"
	if got := receiptName(hostile); got != "refit-receipt-.._.._x-a_b_c-20261126-112000" {
		t.Error(got)
	}
}
