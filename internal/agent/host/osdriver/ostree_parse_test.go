package osdriver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// As `ostree admin status` of 2022.7 prints it, and with what newer ones add.
func TestOstreeParse(t *testing.T) {
	a, b, c := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	got := parse("  os " + a + ".0 (staged)\n    Version: 2\n    origin refspec: x\n* os " + b + ".1\n    Version: 1\n    Pinned: yes\n    Unlocked: development\n    origin: <unknown origin type>\n  other " + c + ".0 (rollback)\n    origin refspec: y\n")
	want := []ostreeEntry{{osname: "os", checksum: a, serial: "0", staged: true}, {osname: "os", checksum: b, serial: "1", booted: true, pinned: true, unlocked: "development"}, {osname: "other", checksum: c, serial: "0"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(ostreeEntry{})); d != "" {
		t.Fatal(d)
	}
	locked := parse("  os " + a + ".0 (finalization locked) (soft-reboot)\n* os " + b + ".1\n")
	if d := cmp.Diff([]ostreeEntry{{osname: "os", checksum: a, serial: "0", staged: true, locked: true}, {osname: "os", checksum: b, serial: "1", booted: true}}, locked, cmp.AllowUnexported(ostreeEntry{})); d != "" {
		t.Fatal(d)
	}
	if got := drift(got[1:2]); len(got) != 1 {
		t.Fatal(got)
	}
}
