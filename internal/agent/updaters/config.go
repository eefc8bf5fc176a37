package updaters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Configs finds rendered configurations in this node's desired state.
type Configs interface {
	// Config returns the text of a Content of type config; ok is false until it
	// has arrived.
	Config(name string) (data string, ok bool)
}

// ErrNoConfig says that the step's configuration has not arrived yet.
var ErrNoConfig = errors.New("the configuration has not arrived on this node yet")

// KnownConfig reports whether a rendered configuration of a version is understood.
func KnownConfig(version string) bool {
	return version == model.ConfigVersion || version == model.ConfigVersionAsImage
}

// Config returns the configuration of a step. The run's directory has a copy from before
// the first change, so that a run ends with the configuration it started with, even if the
// desired state changes meanwhile.
func Config(t Task, from Configs) (*model.NodeConfig, error) {
	name := t.Step.Params[model.ParamConfig]
	kept := filepath.Join(t.Dir, filepath.Base(name)+".json")
	data, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	fresh := err != nil
	if fresh {
		text, ok := from.Config(name)
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, ErrNoConfig)
		}
		data = []byte(text)
	}
	if v1alpha1.ContentName(v1alpha1.ContentConfig, string(data)) != name {
		return nil, fmt.Errorf("configuration %s does not match the digest in its name: it was altered and is not used", name)
	}
	c := &model.NodeConfig{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	if !KnownConfig(c.Version) {
		return nil, fmt.Errorf("configuration %s is of version %q, this agent knows %s: update refit on this node", name, c.Version, model.ConfigVersion)
	}
	if fresh {
		return c, fsutil.WriteFile(kept, data, 0o600)
	}
	return c, nil
}

// LoadConfig is Config for Update. If ok is false, Update returns r: the configuration has not
// arrived yet, or it is unusable.
func LoadConfig(t Task, from Configs) (c *model.NodeConfig, r Result, ok bool) {
	c, err := Config(t, from)
	switch {
	case errors.Is(err, ErrNoConfig):
		return nil, InProgress(v1alpha1.ReasonUpdating, "%v", err), false
	case err != nil:
		return nil, Fail(v1alpha1.ReasonStepFailed, "%v", err), false
	}
	return c, r, true
}
