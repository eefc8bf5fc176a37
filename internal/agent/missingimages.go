package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// release is what a bundle's kubeadm wants; hold loop only.
type release struct {
	kubeadm string // digest of the program
	images  []string
}

// releaseTime bounds the question to kubeadm.
const releaseTime = 20 * time.Second

// lack is what a node has not of what a release needs.
type lack struct {
	images   []string // the first 16
	known    bool
	verdicts []model.Verdict
}

// checkRelease reports which images kubeadm would look for on this node and neither the
// bundle brought nor anybody else: kubeadm would find out only after the node
// was drained. Before all that is wanted is held, images are merely on their way.
func (a *Agent) checkRelease(ctx context.Context, w *desired.State, complete bool) lack {
	if !complete {
		return lack{known: true}
	}
	images, err := a.missingImages(ctx, w)
	switch {
	case err != nil:
		time.AfterFunc(releaseRetry, func() { wake(a.wakeHold) })
		return lack{verdicts: []model.Verdict{releaseUnknown(a.conf.Node, err)}}
	case len(images) == 0:
		return lack{known: true}
	}
	return lack{images: few(images), known: true, verdicts: []model.Verdict{model.LacksImages(a.conf.Node, images)}}
}

// maxMissing and maxMissingBytes bound what a status names: it stays below 4 KiB.
const (
	maxMissing      = 16
	maxMissingBytes = 1024
)

// few are the first names of a list, and at least one.
func few(names []string) []string {
	size := 0
	for i, n := range names {
		if size += len(n); i == maxMissing || i > 0 && size > maxMissingBytes {
			return names[:i]
		}
	}
	return names
}

func (a *Agent) missingImages(ctx context.Context, w *desired.State) ([]string, error) {
	wants, err := a.releaseImages(ctx, w)
	if err != nil || len(wants) == 0 {
		return nil, err
	}
	have, err := a.runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range wants {
		if !slices.ContainsFunc(have, func(p pin.Present) bool { return slices.Contains(p.Tags, name) }) {
			out = append(out, name)
		}
	}
	return out, nil
}

// releaseImages asks the bundle's kubeadm, once; none on a node that kubeadm does
// not run on.
func (a *Agent) releaseImages(ctx context.Context, w *desired.State) ([]string, error) {
	if len(w.Spec.Bundles) == 0 || w.Spec.Pins == "" {
		return nil, nil
	}
	digest := w.Spec.Bundles[0].Digest
	shelf := a.library.Shelf(digest)
	if shelf == nil || shelf.Bundle().PayloadByName(bundle.PayloadKubeadm, platform()) == nil {
		return nil, nil
	}
	program, err := a.payload(digest, bundle.PayloadKubeadm)
	if err != nil {
		return nil, nil // its absence is said elsewhere
	}
	if a.release.kubeadm == program.Digest {
		return a.release.images, nil
	}
	// It runs as nobody; the folder above is root's alone.
	if err := os.Chmod(program.Path, 0o755); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	images, err := a.facts.ReleaseImages(call, program.Path, shelf.Bundle().Metadata.KubernetesVersion, a.conf.StateDir)
	if err == nil {
		a.release = release{program.Digest, images}
	}
	return images, err
}

// releaseRetry is when it is asked again which images the release needs.
const releaseRetry = 5 * time.Second

// releaseUnknown: nothing may start before it is known that no image lacks.
func releaseUnknown(node string, err error) model.Verdict {
	return model.Verdict{Reason: v1alpha1.ReasonLoading, Waiting: true, Object: "Node/" + node,
		Message: fmt.Sprintf("which images kubeadm needs on node %s is not known yet: %v", node, err)}
}
