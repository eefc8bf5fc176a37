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

// releaseCheck compares the images that a release's kubeadm needs with those of the
// runtime. The image loop runs it.
type releaseCheck struct {
	*shared
	payloads *payloadFinder
	facts    Facts

	// kubeadm is the digest of the program that was asked last, and images its answer.
	kubeadm string
	images  []string
}

// releaseTime bounds a call of kubeadm.
const releaseTime = 20 * time.Second

// releaseResult is which images of a release this node is missing.
type releaseResult struct {
	images   []string // the first 16
	known    bool
	verdicts []model.Blocker
}

// check returns the images that kubeadm needs on this node and that are not in the runtime.
// kubeadm itself would fail only after the node was drained. complete: all desired images are
// pinned; until then images are still on their way.
func (rc *releaseCheck) check(ctx context.Context, w *desired.State, complete bool) releaseResult {
	if !complete {
		return releaseResult{known: true}
	}
	images, err := rc.missingImages(ctx, w)
	switch {
	case err != nil:
		time.AfterFunc(releaseRetry, func() { wake(rc.wakeImages) })
		return releaseResult{verdicts: []model.Blocker{releaseUnknown(rc.conf.Node, err)}}
	case len(images) == 0:
		return releaseResult{known: true}
	}
	return releaseResult{images: truncateNames(images), known: true, verdicts: []model.Blocker{model.ReleaseImagesMissing(rc.conf.Node, images)}}
}

// maxMissing and maxMissingBytes bound what a status names: it stays below 4 KiB.
const (
	maxMissing      = 16
	maxMissingBytes = 1024
)

// truncateNames returns the first names of a list, at least one.
func truncateNames(names []string) []string {
	size := 0
	for i, n := range names {
		if size += len(n); i == maxMissing || i > 0 && size > maxMissingBytes {
			return names[:i]
		}
	}
	return names
}

func (rc *releaseCheck) missingImages(ctx context.Context, w *desired.State) ([]string, error) {
	wants, err := rc.releaseImages(ctx, w)
	if err != nil || len(wants) == 0 {
		return nil, err
	}
	have, err := rc.runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range wants {
		if !slices.ContainsFunc(have, func(p pin.RuntimeImage) bool { return slices.Contains(p.Tags, name) }) {
			out = append(out, name)
		}
	}
	return out, nil
}

// releaseImages asks the bundle's kubeadm and caches the answer. It returns none on a node
// that kubeadm does not manage.
func (rc *releaseCheck) releaseImages(ctx context.Context, w *desired.State) ([]string, error) {
	if len(w.Spec.Bundles) == 0 || w.Spec.Pins == "" {
		return nil, nil
	}
	digest := w.Spec.Bundles[0].Digest
	shelf := rc.library.Shelf(digest)
	if shelf == nil || shelf.Bundle().PayloadByName(bundle.PayloadKubeadm, platform()) == nil {
		return nil, nil
	}
	program, err := rc.payloads.findPayload(digest, bundle.PayloadKubeadm)
	if err != nil {
		return nil, nil // the bundle loop reports that it is missing
	}
	if rc.kubeadm == program.Digest {
		return rc.images, nil
	}
	// It runs as user nobody; only root can enter the directory above.
	if err := os.Chmod(program.Path, 0o755); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	images, err := rc.facts.ReleaseImages(call, program.Path, shelf.Bundle().Metadata.KubernetesVersion, rc.conf.StateDir)
	if err == nil {
		rc.kubeadm, rc.images = program.Digest, images
	}
	return images, err
}

// releaseRetry is the pause before kubeadm is asked again.
const releaseRetry = 5 * time.Second

// releaseUnknown blocks the node: no run may start while an image may be missing.
func releaseUnknown(node string, err error) model.Blocker {
	return model.Blocker{Reason: v1alpha1.ReasonLoading, Waiting: true, Object: "Node/" + node,
		Message: fmt.Sprintf("list the images that kubeadm needs on node %s: %v", node, err)}
}
