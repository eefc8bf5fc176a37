package coldstart

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

const drillFile = "drill.json"

// armed is a drill that was asked of this node.
type armed struct {
	ID string `json:"id"`
	// BootID in which it was asked: it is played in the next.
	BootID string `json:"bootID"`
	// Played is the boot in which it is played; it is noted before anything is taken out,
	// so that a disk that takes no note is not drilled again and again.
	Played string `json:"played,omitempty"`
	Done   bool   `json:"done"`
}

// readDrill reads the note; one that is damaged asks for nothing.
func readDrill(c agentconfig.Config) armed {
	var d armed
	if !statefile.Read(c.Path(drillFile), "no drill is played", func(b []byte) error { return json.Unmarshal(b, &d) }, statefile.At(c.RunPath()).Add) {
		return armed{}
	}
	return d
}

func (d armed) write(c agentconfig.Config) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return fsutil.WriteFile(c.Path(drillFile), b, 0o600)
}

// Arm notes that the next start of the machine is a drill: every held image is taken
// out of the runtime and put back from this node's own copy. fresh is false if this
// drill was noted before: it is not played again.
func Arm(c agentconfig.Config, id, bootID string) (fresh bool, err error) {
	if d := readDrill(c); d.ID == id {
		return false, nil
	}
	return true, armed{ID: id, BootID: bootID}.write(c)
}

// play takes the images out if this start is a drill. Nothing runs yet: the machine
// has restarted, and its kubelet waits for us.
func (c *check) play(ctx context.Context, images []model.HeldImage) error {
	d := readDrill(c.Config)
	if d.ID == "" || d.Done || d.BootID == c.BootID || d.Played != "" && d.Played != c.BootID {
		return nil
	}
	if d.Played == "" {
		d.Played = c.BootID
		if err := d.write(c.Config); err != nil {
			c.note(statefile.NotWritable(c.Config.Path(drillFile), err))
			return nil
		}
	}
	c.deep, c.report.Unclean, c.report.Drill = true, true, d.ID
	if c.played {
		return nil
	}
	c.Log.Warn("this start is a drill: the held images are taken out of the runtime", "drill", d.ID, "images", len(images))
	c.inRuntime.Store(true)
	defer c.inRuntime.Store(false)
	if err := c.Runtime.RemovePods(ctx); err != nil {
		return err
	}
	if err := c.emptyOut(ctx, slices.DeleteFunc(slices.Clone(images), func(i model.HeldImage) bool { return i.Registry })); err != nil {
		return err
	}
	clear(c.whole)
	c.played = true
	return nil
}

// emptyOut takes images out of the runtime, and asks it whether they are gone.
func (c *check) emptyOut(ctx context.Context, images []model.HeldImage) error {
	for _, img := range images {
		if err := c.Runtime.Remove(ctx, img.Name); err != nil {
			return err
		}
	}
	have, err := c.present(ctx, images)
	if err != nil {
		return err
	}
	for _, img := range images {
		if have[img.Name] {
			return fmt.Errorf("drill: image %s is still in the runtime", img.Name)
		}
	}
	return nil
}

// drillDone: it is not played again.
func drillDone(c agentconfig.Config, r Report) error {
	d := readDrill(c)
	if r.Drill == "" || d.ID != r.Drill || d.Done {
		return nil
	}
	d.Done = true
	return d.write(c)
}
