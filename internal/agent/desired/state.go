package desired

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/version"
)

// State is the desired state of this node, with the Contents it names. It is immutable.
type State struct {
	// ReadBy is the version of the agent that read the Contents.
	ReadBy     string                  `json:"readBy,omitempty"`
	Generation int64                   `json:"generation"`
	Spec       v1alpha1.NodeUpdateSpec `json:"spec"`
	Hold       model.HoldList          `json:"hold"`
	Trust      model.Trust             `json:"trust"`
	// Made are the parts of images that were made on the site, by the Content that the
	// hold list names, as text.
	Made map[string]string `json:"made,omitempty"`
	// Configs are the rendered configurations that the spec and the steps of its
	// run name, as text.
	Configs map[string]string `json:"configs,omitempty"`
}

// Rendered is a configuration with the name of its Content.
type Rendered struct {
	Name   string
	Config *model.NodeConfig
}

// Rendered are the configurations, the one that is wanted now first.
func (w *State) Rendered() []Rendered {
	var out []Rendered
	for _, name := range configNames(&w.Spec) {
		c := &model.NodeConfig{}
		if json.Unmarshal([]byte(w.Configs[name]), c) == nil && updaters.KnownConfig(c.Version) { // else who applies it says so
			out = append(out, Rendered{name, c})
		}
	}
	return out
}

// configNames are the configurations that a spec names, its run too.
func configNames(spec *v1alpha1.NodeUpdateSpec) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	add(spec.Config)
	add(spec.Stage)
	if spec.Run != nil {
		for _, s := range spec.Run.Steps {
			add(s.Params[model.ParamConfig])
		}
	}
	return out
}

// Approved are the digests that the controller named as approved.
func (w *State) Approved() []string {
	var out []string
	for _, b := range w.Spec.Bundles {
		out = append(out, b.Digest)
	}
	return out
}

// Bundles are the digests that matter to this node: approved, held, run.
func (w *State) Bundles() []string {
	var out []string
	add := func(d string) {
		if d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for _, b := range w.Spec.Bundles {
		add(b.Digest)
	}
	for _, i := range w.Hold.Images {
		add(i.Bundle)
	}
	for _, p := range w.Hold.Payloads {
		add(p.Bundle)
	}
	if w.Spec.Run != nil {
		add(w.Spec.Run.Bundle)
	}
	return out
}

// errEmpty: JSON that is no desired state.
var errEmpty = errors.New("it has none of the fields of a desired state")

// Read returns the desired state that was saved last; nil if there is none, or if the file
// is damaged: the API server has it.
func Read(path string, note statefile.Note) *State {
	w := &State{}
	if !statefile.Read(path, "the API server sends it again", func(b []byte) error {
		if err := json.Unmarshal(b, w); err != nil {
			return err
		}
		if reflect.DeepEqual(w, &State{}) {
			return errEmpty
		}
		return nil
	}, note) {
		return nil
	}
	return w
}

// Save keeps it for the time after a restart.
func (w *State) Save(path string) error {
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("what this node was told: %w", err)
	}
	return fsutil.WriteFile(path, b, 0o600)
}

// Contents are read by name.
type Contents interface {
	Content(ctx context.Context, name string) (*v1alpha1.Content, error)
}

// Resolve reads the Contents that a NodeUpdate names, taking over from before
// what has the same name. A hold list or trust list of a newer controller with members that
// this agent may not ignore is a model.UnknownMembersError.
func Resolve(ctx context.Context, api Contents, nu *v1alpha1.NodeUpdate, before *State) (*State, error) {
	w := &State{ReadBy: version.Version(), Generation: nu.Generation, Spec: nu.Spec}
	same := before != nil && before.ReadBy == w.ReadBy // another version ignored, or knew, other members
	if same && before.Spec.Pins == w.Spec.Pins {
		w.Hold = before.Hold
	} else if err := readContent(ctx, api, v1alpha1.ContentPins, w.Spec.Pins, &w.Hold); err != nil {
		return nil, err
	}
	if same && before.Spec.Trust == w.Spec.Trust {
		w.Trust = before.Trust
	} else if err := readContent(ctx, api, v1alpha1.ContentTrust, w.Spec.Trust, &w.Trust); err != nil {
		return nil, err
	}
	if err := w.readMade(ctx, api, before); err != nil {
		return nil, err
	}
	return w, w.readConfigs(ctx, api, before)
}

// readMade reads the parts of images that are not known already. One that is gone keeps
// nothing else from the node: its image is not held then, and that is said.
func (w *State) readMade(ctx context.Context, api Contents, before *State) error {
	for _, i := range w.Hold.Images {
		if i.Made == "" || w.Made[i.Made] != "" {
			continue
		}
		text := ""
		if before != nil {
			text = before.Made[i.Made]
		}
		if text == "" {
			var err error
			if text, err = contentText(ctx, api, v1alpha1.ContentOSImage, i.Made); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
		}
		if w.Made == nil {
			w.Made = map[string]string{}
		}
		w.Made[i.Made] = text
	}
	return nil
}

// readConfigs reads the rendered configurations that are not known already.
func (w *State) readConfigs(ctx context.Context, api Contents, before *State) error {
	for _, name := range configNames(&w.Spec) {
		text := ""
		if before != nil {
			text = before.Configs[name]
		}
		if text == "" {
			var err error
			if text, err = contentText(ctx, api, v1alpha1.ContentConfig, name); err != nil {
				return err
			}
		}
		if w.Configs == nil {
			w.Configs = map[string]string{}
		}
		w.Configs[name] = text
	}
	return nil
}

func readContent(ctx context.Context, api Contents, kind, name string, into any) error {
	if name == "" {
		return nil
	}
	text, err := contentText(ctx, api, kind, name)
	if err != nil {
		return err
	}
	var unknown *model.UnknownMembersError
	if err := model.ReadContent(text, into); errors.As(err, &unknown) {
		return fmt.Errorf("content %.12s has %w: the controller is newer than this agent (refit %s), which keeps its state", name, err, version.Version())
	} else if err != nil {
		return fmt.Errorf("content %s: %w", name, err)
	}
	return nil
}

// contentText is the data of a Content, compared with its name.
func contentText(ctx context.Context, api Contents, kind, name string) (string, error) {
	c, err := api.Content(ctx, name)
	if err != nil {
		return "", err
	}
	if got := v1alpha1.ContentName(kind, c.Data); got != name || c.Type != kind {
		return "", fmt.Errorf("content %s is of type %s and its data makes the name %s: it was altered and is not used", name, c.Type, got)
	}
	return c.Data, nil
}
