package osdeploy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
)

// marks are small files of one attempt, in one direction.
type marks struct {
	task updaters.Task
	way  string
}

func (m marks) path(what string) string {
	return filepath.Join(m.task.Dir, fmt.Sprintf("%s-%d.%s-%s", m.task.Step.ID, m.task.Attempt, m.way, what))
}

// read is "" if there is no such mark.
func (m marks) read(what string) (string, error) {
	b, err := os.ReadFile(m.path(what))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

func (m marks) write(what, text string) error {
	return fsutil.WriteFile(m.path(what), []byte(text), 0o600)
}

// clear takes all marks of this direction away: the other one begins anew.
func (m marks) clear() error {
	return m.remove("boot", "staged", "same", "waited", "tries", "gaveup")
}

func (m marks) remove(all ...string) error {
	for _, what := range all {
		if err := os.Remove(m.path(what)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// before is what the node had booted before the run changed anything.
type before struct {
	Image  string   `json:"image,omitempty"`
	Digest string   `json:"digest,omitempty"`
	ID     string   `json:"id"`
	Kargs  []string `json:"kargs"`
	// Given are the arguments that refit had given the machine by then.
	Given []string `json:"given,omitempty"`
	// Asked and Booted are what refit had booted by then.
	Asked  string `json:"asked,omitempty"`
	Booted string `json:"booted,omitempty"`
}

func beforePath(t updaters.Task) string {
	return filepath.Join(t.Rollback, t.Step.ID+".before.json")
}

// keep writes down what is booted, once in a run.
func keep(v *view) error {
	if _, err := os.Stat(beforePath(v.task)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b := before{Given: v.target.Drop, Asked: v.given.Asked, Booted: v.given.Booted, ID: v.status.Booted.ID, Image: v.status.Booted.Image, Digest: v.status.Booted.Digest, Kargs: v.status.Running}
	return fsutil.WriteJSON(beforePath(v.task), b)
}

// kept is nil if nothing was changed.
func kept(t updaters.Task) (*before, error) {
	b := &before{}
	switch ok, err := fsutil.ReadJSON(beforePath(t), b); {
	case err != nil:
		return nil, fmt.Errorf("what was booted before: %w", err)
	case !ok:
		return nil, nil
	}
	return b, nil
}

// is reports whether a deployment is what was booted before: the same image, or, if
// it was none, the same tree; deployed once more it has another serial number.
func (b *before) is(d *osdriver.Deployment) bool {
	if d == nil {
		return false
	}
	if b.Digest != "" {
		return d.Digest == b.Digest
	}
	was, _, _ := strings.Cut(b.ID, ".")
	now, _, _ := strings.Cut(d.ID, ".")
	return d.Digest == "" && was == now
}
