package simhost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/oci"
)

// The look-alike answers as real hosts do: the same cases run on both. REFIT_REAL_HOST names an OCI
// layout with one image that this very machine can boot, a spare one with bootc or rpm-ostree. It is
// staged and dropped, and the machine does not restart.
func TestConformance(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	image := n.put(version(t, "2", nil))
	src, _, err := hostOf{n}.Image(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	d, err := hostOf{n}.Driver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, digest, _ := strings.Cut(image, "@")
	conforms(t, d, osdriver.Target{Image: image, Digest: digest, Source: src})
}

// The same on this machine, if it is a real host.
func TestRealHostConforms(t *testing.T) {
	layout := os.Getenv("REFIT_REAL_HOST")
	if layout == "" {
		t.Skip("REFIT_REAL_HOST names no OCI layout: this needs a spare machine with bootc or rpm-ostree")
	}
	root, err := oci.OpenSingle(layout)
	if err != nil {
		t.Fatal(err)
	}
	d, err := osdriver.Detect(t.Context(), osdriver.Host{Runner: osdriver.Command{}}, osdriver.Openers{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Name() != osdriver.Bootc && d.Name() != osdriver.RPMOSTree {
		t.Fatalf("this host has %s: the cases are for bootc and rpm-ostree", d.Name())
	}
	digest := root.Desc.Digest.String()
	conforms(t, d, osdriver.Target{Image: "registry.example/os@" + digest, Digest: digest, Source: osdriver.Source{Transport: osdriver.Layout, Location: filepath.Clean(layout)}})
}

// conforms runs what refit relies on between two boots. The host boots what it runs at the end.
func conforms(t *testing.T, d osdriver.Driver, target osdriver.Target) {
	t.Helper()
	ctx := t.Context()
	status := func() osdriver.Status {
		t.Helper()
		s, err := d.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	first := status()
	if first.Booted == nil || first.Booted.ID == "" || !first.NextIsBooted() || first.Staged != nil {
		t.Fatalf("the host boots something else next: restart it first: %+v", first)
	}
	unchanged := func(what string) {
		t.Helper()
		if s := status(); !s.NextIsBooted() || s.Staged != nil || s.Booted.ID != first.Booted.ID {
			t.Fatalf("%s: %+v", what, s)
		}
	}
	must("discard of nothing", d.Discard(ctx))
	unchanged("nothing was dropped, and something changed")

	missing := target
	missing.Source.Location += "-missing"
	if err := d.Stage(ctx, missing); err == nil {
		t.Fatal("an image that is not there is staged")
	}
	must("discard after a failure", d.Discard(ctx))
	unchanged("a failure left something")

	for _, turn := range []string{"first", "second"} {
		must(turn+" staging", d.Stage(ctx, target))
		s := status()
		if !target.IsImageOf(s.Staged) || s.Booted.ID != first.Booted.ID {
			t.Fatalf("%s staging: %+v", turn, s)
		}
		if s.Can(osdriver.CanDownloadOnly) && !s.Staged.Locked {
			t.Fatalf("%s staging: it is not locked: %+v", turn, s.Staged)
		}
	}
	how, err := d.Activate(ctx, target)
	must("activation", err)
	if s := status(); how != osdriver.ByReboot || !target.IsImageOf(s.Next) || s.Staged.Locked {
		t.Fatalf("activated by %s: %+v", how, s)
	}
	must("discard", d.Discard(ctx))
	unchanged("what was staged is left")
}
