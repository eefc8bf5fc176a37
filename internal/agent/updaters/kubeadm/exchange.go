package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Exchange replaces files of a node that must change together.
type Exchange struct {
	// Unit is stopped before the files change and started after; "" for none.
	Unit string `json:"unit,omitempty"`
	// Pods of kube-system that end while the unit is stopped and before the files change. The
	// first ends alone, and answers open requests while what it needs still runs. The others
	// follow together.
	Pods []EndedPod `json:"pods,omitempty"`
	// Files in the order in which they are renamed into place. A power cut leaves a
	// beginning of this list: each beginning must be a state from which the node starts.
	Files []ExchangedFile `json:"files"`
}

// EndedPod is a pod that an Exchange ends.
type EndedPod struct {
	Name string `json:"name"`
	// GraceSeconds is how long its containers may take.
	GraceSeconds int64 `json:"graceSeconds"`
}

// ExchangedFile is one file of an Exchange.
type ExchangedFile struct {
	// From is the new content, To its place; Digest is compared while it is copied.
	From, To, Digest string
	Mode             os.FileMode
}

// ExchangeNode is what an Exchange does on the node, apart from the files.
type ExchangeNode interface {
	// Start and Stop are for systemd units.
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	// EndPod ends the containers of a pod of kube-system as the kubelet would.
	EndPod(ctx context.Context, pod EndedPod) error
}

// ReadExchange reads the Exchange of a record that the step wrote.
func ReadExchange(path string) (*Exchange, error) {
	var rec record
	switch ok, err := fsutil.ReadJSON(path, &rec); {
	case err != nil:
		return nil, fmt.Errorf("read exchange of files: %w", err)
	case !ok:
		return nil, fmt.Errorf("read exchange of files: no file %s", path)
	}
	return &rec.Exchange, nil
}

// Run exchanges the files. All new content is on disk before the unit stops, so that the
// unit is down for the end of the pods and a few renames only. The unit is started again in
// every case. Run can be repeated after a power cut or a kill.
func (x *Exchange) Run(ctx context.Context, node ExchangeNode) error {
	var pending []ExchangedFile
	for _, f := range x.Files {
		if have, err := fsutil.Digest(f.To); err == nil && have == f.Digest {
			continue
		}
		if err := f.prepare(); err != nil {
			return err
		}
		pending = append(pending, f)
	}
	failpoint.Here(failpoint.ExchangePrepared)
	if x.Unit == "" {
		return rename(pending)
	}
	if len(pending) > 0 {
		if err := x.stop(ctx, node); err != nil {
			return errors.Join(err, node.Start(context.WithoutCancel(ctx), x.Unit))
		}
		failpoint.Here(failpoint.ExchangeStopped)
	}
	err := rename(pending)
	return errors.Join(err, node.Start(context.WithoutCancel(ctx), x.Unit))
}

func (x *Exchange) stop(ctx context.Context, node ExchangeNode) error {
	if err := node.Stop(ctx, x.Unit); err != nil || len(x.Pods) == 0 {
		return err
	}
	if err := node.EndPod(ctx, x.Pods[0]); err != nil {
		return err
	}
	var others errgroup.Group
	for _, p := range x.Pods[1:] {
		others.Go(func() error { return node.EndPod(ctx, p) })
	}
	return others.Wait()
}

// prepare writes the new content next to its place. The kubelet ignores manifests whose
// names begin with a dot.
func (f ExchangedFile) prepare() error {
	r, err := os.Open(f.From)
	if err != nil {
		return fmt.Errorf("exchange of %s: %w", f.To, err)
	}
	defer r.Close()
	return fsutil.Replace(f.next(), r, f.Digest, f.Mode)
}

func (f ExchangedFile) next() string {
	return filepath.Join(filepath.Dir(f.To), "."+filepath.Base(f.To)+".refit-next")
}

func rename(files []ExchangedFile) error {
	var dirs []string
	for _, f := range files {
		if err := os.Rename(f.next(), f.To); err != nil {
			return fmt.Errorf("exchange of %s: %w", f.To, err)
		}
		failpoint.Here(failpoint.ExchangeRenamed)
		if dir := filepath.Dir(f.To); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, fsutil.SyncDir(dir))
	}
	return errors.Join(errs...)
}

// removePrepared removes what prepare wrote and no rename used.
func (x *Exchange) removePrepared() error {
	for _, f := range x.Files {
		if err := os.Remove(f.next()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("exchange of %s: %w", f.To, err)
		}
	}
	return nil
}
