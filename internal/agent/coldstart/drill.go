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

// drillNote is a drill that was requested of this node.
type drillNote struct {
	ID string `json:"id"`
	// BootID of the boot in which it was requested: the next boot plays it.
	BootID string `json:"bootID"`
	// Played is the boot in which it is played. It is recorded before anything is removed,
	// so that a node with a read-only disk does not repeat the drill at every boot.
	Played string `json:"played,omitempty"`
	Done   bool   `json:"done"`
}

// readDrill reads the note; a damaged one requests nothing.
func readDrill(c agentconfig.Config) drillNote {
	var d drillNote
	if !statefile.Read(c.Path(drillFile), "no drill is played", func(b []byte) error { return json.Unmarshal(b, &d) }, statefile.At(c.RunPath()).Add) {
		return drillNote{}
	}
	return d
}

func (d drillNote) write(c agentconfig.Config) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return fsutil.WriteFile(c.Path(drillFile), b, 0o600)
}

// Arm makes the next start of the machine a drill: every pinned image is removed from the
// runtime and restored from this node's own copy. fresh is false if this drill was recorded
// before: it is not played again.
func Arm(c agentconfig.Config, id, bootID string) (fresh bool, err error) {
	if d := readDrill(c); d.ID == id {
		return false, nil
	}
	return true, drillNote{ID: id, BootID: bootID}.write(c)
}

// playDrill removes the images if this start is a drill. Nothing runs yet: the machine has
// restarted, and its kubelet waits for this check.
func (c *check) playDrill(ctx context.Context, images []model.PinSetImage) error {
	d := readDrill(c.Config)
	if d.ID == "" || d.Done || d.BootID == c.BootID || d.Played != "" && d.Played != c.BootID {
		return nil
	}
	if d.Played == "" {
		d.Played = c.BootID
		if err := d.write(c.Config); err != nil {
			c.recordProblem(statefile.NotWritable(c.Config.Path(drillFile), err))
			return nil
		}
	}
	c.deep, c.report.Unclean, c.report.Drill = true, true, d.ID
	if c.played {
		return nil
	}
	c.Log.Warn("this start is a drill: removing the pinned images from the runtime", "drill", d.ID, "images", len(images))
	c.inRuntime.Store(true)
	defer c.inRuntime.Store(false)
	if err := c.Runtime.RemovePods(ctx); err != nil {
		return err
	}
	if err := c.removeAll(ctx, slices.DeleteFunc(slices.Clone(images), func(i model.PinSetImage) bool { return i.Registry })); err != nil {
		return err
	}
	clear(c.intact)
	c.played = true
	return nil
}

// removeAll removes images from the runtime, and verifies that they are gone.
func (c *check) removeAll(ctx context.Context, images []model.PinSetImage) error {
	for _, img := range images {
		if err := c.Runtime.Remove(ctx, img.Name); err != nil {
			return err
		}
	}
	have, err := c.presentImages(ctx, images)
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

// recordDrillDone marks the drill as done: it is not played again.
func recordDrillDone(c agentconfig.Config, r Report) error {
	d := readDrill(c)
	if r.Drill == "" || d.ID != r.Drill || d.Done {
		return nil
	}
	d.Done = true
	return d.write(c)
}
