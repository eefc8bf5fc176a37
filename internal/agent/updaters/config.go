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

// Configs are the rendered configurations that this node was told, by name.
type Configs interface {
	// Config is the text of a Content of type config; ok is false while it has
	// not arrived.
	Config(name string) (data string, ok bool)
}

// ErrNoConfig says that the step's configuration has not arrived yet.
var ErrNoConfig = errors.New("the configuration has not arrived on this node yet")

// KnownConfig reports whether a rendered configuration of a version is understood.
func KnownConfig(version string) bool {
	return version == model.ConfigVersion || version == model.ConfigVersionAsImage
}

// Config is the configuration that a step is about. It is kept in the run's
// directory before anything is changed, so that the run ends with the one it
// began with, whatever the node is told meanwhile.
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
		return nil, fmt.Errorf("configuration %s is not what its name says: it was altered and is not used", name)
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
