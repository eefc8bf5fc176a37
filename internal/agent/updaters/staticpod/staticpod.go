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
	"github.com/refit-dev/refit/internal/distribution"
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
	// PodStatus is the API server's copy of a pod of this node: its images by container,
	// and whether the kubelet reports it Ready.
	PodStatus(ctx context.Context, namespace, name string) (images map[string]string, ready bool, err error)
	// StaticPodDir is where the kubelet reads static pods, "" if it reads none from files.
	StaticPodDir() string
	// Distribution is the row of the node.
	Distribution() distribution.Row
}

const (
	// defaultReadyLimit is how long a pod may take if the step does not say.
	defaultReadyLimit = 5 * time.Minute
	// observeInterval is the time between two observations.
	observeInterval = time.Second
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

// pod is the subject of a step.
type pod struct {
	namespace, name string
	// to are the new images by container, replaceable those that they may replace.
	to, replaceable map[string]string
	limit           time.Duration
	// path of the manifest.
	path string
}

// inspectTask reads a step's parameters and finds the pod's manifest.
func (u *Updater) inspectTask(t updaters.Task) (*pod, []byte, nodefiles.State, error) {
	p := model.StaticPodImages{}
	if err := p.Read(t.Step.Params); err != nil {
		return nil, nil, nodefiles.State{}, editError("%v", err)
	}
	out := &pod{namespace: p.Namespace, name: p.Pod, to: p.To, replaceable: p.Was, limit: time.Duration(p.ReadySeconds) * time.Second}
	if out.limit <= 0 {
		out.limit = defaultReadyLimit
	}
	data, s, err := u.findManifest(out)
	return out, data, s, err
}

// fs refuses everything but files of the manifests' own directory.
func (u *Updater) fs() nodefiles.FS {
	return nodefiles.FS{Root: u.root, Refuse: func(path string) string {
		if dir := u.host.StaticPodDir(); filepath.Dir(path) != dir {
			return "it is not in " + dir
		}
		return ""
	}}
}

// findManifest finds the one manifest of a pod.
func (u *Updater) findManifest(p *pod) (data []byte, s nodefiles.State, err error) {
	dir := u.host.StaticPodDir()
	if dir == "" {
		return nil, s, editError("the kubelet of %s reads no static pods from a directory", u.host.Distribution().Title)
	}
	entries, err := os.ReadDir(filepath.Join("/", u.root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, s, fmt.Errorf("static pods: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") { // the kubelet skips them too
			continue
		}
		path := filepath.Join(dir, e.Name())
		raw, state, err := u.fs().Read(path)
		if err != nil || !u.isManifestOf(raw, p) {
			continue
		}
		if p.path != "" {
			return nil, s, editError("%s and %s are both manifests of pod %s/%s", p.path, path, p.namespace, p.name)
		}
		p.path, data, s = path, raw, state
	}
	return data, s, u.checkManifest(p, data)
}

// checkManifest says why the found manifest is not changed.
func (u *Updater) checkManifest(p *pod, data []byte) error {
	if p.path == "" {
		return editError("no file in %s is the manifest of pod %s/%s (refit follows no link)", u.host.StaticPodDir(), p.namespace, p.name)
	}
	m, err := parseManifest(data)
	if row := u.host.Distribution(); err == nil && m.isOf(row) {
		return editError("%s is a static pod of %s: a ClusterUpdate upgrades it, with its version", p.path, row.Title)
	}
	return err
}

func (u *Updater) isManifestOf(raw []byte, p *pod) bool {
	m, err := parseManifest(raw)
	return err == nil && m.isFor(p.namespace, p.name)
}

// containerNames are the containers of the step, sorted.
func (p *pod) containerNames() []string {
	out := make([]string, 0, len(p.to))
	for c := range p.to {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// checkImages says why a manifest's images may not be replaced, nil if they may.
func (p *pod) checkImages(data []byte) (changes bool, err error) {
	places, err := findImages(data, p.containerNames())
	if err != nil {
		return false, err
	}
	for _, x := range places {
		to := p.to[x.container]
		switch {
		case x.image == to:
		case x.image != p.replaceable[x.container]:
			return false, editError("container %s has image %s, which refit did not write: %s was expected", x.container, x.image, p.replaceable[x.container])
		case repository(x.image) != repository(to):
			return false, editError("%s is of another repository than %s", to, x.image)
		default:
			changes = true
		}
	}
	return changes, nil
}

// Observe checks the file, the runtime and the API server.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	p, data, _, err := u.inspectTask(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	changes, err := p.checkImages(data)
	if err != nil {
		return updaters.Observation{}, err
	}
	if changes {
		return updaters.Observation{Detail: p.path + " does not have the image yet"}, nil
	}
	if says := u.findPodProblem(ctx, p, p.to); says != "" {
		return updaters.Observation{Detail: says}, nil
	}
	return updaters.Observation{Done: true}, nil
}

// findPodProblem says what is missing until a pod runs images and is ready, "" if nothing.
func (u *Updater) findPodProblem(ctx context.Context, p *pod, images map[string]string) string {
	all, err := u.host.Containers(ctx)
	if err != nil {
		return err.Error()
	}
	says, ready, err := u.host.PodStatus(ctx, p.namespace, p.name+"-"+u.host.Node())
	if err != nil {
		return fmt.Sprintf("the API server does not report whether pod %s is ready: %v", p.name, err)
	}
	for _, c := range p.containerNames() {
		want, err := u.host.ImageID(ctx, images[c])
		switch {
		case err != nil:
			return err.Error()
		case want == "":
			return images[c] + " is not on this node"
		case says[c] != images[c]:
			return fmt.Sprintf("the kubelet has not loaded the manifest yet: container %s of pod %s has %s", c, p.name, says[c])
		case !u.runsImage(all, p, c, want):
			return fmt.Sprintf("container %s of pod %s does not run %s yet", c, p.name, images[c])
		}
	}
	if !ready {
		return "pod " + p.name + " is not Ready"
	}
	return ""
}

// runsImage reports whether the newest container of a name is from an image. Whether an init
// container has finished shows in the pod's readiness.
func (u *Updater) runsImage(all []cri.Container, p *pod, name, image string) bool {
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
	why, err := giveUpReason(t)
	if err != nil {
		return updaters.Result{}, err
	}
	if why != "" {
		return u.restoreAfterFailure(ctx, t, why)
	}
	p, data, s, err := u.inspectTask(t)
	if err == nil {
		err = u.writeManifest(ctx, t, p, data, s)
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
		return updaters.InProgress(v1alpha1.ReasonUndoing, "restoring its old manifest: %s", o.Detail), recordGiveUp(t, fmt.Sprintf("pod %s/%s was not ready with its new image within %s: %s", p.namespace, p.name, p.limit, o.Detail))
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "%s", o.Detail)
	r.After = observeInterval
	return r, nil
}

// errMissing says that the node does not have an image.
var errMissing = errors.New("the image is not on this node")

// writeManifest writes the images into the manifest, unless it has them, after a backup of
// what was there.
func (u *Updater) writeManifest(ctx context.Context, t updaters.Task, p *pod, data []byte, s nodefiles.State) error {
	changes, err := p.checkImages(data)
	if err != nil || !changes {
		return err
	}
	for _, c := range p.containerNames() {
		id, err := u.host.ImageID(ctx, p.to[c])
		if err != nil {
			return err
		}
		if id == "" {
			return fmt.Errorf("%w: %s", errMissing, p.to[c])
		}
	}
	after, err := replaceImages(data, p.to)
	if err != nil {
		return err
	}
	if err := saveBackup(t, &backup{Path: p.path, Data: data, Mode: s.Mode, UID: s.UID, GID: s.GID, Ours: model.DigestOf(after), Images: p.replaceable}); err != nil {
		return err
	}
	failpoint.Here(failpoint.StaticPodKept)
	if err := u.fs().Write(p.path, after, s.Mode, int(s.UID), int(s.GID)); err != nil {
		return err
	}
	failpoint.Here(failpoint.StaticPodWritten)
	return nil
}
