package agent

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// An image that kubeadm needs and no bundle has is named before a drain. Once it is there, the
// node is ready.
func TestAMissingImageOfTheReleaseIsNamed(t *testing.T) {
	path, h := mediumWith(t, withKubeadm(), 1)
	n := newTestNode(t, "n1", 17962, path)
	n.stop()
	var known atomic.Bool
	n.facts.release = func() ([]string, error) {
		if !known.Load() {
			return nil, errors.New("the API server does not answer")
		}
		return []string{"registry.k8s.io/pause:3.10.2", "reg.test/etcd:9"}, nil
	}
	n.start()
	approve(t, h, everything(h), n)
	n.reported("that it does not know yet", func(s *v1alpha1.NodeUpdateStatus) bool {
		status, _ := condition(s, v1alpha1.ConditionReconciling)
		return status == "True" && s.Pins != nil && s.Pins.ImagesPinned > 0 && s.Pins.Content == ""
	})
	known.Store(true)
	s := n.reported("the missing image", func(s *v1alpha1.NodeUpdateStatus) bool {
		status, reason := condition(s, v1alpha1.ConditionStalled)
		return status == "True" && reason == v1alpha1.ReasonImagesMissing
	})
	if diff := cmp.Diff([]string{"reg.test/etcd:9"}, s.Pins.Missing); diff != "" {
		t.Error(diff)
	}
	n.runtime.mu.Lock()
	n.runtime.images["reg.test/etcd:9"] = h.Digest
	changed := n.runtime.kicks
	n.runtime.mu.Unlock()
	changed()
	if s := n.reported("that all is held", held); len(s.Pins.Missing) > 0 {
		t.Errorf("still missing %v", s.Pins.Missing)
	}
}

func withKubeadm() bundletest.Spec {
	spec := bundletest.Tiny()
	spec.Payloads = append(spec.Payloads, bundletest.Payload{Name: bundle.PayloadKubeadm, Version: spec.KubernetesVersion, Platform: platform(), Content: []byte("#!kubeadm")})
	return spec
}

// An image that is merely on its way is not called missing, not even for a moment.
func TestAnImageOnItsWayIsNotMissing(t *testing.T) {
	path, h := mediumWith(t, withKubeadm(), 1)
	n := newTestNode(t, "n1", 17963, path)
	n.stop()
	n.facts.release = func() ([]string, error) { return []string{"registry.k8s.io/pause:3.10.2"}, nil }
	n.runtime.busy = 2
	var blamed atomic.Bool
	n.api.mu.Lock()
	n.api.wrote = func(s *v1alpha1.NodeUpdateStatus) {
		if s.Pins != nil && len(s.Pins.Missing) > 0 {
			blamed.Store(true)
		}
	}
	n.api.mu.Unlock()
	n.start()
	approve(t, h, everything(h), n)
	n.reported("held", held)
	if blamed.Load() {
		t.Error("an image that the bundle brings was called missing while it was loaded")
	}
}
