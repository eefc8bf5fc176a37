package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// On a host with bootc /usr/local may be a read-only part of the image: the agent is in
// /var then, and its units name it there.
func TestInstallWhereLocalIsReadOnly(t *testing.T) {
	p := root(t)
	local := p.at("/usr/local")
	if err := os.MkdirAll(local, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", local, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(local, unix.MNT_DETACH) })
	r, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t)})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(p.Root, "var/opt/refit/bin/refit-agent")
	unit, err := os.ReadFile(p.agentUnit())
	if err != nil || !slices.Contains(r.Changed, at) || !strings.Contains(string(unit), "ExecStart="+at+" run\n") {
		t.Fatalf("%v; %v\n%s", err, r.Changed, unit)
	}
	if st, err := os.Stat(at); err != nil || st.Mode().Perm() != 0o755 {
		t.Fatal(st, err)
	}
	if err := removeFiles(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(at); err == nil {
		t.Fatal("it is left after the removal")
	}
}
