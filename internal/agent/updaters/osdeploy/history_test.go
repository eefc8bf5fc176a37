package osdeploy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/model"
)

func osFields(t *testing.T, f *updatertest.Fixture) map[string]string {
	t.Helper()
	return f.Make().(*Updater).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage}})
}

// images of the history, without the times.
func images(t *testing.T, f *updatertest.Fixture) string {
	t.Helper()
	g, err := record(filepath.Join(filepath.Dir(f.Task.Dir), "os.json")).load()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range g.History {
		out = append(out, strings.TrimSpace(e.Image+" "+e.Result))
	}
	return strings.Join(out, ", ")
}

// What the machine ran before the first image of refit stays on record through later boots.
func TestStockAndHistory(t *testing.T) {
	f, m := fixture(t)
	m.booted.Image = "quay.example:5000/q/os:41"
	if got := osFields(t, f)[model.FieldOSStock]; got != "" {
		t.Fatalf("before the first image: %q", got)
	}
	stock := "quay.example:5000/q/os@" + oldSum
	if r := drive(t, f, f.Make().Update); !r.Done || osFields(t, f)[model.FieldOSStock] != stock || images(t, f) != newImage {
		t.Fatalf("%+v %v %s", r, osFields(t, f), images(t, f))
	}
	if r := drive(t, f, f.Make().Update); !r.Done || images(t, f) != newImage {
		t.Fatalf("done again: %+v %s", r, images(t, f))
	}
	if r := drive(t, f, f.Make().Undo); !r.Done || images(t, f) != newImage+", "+stock+" returned" {
		t.Fatalf("undone: %+v %s", r, images(t, f))
	}
	f.Task.Attempt++
	m.booted.Image = "another name"
	if r := drive(t, f, f.Make().Update); !r.Done || osFields(t, f)[model.FieldOSStock] != stock {
		t.Fatalf("%+v %v", r, osFields(t, f))
	}
	if got := osFields(t, f)[model.FieldOSHistory]; !strings.HasSuffix(got, " "+newImage) || strings.Count(got, "; ") != 2 {
		t.Fatal(got)
	}
}

// An image with which the node is not well is in the history too, and what it returned to.
func TestHistoryOfAFailedImage(t *testing.T) {
	f, m := fixture(t)
	m.sick = map[string]bool{newSum: true}
	if r := drive(t, f, f.Make().Update); !r.Failed || images(t, f) != newImage+" failed, "+oldImage+" returned" {
		t.Fatalf("%+v %s", r, images(t, f))
	}
}

// A machine that refit had moved before it kept a record has no stock OS on it: what it runs is
// refit's.
func TestNoStockAfterRefit(t *testing.T) {
	f, _ := fixture(t)
	if err := record(filepath.Join(filepath.Dir(f.Task.Dir), "os.json")).update(func(g *recordData) { g.RequestedDigest, g.BootedDigest = oldSum, oldSum }); err != nil {
		t.Fatal(err)
	}
	if r := drive(t, f, f.Make().Update); !r.Done || osFields(t, f)[model.FieldOSStock] != "" {
		t.Fatalf("%+v %v", r, osFields(t, f))
	}
}

func TestStockName(t *testing.T) {
	for _, c := range []struct {
		d    osdriver.Deployment
		want string
	}{
		{osdriver.Deployment{ID: "1", Image: "quay.io/fedora/fedora-bootc:41", Digest: "sha256:aa"}, "quay.io/fedora/fedora-bootc@sha256:aa"},
		{osdriver.Deployment{ID: "1", Image: "r:5000/os@sha256:index", Digest: "sha256:aa"}, "r:5000/os@sha256:aa"},
		{osdriver.Deployment{ID: "1", Image: "/var/tmp/layout", Digest: "sha256:aa"}, "none: sha256:aa is from /var/tmp/layout, which is no name of a registry"},
		{osdriver.Deployment{ID: "4f3a.0", Version: "41.1"}, "none: the deployment 4f3a.0 is from no image, version 41.1"},
		{osdriver.Deployment{ID: "none"}, "none: without an image"},
	} {
		if got := stockName(&c.d); got != c.want {
			t.Errorf("%+v: %s", c.d, got)
		}
	}
}

// The record and the status are bounded.
func TestHistoryIsBounded(t *testing.T) {
	var g recordData
	for i := range 100 {
		g.addHistory(time.Unix(int64(i), 0), fmt.Sprintf("os@sha256:%d", i), "")
		g.addHistory(time.Unix(int64(i), 0), fmt.Sprintf("os@sha256:%d", i), "") // observed again
	}
	if got := g.historyValue(); len(g.History) != maxHistory || strings.Count(got, "; ") != maxReported-1 || !strings.HasSuffix(got, "1970-01-01T00:01:39Z os@sha256:99") {
		t.Fatal(len(g.History), got)
	}
}
