package simhost

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/files"
	"github.com/refit-dev/refit/internal/model"
)

// noUnits is a machine without services, with one configuration.
type noUnits struct{ text string }

func (h noUnits) Config(string) (string, bool) { return h.text, true }
func (noUnits) FindPayload(string, string) (updaters.Payload, error) {
	return updaters.Payload{}, updaters.ErrNoPayload
}
func (noUnits) Unit(context.Context, string) (systemd.Unit, error) { return systemd.Unit{}, nil }
func (noUnits) SetUnit(context.Context, string, string) error      { return nil }
func (noUnits) ReloadUnits(context.Context) error                  { return nil }
func (noUnits) RefreshUnit(context.Context, string, bool) error    { return nil }
func (noUnits) StartUnit(context.Context, string) error            { return nil }

// disk is the path of the booted deployment on the disk: the namespace's own root is a
// link that leads out of it.
func (n *node) disk() string {
	n.t.Helper()
	mark := fmt.Sprint("booted-", n.Boots)
	n.Must("touch", "/etc/"+mark)
	found, err := filepath.Glob(filepath.Join(n.Stateroot(), "deploy", "*", "etc", mark))
	if err != nil || len(found) != 1 {
		n.t.Fatalf("%v %v", found, err)
	}
	n.Must("rm", "/etc/"+mark)
	return filepath.Dir(filepath.Dir(found[0]))
}

// writes has the agent's own code bring files to what is wanted.
func (n *node) writes(record string, want ...model.ConfigFile) {
	n.t.Helper()
	c := model.NodeConfig{Version: model.ConfigVersionAsImage, Files: want}
	text := string(c.JSON())
	dir := n.t.TempDir()
	task := updaters.Task{UID: "u", Attempt: 1, Started: time.Now(), Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "files", Params: map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, text)}}}
	u := files.New(noUnits{text}, n.disk(), record)
	r, err := u.Update(n.t.Context(), task)
	if err != nil || !r.Done {
		n.t.Fatal(r, err)
	}
	for field, v := range u.Fields(n.t.Context(), &c) {
		if v != c.Fields()[field] {
			n.t.Errorf("%s is %q", field, v)
		}
	}
}

// The updater wrote a file of a newer image without a boot. If it restores the booted
// image's file first, the next image's file replaces it. If not, libostree's merge keeps
// the file for ever; a check after the boot repairs that too.
func TestLiveFilesAndTheNextImage(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		record := filepath.Join(t.TempDir(), "files.json")
		two := version(t, "2", Files{"etc/live": "two", "etc/left": "two", "etc/gone": "two"})
		three := version(t, "3", Files{"etc/live": "three", "etc/left": "three", "etc/gone": "three", "etc/new": "three"})
		done(t, n.there(n.step(n.put(two))))
		file := func(path, text string) model.ConfigFile {
			return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(text)}
		}
		asImage := func(path string) model.ConfigFile { return model.ConfigFile{Path: path, AsImage: true} }
		n.writes(record, file("/etc/live", "live"), file("/etc/left", "live"), model.ConfigFile{Path: "/etc/gone", Absent: true}, file("/etc/new", "live"))
		says := func(want string) {
			t.Helper()
			got := n.Must("sh", "-c", "for f in live left gone new; do cat /etc/$f 2>/dev/null || printf -- -; echo; done | tr '\\n' ' '")
			if got != want && got != want+" " {
				t.Errorf("%q, not %q", got, want)
			}
		}
		says("live live - live")
		n.writes(record, asImage("/etc/live"), asImage("/etc/gone"), asImage("/etc/new"))
		says("two live two -")
		done(t, n.there(n.step(n.put(three))))
		n.isOn("3")
		says("three live three three")
		n.writes(record, asImage("/etc/live"), asImage("/etc/left"), asImage("/etc/gone"), asImage("/etc/new"))
		says("three three three three")
	})
}
