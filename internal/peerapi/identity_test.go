package peerapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

func TestLoadIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "key.pem")
	a, err := LoadIdentity(path, statefile.Ignore)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the key must be its owner's alone: %v, %v", st.Mode(), err)
	}
	b, err := LoadIdentity(path, statefile.Ignore)
	if err != nil || a.PublicKey() != b.PublicKey() {
		t.Fatalf("after a restart it is another node: %v", err)
	}
	if len(a.PublicKey()) > 256 {
		t.Fatalf("the public key has %d characters, the API takes 256", len(a.PublicKey()))
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range disktest.Damages() {
		d.Apply(t, path)
		var noted []statefile.Problem
		c, err := LoadIdentity(path, func(p statefile.Problem) { noted = append(noted, p) })
		if err != nil || c.PublicKey() == a.PublicKey() || len(noted) != 1 || !strings.Contains(noted[0].Message, path) {
			t.Fatalf("%s: %v, %+v", d.Name, err, noted)
		}
		again, err := LoadIdentity(path, func(p statefile.Problem) { t.Errorf("%s: %+v", d.Name, p) })
		if err != nil || again.PublicKey() != c.PublicKey() {
			t.Fatalf("%s: after a restart it is another node: %v", d.Name, err)
		}
	}
}

// A key that cannot be written is used as long as the agent runs.
func TestAKeyThatCannotBeKept(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		f.Fill()
		var noted []statefile.Problem
		id, err := LoadIdentity(f.Path("state", "key.pem"), func(p statefile.Problem) { noted = append(noted, p) })
		if err != nil || id.PublicKey() == "" || len(noted) != 1 || noted[0].Reason != statefile.ReasonNotWritable {
			t.Fatalf("%v %+v", err, noted)
		}
		f.Free()
		if _, err := LoadIdentity(f.Path("state", "key.pem"), func(p statefile.Problem) { t.Errorf("%+v", p) }); err != nil {
			t.Error(err)
		}
	})
}
