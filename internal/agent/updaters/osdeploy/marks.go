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

// Directions of an attempt: into the image, and to what was booted before.
const (
	directionThere = "there"
	directionBack  = "back"
)

// marks are small files of one attempt, in one direction.
type marks struct {
	task      updaters.Task
	direction string
}

func (m marks) path(what string) string {
	return filepath.Join(m.task.Dir, fmt.Sprintf("%s-%d.%s-%s", m.task.Step.ID, m.task.Attempt, m.direction, what))
}

// get is "" if there is no such mark.
func (m marks) get(what string) (string, error) {
	b, err := os.ReadFile(m.path(what))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

func (m marks) set(what, text string) error {
	return fsutil.WriteFile(m.path(what), []byte(text), 0o600)
}

// clear removes all marks of this direction: the other one starts anew.
func (m marks) clear() error {
	return m.remove("boot", "staged", "same", "waited", "tries", "gaveup", "whole")
}

func (m marks) remove(all ...string) error {
	for _, what := range all {
		if err := os.Remove(m.path(what)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// previousBoot is what the node had booted before the run changed anything.
type previousBoot struct {
	Image  string   `json:"image,omitempty"`
	Digest string   `json:"digest,omitempty"`
	ID     string   `json:"id"`
	Kargs  []string `json:"kargs"`
	// OwnKargs are the arguments that refit had set by then.
	OwnKargs []string `json:"given,omitempty"`
	// RequestedDigest and BootedDigest are what refit had booted by then.
	RequestedDigest string `json:"asked,omitempty"`
	BootedDigest    string `json:"booted,omitempty"`
}

func previousBootPath(t updaters.Task) string {
	return filepath.Join(t.Rollback, t.Step.ID+".before.json")
}

// savePreviousBoot records what is booted, once in a run.
func savePreviousBoot(v *view) error {
	if _, err := os.Stat(previousBootPath(v.task)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b := previousBoot{OwnKargs: v.target.Drop, RequestedDigest: v.recorded.RequestedDigest, BootedDigest: v.recorded.BootedDigest, ID: v.status.Booted.ID, Image: v.status.Booted.Image, Digest: v.status.Booted.Digest, Kargs: v.status.Running}
	return fsutil.WriteJSON(previousBootPath(v.task), b)
}

// loadPreviousBoot is nil if nothing was changed.
func loadPreviousBoot(t updaters.Task) (*previousBoot, error) {
	b := &previousBoot{}
	switch ok, err := fsutil.ReadJSON(previousBootPath(t), b); {
	case err != nil:
		return nil, fmt.Errorf("what was booted before: %w", err)
	case !ok:
		return nil, nil
	}
	return b, nil
}

// matches reports whether a deployment is the previous one: the same image or, if that was
// none, the same tree. Deployed again, a tree has another serial number.
func (b *previousBoot) matches(d *osdriver.Deployment) bool {
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
