package desired

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// State is the desired state of this node, with the Contents it names. It is immutable.
type State struct {
	// ReadBy is the version of the agent that read the Contents.
	ReadBy     string                  `json:"readBy,omitempty"`
	Generation int64                   `json:"generation"`
	Spec       v1alpha1.NodeUpdateSpec `json:"spec"`
	Pins       model.PinSet            `json:"hold"`
	Trust      model.Trust             `json:"trust"`
	// Overlays are the overlays of images assembled on the site, as text, by the Content that
	// the pin set names.
	Overlays map[string]string `json:"made,omitempty"`
	// Configs are the rendered configurations that the spec and the steps of its
	// run name, as text.
	Configs map[string]string `json:"configs,omitempty"`
}

// Rendered is a configuration with the name of its Content.
type Rendered struct {
	Name   string
	Config *model.NodeConfig
}

// Rendered returns the configurations, the current one first.
func (w *State) Rendered() []Rendered {
	var out []Rendered
	for _, name := range configNames(&w.Spec) {
		c := &model.NodeConfig{}
		if json.Unmarshal([]byte(w.Configs[name]), c) == nil && updaters.KnownConfig(c.Version) { // else the updater reports it
			out = append(out, Rendered{name, c})
		}
	}
	return out
}

// configNames returns the configurations that a spec and its run name.
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

// Approved returns the digests that the controller named as approved.
func (w *State) Approved() []string {
	var out []string
	for _, b := range w.Spec.Bundles {
		out = append(out, b.Digest)
	}
	return out
}

// Bundles returns the bundles that this node needs: approved, in the pin set, or in the run.
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
	for _, i := range w.Pins.Images {
		add(i.Bundle)
	}
	for _, p := range w.Pins.Payloads {
		add(p.Bundle)
	}
	if w.Spec.Run != nil {
		add(w.Spec.Run.Bundle)
	}
	return out
}

// errEmpty: JSON that has no field of a desired state.
var errEmpty = errors.New("no field of a desired state")

// ReadFile returns the saved desired state; nil if there is none, or if the file is damaged. The
// API server has it too.
func ReadFile(path string, note statefile.Note) *State {
	w := &State{}
	if !statefile.Read(path, "the API server sends it again", w.decode, note) {
		return nil
	}
	return w
}

func (w *State) decode(b []byte) error {
	if err := json.Unmarshal(b, w); err != nil {
		return err
	}
	if reflect.DeepEqual(w, &State{}) {
		return errEmpty
	}
	return nil
}

// Peek reads the saved desired state to show it. It leaves a damaged file where it is.
func Peek(path string) (*State, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("desired state: %w", err)
	}
	w := &State{}
	if err := w.decode(b); err != nil {
		return nil, fmt.Errorf("desired state %s is damaged: %w", path, err)
	}
	return w, nil
}

// Save writes the desired state to disk for the time after a restart.
func (w *State) Save(path string) error {
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode desired state: %w", err)
	}
	return fsutil.WriteFile(path, b, 0o600)
}

// Contents reads Contents by name.
type Contents interface {
	Content(ctx context.Context, name string) (*v1alpha1.Content, error)
}

// Resolve reads the Contents that a NodeUpdate names, and reuses those of the state before with
// the same name. It returns a model.UnknownMembersError if a newer controller wrote members that
// this agent must not ignore.
func Resolve(ctx context.Context, api Contents, nu *v1alpha1.NodeUpdate, before *State) (*State, error) {
	w := &State{ReadBy: componentversion.Refit(), Generation: nu.Generation, Spec: nu.Spec}
	same := before != nil && before.ReadBy == w.ReadBy // another version of the agent ignored other members
	if same && before.Spec.Pins == w.Spec.Pins {
		w.Pins = before.Pins
	} else if err := readContent(ctx, api, v1alpha1.ContentPins, w.Spec.Pins, &w.Pins); err != nil {
		return nil, err
	}
	if same && before.Spec.Trust == w.Spec.Trust {
		w.Trust = before.Trust
	} else if err := readContent(ctx, api, v1alpha1.ContentTrust, w.Spec.Trust, &w.Trust); err != nil {
		return nil, err
	}
	if err := w.readOverlays(ctx, api, before); err != nil {
		return nil, err
	}
	return w, w.readConfigs(ctx, api, before)
}

// readOverlays reads the overlays that before does not have. A deleted one does not block the rest:
// StoreOverlays reports its image.
func (w *State) readOverlays(ctx context.Context, api Contents, before *State) error {
	for _, i := range w.Pins.Images {
		if i.Overlay == "" || w.Overlays[i.Overlay] != "" {
			continue
		}
		text := ""
		if before != nil {
			text = before.Overlays[i.Overlay]
		}
		if text == "" {
			var err error
			if text, err = contentText(ctx, api, v1alpha1.ContentOSImage, i.Overlay); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
		}
		if w.Overlays == nil {
			w.Overlays = map[string]string{}
		}
		w.Overlays[i.Overlay] = text
	}
	return nil
}

// readConfigs reads the rendered configurations that before does not have.
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
	if err := model.DecodeContent(text, into); errors.As(err, &unknown) {
		return fmt.Errorf("content %.12s has %w: the controller is newer than this agent (refit %s), which keeps its previous desired state", name, err, componentversion.Refit())
	} else if err != nil {
		return fmt.Errorf("content %s: %w", name, err)
	}
	return nil
}

// contentText returns the data of a Content, verified against its name.
func contentText(ctx context.Context, api Contents, kind, name string) (string, error) {
	c, err := api.Content(ctx, name)
	if err != nil {
		return "", err
	}
	if got := v1alpha1.ContentName(kind, c.Data); got != name || c.Type != kind {
		return "", fmt.Errorf("content %s was altered and is not used: its type %s and its data give the name %s", name, c.Type, got)
	}
	return c.Data, nil
}
