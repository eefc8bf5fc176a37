package staticpod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// Host is what the updater asks of the node.
type Host interface {
	// Node is the node's name.
	Node() string
	// Containers of all pods, and the ID behind an image name, "" if the runtime
	// does not have it.
	Containers(ctx context.Context) ([]cri.Container, error)
	ImageID(ctx context.Context, name string) (string, error)
	// PodSays is what the API server has of a pod of this node: its images by
	// container, and whether the kubelet calls it Ready.
	PodSays(ctx context.Context, namespace, name string) (images map[string]string, ready bool, err error)
}

const (
	// usual is how long a pod may take if the step does not say.
	usual = 5 * time.Minute
	// look is how often it is looked at.
	look = time.Second
)

// Updater is the step "static-pod".
type Updater struct {
	host Host
	root string
	now  func() time.Time
}

// New makes the updater; paths are below root, empty for the node's own.
func New(h Host, root string) *Updater { return &Updater{host: h, root: root, now: time.Now} }

// Name is static-pod.
func (u *Updater) Name() string { return model.UpdaterStaticPod }

// pod is what a step is about.
type pod struct {
	namespace, name string
	// to are the images by container, was those that may be replaced.
	to, was map[string]string
	limit   time.Duration
	// path of the manifest.
	path string
}

// read a step's parameters and find the pod's manifest.
func (u *Updater) read(t updaters.Task) (*pod, []byte, nodefiles.State, error) {
	p := model.StaticPodImages{}
	if err := p.Read(t.Step.Params); err != nil {
		return nil, nil, nodefiles.State{}, refuse("%v", err)
	}
	out := &pod{namespace: p.Namespace, name: p.Pod, to: p.To, was: p.Was, limit: time.Duration(p.ReadySeconds) * time.Second}
	if out.limit <= 0 {
		out.limit = usual
	}
	data, s, err := u.find(out)
	return out, data, s, err
}

// fs refuses everything but files of the manifests' own directory.
func (u *Updater) fs() nodefiles.FS {
	return nodefiles.FS{Root: u.root, Refuse: func(path string) string {
		if filepath.Dir(path) != model.ManifestsDir {
			return "it is not in " + model.ManifestsDir
		}
		return ""
	}}
}

