package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

const (
	etcUnit = "/etc/systemd/system/own.service"
	usrUnit = "/usr/lib/systemd/system/own.service"
)

func inImage(text string) model.NodeConfig {
	brought, gone := file(usrUnit, text, model.DisruptionRestart, "own.service"), model.ConfigFile{Path: etcUnit, Absent: true, Stale: true, Disruption: model.DisruptionRestart, Units: []string{"own.service"}}
	brought.InImage = true
	return model.NodeConfig{Files: []model.ConfigFile{gone, file("/etc/motd", "hello", model.DisruptionNone), brought}, Units: []model.ConfigUnit{{Name: "own.service", State: model.UnitEnabled}}}
}

func (n *simNode) put(t *testing.T, path, text string) {
	t.Helper()
	at := filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (n *simNode) there(path string) bool {
	_, err := os.Stat(filepath.Join(n.root, path))
	return err == nil
}

func run(t *testing.T, u *Updater, tk updaters.Task) {
	t.Helper()
	for range 10 {
		r, err := u.Update(t.Context(), tk)
		if err != nil || r.Failed {
			t.Fatal(r, err)
		}
		if r.Done {
			return
		}
	}
	t.Fatal("no end")
}

// A unit moves into the image: before the restart refit's own copy goes, the service
// runs on; after it the image's is verified and runs. Undo brings the copy back.
func TestAUnitMovesIntoTheImage(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	was := model.NodeConfig{Files: []model.ConfigFile{file(etcUnit, "one", model.DisruptionRestart, "own.service")}, Units: []model.ConfigUnit{{Name: "own.service", State: model.UnitEnabled}}}
	run(t, u, task(t, n, was))
	n.reads["own.service"] = etcUnit
	starts, reloads := n.starts["own.service"], n.reload

	c := inImage("two")
	before := task(t, n, c)
	run(t, u, before)
	if n.there(etcUnit) || n.starts["own.service"] != starts || n.reload != reloads {
		t.Fatalf("the copy is there: %v, %d starts more, %d reloads more", n.there(etcUnit), n.starts["own.service"]-starts, n.reload-reloads)
	}
	if f := u.Fields(t.Context(), &c); f["file/"+usrUnit] != "" || f["file/"+etcUnit] != model.ValueAbsent || f[model.FieldFilesDrift] != "" {
		t.Fatalf("before the restart: %v", f)
	}

	n.put(t, usrUnit, "two") // the image is booted
	n.units["own.service"] = &systemd.Unit{Active: "inactive"}
	if o, err := u.Observe(t.Context(), before); err != nil || o.Done || !strings.Contains(o.Detail, "own.service") {
		t.Fatal("a unit that the image brings is not observed", o, err)
	}
	after := before
	after.Step.ID = "files-again"
	run(t, u, after)
	if f := u.Fields(t.Context(), &c); f["file/"+usrUnit] != c.Files[2].Value() || f["unit/own.service"] != model.UnitEnabled || n.there(etcUnit) {
		t.Fatalf("after the restart: %v", f)
	}

	for _, tk := range []updaters.Task{after, before} {
		if r, err := u.Undo(t.Context(), tk); err != nil || !r.Done {
			t.Fatal(r, err)
		}
	}
	if !n.there(etcUnit) {
		t.Fatal("the copy is not back")
	}
}

// A copy that refit did not write is reported and stays where it is.
func TestAForeignCopyIsReported(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	n.put(t, etcUnit, "theirs")
	n.put(t, usrUnit, "two")
	n.units["own.service"] = &systemd.Unit{File: model.UnitEnabled, Active: "active"}
	c := inImage("two")
	run(t, u, task(t, n, c))
	f := u.Fields(t.Context(), &c)
	if !n.there(etcUnit) || f["file/"+etcUnit] != model.ValueAbsent || !strings.Contains(f[model.FieldFilesDrift], etcUnit+" hides "+usrUnit+" of the image; refit did not write it") {
		t.Fatalf("it is there: %v, %v", n.there(etcUnit), f)
	}
	n.put(t, etcUnit, "two") // a copy of the image's own
	run(t, u, task(t, n, c))
	if n.there(etcUnit) {
		t.Fatal("a copy of what the image has is left")
	}
}

// What others changed since refit set it is reported by its path, never by its content;
// a path whose wanted content has changed is no drift.
func TestDrift(t *testing.T) {
	c := config()
	for name, x := range map[string]struct {
		change func(*simNode)
		says   string
	}{
		"nothing":                         {func(*simNode) {}, ""},
		"a file is edited":                {func(n *simNode) { n.put(t, "/etc/sysctl.d/90-edge.conf", "secret words") }, "/etc/sysctl.d/90-edge.conf is not as refit wrote it"},
		"a file is removed":               {func(n *simNode) { _ = os.Remove(filepath.Join(n.root, "etc/probe.conf")) }, "/etc/probe.conf is missing; refit had written it"},
		"a file that had gone comes back": {func(n *simNode) { n.put(t, "/etc/motd", "x") }, "/etc/motd is there again; refit had removed it"},
		"a mode is changed":               {func(n *simNode) { _ = os.Chmod(filepath.Join(n.root, "etc/probe.conf"), 0o666) }, "/etc/probe.conf is not as refit wrote it"},
		"a unit is stopped": {func(n *simNode) { n.units["extra.service"].Active = "inactive" },
			"unit extra.service is enabled and inactive; refit made it enabled"},
		"a unit is being started": {func(n *simNode) { n.units["extra.service"].Active = "activating" }, ""},
		"a unit is being stopped": {func(n *simNode) { n.units["extra.service"].Active = "deactivating" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			u := New(n, n.root, n.root+".json")
			if f := u.Fields(t.Context(), &c); f[model.FieldFilesDrift] != "" {
				t.Fatal("before refit wrote anything:", f[model.FieldFilesDrift])
			}
			tk := task(t, n, c)
			run(t, u, tk)
			x.change(n)
			again := New(n, n.root, n.root+".json") // nothing is in memory
			if f := again.Fields(t.Context(), &c); f[model.FieldFilesDrift] != x.says {
				t.Fatalf("%q, want %q", f[model.FieldFilesDrift], x.says)
			}
			other := config()
			other.Files[0].Data, other.Files[2].Data, other.Files[3] = []byte("newer"), []byte("newer"), file("/etc/motd", "y", "")
			other.Units[1].State = model.UnitMasked
			if f := again.Fields(t.Context(), &other); f[model.FieldFilesDrift] != "" {
				t.Fatal("what is wanted otherwise now:", f[model.FieldFilesDrift])
			}
			if r, err := again.Undo(t.Context(), tk); err != nil || !r.Done {
				t.Fatal(r, err)
			}
			if f := again.Fields(t.Context(), &c); f[model.FieldFilesDrift] != "" {
				t.Fatal("after it was undone:", f[model.FieldFilesDrift])
			}
		})
	}
}

// A step that was given up half-way leaves no drift: only refit changed the files, and a
// return to the earlier configuration must not ask an administrator to repair them.
func TestHalfAStepIsNoDrift(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	was := config()
	run(t, u, task(t, n, was))
	other := config()
	other.Files[0].Data, other.Files[2].Absent, other.Files[3] = []byte("newer"), true, file("/etc/motd", "y", "")
	other.Units = []model.ConfigUnit{{Name: "cups.service", State: model.UnitDisabled}, {Name: "spare.service", State: model.UnitEnabled}}
	n.sick = true
	tk := task(t, n, other)
	for range 5 {
		if r, err := u.Update(t.Context(), tk); err != nil || r.Done {
			t.Fatal(r, err)
		}
	}
	if f := New(n, n.root, n.root+".json").Fields(t.Context(), &was); f["unit/cups.service"] != model.UnitDisabled || f["file//etc/probe.conf"] == was.Files[0].Value() || f[model.FieldFilesDrift] != "" {
		t.Fatalf("after half of another configuration: %v", f)
	}
	n.sick = false
	if r, err := u.Undo(t.Context(), tk); err != nil || !r.Done {
		t.Fatal(r, err)
	}
	n.put(t, "/etc/probe.conf", "theirs")
	if f := u.Fields(t.Context(), &was); f[model.FieldFilesDrift] != "/etc/probe.conf is not as refit wrote it" {
		t.Fatalf("what was given before is not known after an undo: %v", f)
	}
}

// What others changed is restored if the policy asks for it and no pod moves because of
// it; all else waits for an update. Nothing is touched that refit did not set, or that a
// started run changes.
func TestRepair(t *testing.T) {
	idle, dir := func() bool { return false }, t.TempDir()
	c := config()
	c.Drift = model.DriftRepair
	c.Files[0].Disruption = model.DisruptionReload
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	if did, err := u.Repair(t.Context(), dir, &c, idle); err != nil || did != nil || n.there("/etc/sysctl.d/90-edge.conf") {
		t.Fatal("before refit wrote anything:", did, err)
	}
	run(t, u, task(t, n, c))
	well, starts := n.state(), n.starts["probe.service"]
	n.put(t, "/etc/probe.conf", "theirs")                       // reload
	n.put(t, "/etc/sysctl.d/90-edge.conf", "theirs")            // none
	n.put(t, "/etc/systemd/system/extra.service", "[Service2]") // restart: not at once
	n.units["extra.service"].Active = "inactive"
	if did, err := u.Repair(t.Context(), dir, &c, func() bool { return true }); err != nil || did != nil {
		t.Fatal("while a run is under way:", did, err)
	}
	other := c
	other.Drift = ""
	if did, err := u.Repair(t.Context(), dir, &other, idle); err != nil || did != nil {
		t.Fatal("another policy:", did, err)
	}
	did, err := New(n, n.root, n.root+".json").Repair(t.Context(), dir, &c, idle)
	if d := cmp.Diff([]string{"/etc/probe.conf", "/etc/sysctl.d/90-edge.conf", "extra.service"}, did); err != nil || d != "" {
		t.Fatal(err, d)
	}
	f := u.Fields(t.Context(), &c)
	if n.starts["probe.service"] != starts+1 || f[model.FieldFilesDrift] != "/etc/systemd/system/extra.service is not as refit wrote it" || f[model.FieldDriftPolicy] != model.DriftRepair {
		t.Fatalf("%d starts more, %v", n.starts["probe.service"]-starts, f)
	}
	n.put(t, "/etc/systemd/system/extra.service", "[Service]")
	if did, err := u.Repair(t.Context(), dir, &c, idle); err != nil || did != nil || n.state() != well {
		t.Fatal("nothing is left to do:", did, err, cmp.Diff(well, n.state()))
	}
}

// Files and units with a policy of their own: only those that say so are restored, what is ignored is
// not reported, and the others go by the policy of the whole.
func TestDriftRules(t *testing.T) {
	idle, dir := func() bool { return false }, t.TempDir()
	c := config()
	c.Drift = model.DriftIgnore
	for i, own := range []string{model.DriftReport, "", model.DriftRepair, ""} {
		c.Files[i].Drift = own
	}
	c.Units[1].Drift = model.DriftRepair
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	run(t, u, task(t, n, c))
	if f := u.Fields(t.Context(), &c); f[model.FieldFilesReport]+f[model.FieldFilesRepair]+f[model.FieldFilesDrift] != "" {
		t.Fatal("nothing was changed:", f)
	}
	n.put(t, "/etc/probe.conf", "theirs")                       // report
	n.put(t, "/etc/systemd/system/extra.service", "[Service2]") // ignore, as the whole
	n.put(t, "/etc/sysctl.d/90-edge.conf", "theirs")            // repair
	n.put(t, "/etc/motd", "theirs")                             // ignore, as the whole
	n.units["extra.service"].Active = "inactive"                // repair
	f := u.Fields(t.Context(), &c)
	if f[model.FieldFilesReport] != "/etc/probe.conf is not as refit wrote it" || f[model.FieldFilesDrift] != "" || f[model.FieldDriftPolicy] != model.DriftIgnore ||
		f[model.FieldFilesRepair] != "/etc/sysctl.d/90-edge.conf is not as refit wrote it; unit extra.service is enabled and inactive; refit made it enabled" {
		t.Fatal(f)
	}
	did, err := u.Repair(t.Context(), dir, &c, idle)
	if d := cmp.Diff([]string{"/etc/sysctl.d/90-edge.conf", "extra.service"}, did); err != nil || d != "" {
		t.Fatal(err, d)
	}
	if f := u.Fields(t.Context(), &c); f[model.FieldFilesRepair] != "" || f[model.FieldFilesReport] == "" {
		t.Fatal(f)
	}
	c.Drift = model.DriftRepair
	c.Files[3].Drift = model.DriftIgnore
	c.Files[1].Drift = model.DriftIgnore
	if did, err := u.Repair(t.Context(), dir, &c, idle); err != nil || did != nil || !n.there("/etc/motd") {
		t.Fatal("what is reported or ignored was restored:", did, err)
	}
}
