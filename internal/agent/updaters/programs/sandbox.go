package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// SandboxHost is what the updater asks of the node.
type SandboxHost interface {
	servicerestart.Host
	updaters.Configs
	// SandboxImage is the image that the runtime's configuration files result in.
	SandboxImage(ctx context.Context) (string, error)
	// ImageID is the ID behind an image name, "" if the node does not have it.
	ImageID(ctx context.Context, name string) (string, error)
}

// SandboxDropin is refit's own file in a directory that containerd 2 reads by default. It
// sorts after the usual names, so that it wins.
const SandboxDropin = "/etc/containerd/conf.d/99-refit-sandbox.toml"

// sandboxLimit is how long a runtime may take to come back before the step fails.
const sandboxLimit = 5 * time.Minute

// SandboxUpdater is the step "sandbox-image".
type SandboxUpdater struct {
	host SandboxHost
	file updaters.OwnFile
	now  func() time.Time
}

// NewSandbox makes the updater; the drop-in is below root, empty for the node's own.
func NewSandbox(h SandboxHost, root string) *SandboxUpdater {
	return &SandboxUpdater{host: h, file: updaters.OwnFile{FS: nodefiles.FS{Root: root}, Path: SandboxDropin}, now: time.Now}
}

// Name is sandbox-image.
func (u *SandboxUpdater) Name() string { return "sandbox-image" }

func dropinText(image string) []byte {
	return fmt.Appendf(nil, "# Written by refit. What stands here counts over config.toml.\nversion = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = '%s'\n", image)
}

// Observe checks the runtime's configuration and its process.
func (u *SandboxUpdater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return updaters.Observation{}, err
	}
	no := func(format string, args ...any) (updaters.Observation, error) {
		return updaters.Observation{Detail: fmt.Sprintf(format, args...)}, nil
	}
	is, err := u.host.SandboxImage(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	if is != c.SandboxImage {
		return no("the container runtime uses the sandbox image %s", is)
	}
	s, err := servicerestart.ReadState(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	if !s.Done {
		return no("%s", s.Message)
	}
	if sick := u.host.Unready(ctx); sick != "" {
		return no("%s", sick)
	}
	return updaters.Observation{Done: true}, nil
}

var errDropinIgnored = errors.New("the container runtime does not read " + SandboxDropin + ": refit needs containerd 2, or set its sandbox image by hand")

// Update does the next thing that is missing.
func (u *SandboxUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	c, no, ok := updaters.LoadConfig(t, u.host)
	if !ok {
		return no, nil
	}
	o, err := u.Observe(ctx, t)
	if err == nil && o.Done {
		s, _ := servicerestart.ReadState(t)
		return updaters.Result{Done: true, Message: s.Message}, nil
	}
	return u.advance(ctx, t, c.SandboxImage)
}

func (u *SandboxUpdater) advance(ctx context.Context, t updaters.Task, image string) (updaters.Result, error) {
	if id, err := u.host.ImageID(ctx, image); err == nil && id == "" {
		return updaters.Fail(v1alpha1.ReasonImagesMissing, "the sandbox image %s is not on this node; bring it with a bundle first", image), nil
	}
	var s servicerestart.State
	err := u.writeDropin(ctx, t, image)
	if errors.Is(err, errDropinIgnored) {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	}
	if err == nil {
		s, err = servicerestart.AdvanceRestart(ctx, u.host, t, u.now())
	}
	if err != nil {
		s.Message = err.Error()
	}
	if u.now().Sub(t.Started) > sandboxLimit && !s.Done {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the container runtime is not back within %s: %s\n%s", sandboxLimit, s.Message, u.host.Log(ctx)), nil
	}
	return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", s.Message), nil
}

// writeDropin writes the drop-in, and restores what was there if the runtime does not read
// it.
func (u *SandboxUpdater) writeDropin(ctx context.Context, t updaters.Task, image string) error {
	data := dropinText(image)
	if there, err := u.file.HasContent(data); err != nil || !there {
		if err != nil {
			return err
		}
		if err := servicerestart.RequireRestart(ctx, u.host, t); err != nil {
			return err
		}
		if err := u.file.Write(t, data, 0o644); err != nil {
			return err
		}
		failpoint.Here(failpoint.FilesWritten)
	}
	is, err := u.host.SandboxImage(ctx)
	if err != nil || is == image {
		return err
	}
	return errors.Join(errDropinIgnored, u.file.Restore(t), servicerestart.ClearRestart(t))
}

// Undo restores the old drop-in, or removes refit's.
func (u *SandboxUpdater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	differs, err := u.file.Differs(t)
	if err != nil {
		return updaters.Result{}, err
	}
	s, err := servicerestart.UndoWithRestart(ctx, u.host, t, u.now(), differs, func() error { return u.file.Restore(t) })
	if err != nil || !s.Done {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the old sandbox image is restored: %s", s.Message), err
	}
	return updaters.Result{Done: true, Message: s.Message}, nil
}

// Fields is the sandbox image, if a configuration wants one.
func (u *SandboxUpdater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	if c.SandboxImage == "" {
		return nil
	}
	is, err := u.host.SandboxImage(ctx)
	if err != nil {
		return nil
	}
	return map[string]string{model.FieldSandboxImage: is}
}