// find the one manifest of a pod.
func (u *Updater) find(p *pod) (data []byte, s nodefiles.State, err error) {
	entries, err := os.ReadDir(filepath.Join("/", u.root, model.ManifestsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, s, fmt.Errorf("static pods: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") { // the kubelet passes over them too
			continue
		}
		path := filepath.Join(model.ManifestsDir, e.Name())
		raw, state, err := u.fs().Read(path)
		if err != nil || !u.means(raw, p) {
			continue
		}
		if p.path != "" {
			return nil, s, refuse("%s and %s are both of pod %s/%s", p.path, path, p.namespace, p.name)
		}
		p.path, data, s = path, raw, state
	}
	return data, s, p.found(data)
}

// found says why what was found is not changed.
func (p *pod) found(data []byte) error {
	if p.path == "" {
		return refuse("no file in %s is the manifest of pod %s/%s (a link is not followed)", model.ManifestsDir, p.namespace, p.name)
	}
	m, err := read(data)
	if err == nil && m.kubeadms() {
		return refuse("%s is a static pod of kubeadm: a ClusterUpdate moves it, with its version", p.path)
	}
	return err
}

func (u *Updater) means(raw []byte, p *pod) bool {
	m, err := read(raw)
	return err == nil && m.is(p.namespace, p.name)
}

// names of the containers that are meant, sorted.
func (p *pod) names() []string {
	out := make([]string, 0, len(p.to))
	for c := range p.to {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// fit says why a manifest's images may not be replaced, nil if they may.
func (p *pod) fit(data []byte) (changes bool, err error) {
	places, err := images(data, p.names())
	if err != nil {
		return false, err
	}
	for _, x := range places {
		to := p.to[x.container]
		switch {
		case x.image == to:
		case x.image != p.was[x.container]:
			return false, refuse("container %s has image %s, which somebody else has put there: %s was expected", x.container, x.image, p.was[x.container])
		case repository(x.image) != repository(to):
			return false, refuse("%s is of another repository than %s", to, x.image)
		default:
			changes = true
		}
	}
	return changes, nil
}

// Observe asks the file, the runtime and the API server.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	p, data, _, err := u.read(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	changes, err := p.fit(data)
	if err != nil {
		return updaters.Observation{}, err
	}
	if changes {
		return updaters.Observation{Detail: p.path + " does not have the image yet"}, nil
	}
	if says := u.runs(ctx, p, p.to); says != "" {
		return updaters.Observation{Detail: says}, nil
	}
	return updaters.Observation{Done: true}, nil
}

// runs says what is missing until a pod runs images and is ready, "" if nothing.
func (u *Updater) runs(ctx context.Context, p *pod, images map[string]string) string {
	all, err := u.host.Containers(ctx)
	if err != nil {
		return err.Error()
	}
	says, ready, err := u.host.PodSays(ctx, p.namespace, p.name+"-"+u.host.Node())
	if err != nil {
		return fmt.Sprintf("the API server does not say whether pod %s is ready: %v", p.name, err)
	}
	for _, c := range p.names() {
		want, err := u.host.ImageID(ctx, images[c])
		switch {
		case err != nil:
			return err.Error()
		case want == "":
			return images[c] + " is not on this node"
		case says[c] != images[c]:
			return fmt.Sprintf("the kubelet has not read the manifest yet: container %s of pod %s has %s", c, p.name, says[c])
		case !u.made(all, p, c, want):
			return fmt.Sprintf("container %s of pod %s does not run %s yet", c, p.name, images[c])
		}
	}
	if !ready {
		return "pod " + p.name + " is not Ready"
	}
	return ""
}

// made reports whether the last container of a name is from an image. That an
// init container has ended is for the pod's readiness to say.
func (u *Updater) made(all []cri.Container, p *pod, name, image string) bool {
	var last *cri.Container
	for i := range all {
		c := &all[i]
		if c.Namespace == p.namespace && c.Pod == p.name+"-"+u.host.Node() && c.Name == name && (last == nil || c.Created.After(last.Created)) {
			last = c
		}
	}
	return last != nil && last.ImageID == image
}

// Update does the next thing that is missing.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	why, err := gaveUp(t)
	if err != nil {
		return updaters.Result{}, err
	}
	if why != "" {
		return u.giveBack(ctx, t, why)
	}
	p, data, s, err := u.read(t)
	if err == nil {
		err = u.write(ctx, t, p, data, s)
	}
	switch {
	case errors.Is(err, errMissing):
		return updaters.Fail(v1alpha1.ReasonImagesMissing, "%v; nothing was changed", err), nil
	case errors.Is(err, errEdit):
		return updaters.Fail(v1alpha1.ReasonStaticPodRefused, "%v", err), nil
	case err != nil:
		return updaters.Result{}, err
	}
	o, err := u.Observe(ctx, t)
	if err != nil || o.Done {
		return updaters.Result{Done: o.Done}, err
	}
	if u.now().Sub(t.Started) > p.limit {
		return updaters.Going(v1alpha1.ReasonUndoing, "its old manifest is put back: %s", o.Detail), giveUp(t, fmt.Sprintf("pod %s/%s was not ready with its new image within %s: %s", p.namespace, p.name, p.limit, o.Detail))
	}
	r := updaters.Going(v1alpha1.ReasonUpdating, "%s", o.Detail)
	r.After = look
	return r, nil
}

// errMissing says that the node does not hold an image.
var errMissing = errors.New("the image is not on this node")

// write the images into the manifest, if it does not have them, after what was
// there is kept.
func (u *Updater) write(ctx context.Context, t updaters.Task, p *pod, data []byte, s nodefiles.State) error {
	changes, err := p.fit(data)
	if err != nil || !changes {
		return err
	}
	for _, c := range p.names() {
		id, err := u.host.ImageID(ctx, p.to[c])
		if err != nil {
			return err
		}
		if id == "" {
			return fmt.Errorf("%w: %s", errMissing, p.to[c])
		}
	}
	after, err := edit(data, p.to)
	if err != nil {
		return err
	}
	if err := keep(t, &kept{Path: p.path, Data: data, Mode: s.Mode, UID: s.UID, GID: s.GID, Ours: model.DigestOf(after), Images: p.was}); err != nil {
		return err
	}
	failpoint.Here(failpoint.StaticPodKept)
	if err := u.fs().Write(p.path, after, s.Mode, int(s.UID), int(s.GID)); err != nil {
		return err
	}
	failpoint.Here(failpoint.StaticPodWritten)
	return nil
}
