package nodedistribution

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// finder is a fleet with what was found, and an API server in memory.
func finder(t *testing.T, there ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := clientfake.NewClientBuilder().WithScheme(s).WithObjects(there...).Build()
	return &Reconciler{Client: c}, c
}

func bundlesOf(t *testing.T, c client.Client) []v1alpha1.Bundle {
	t.Helper()
	var l v1alpha1.BundleList
	if err := c.List(context.Background(), &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func digestNumber(i int) string { return fmt.Sprintf("sha256:%064x", i) }

// mediaOf are bundles that one node says it found.
func mediaOf(node string, from, n int) map[string]*mediaBundle {
	out := map[string]*mediaBundle{}
	for i := from; i < from+n; i++ {
		out[digestNumber(i)] = &mediaBundle{digest: digestNumber(i), name: "kubernetes", version: "1.36.3", at: []v1alpha1.BundleLocation{{Node: node, Device: "/dev/sdb"}}}
	}
	return out
}

func readable(digest string) (*bundle.Header, error) {
	return &bundle.Header{Digest: digest, Metadata: &bundle.Metadata{Name: "real", Version: digest[66:]}}, nil
}

func TestABundleIsMadeOfAHeaderThatWasRead(t *testing.T) {
	t.Parallel()
	r, c := finder(t)
	w := &fleetSnapshot{header: func(string) (*bundle.Header, error) { return nil, errors.New("no node has it") }}
	if err := r.makeBundles(t.Context(), w, mediaOf("n1", 0, 3)); err != nil || len(bundlesOf(t, c)) != 0 {
		t.Fatalf("made of a node's word: %v %v", bundlesOf(t, c), err)
	}
	w.header = readable
	if err := r.makeBundles(t.Context(), w, mediaOf("n1", 0, 1)); err != nil {
		t.Fatal(err)
	}
	if all := bundlesOf(t, c); len(all) != 1 || all[0].Name != "real-00000" || all[0].Spec.Digest != "" || all[0].Annotations[v1alpha1.AnnotationFoundOn] != "n1" {
		t.Errorf("made: %+v", all)
	}
}

// A node whose identity was stolen names eight digests, then eight others.
func TestFoundBundlesAreLimited(t *testing.T) {
	t.Parallel()
	r, c := finder(t)
	for node := range 12 {
		for round := range 3 {
			w := &fleetSnapshot{header: readable, bundles: bundlesOf(t, c)}
			if err := r.makeBundles(t.Context(), w, mediaOf(fmt.Sprint("n", node), 1000*node+8*round, 8)); err != nil {
				t.Fatal(err)
			}
			if on := len(bundlesOf(t, c)); node == 0 && on != maxDiscoveredPerNode {
				t.Fatalf("round %d: %d bundles of one node", round, on)
			}
		}
	}
	if n := len(bundlesOf(t, c)); n != maxDiscovered {
		t.Errorf("%d bundles in all, want %d", n, maxDiscovered)
	}
}

func TestFoundBundlesThatAreGoneAreDeleted(t *testing.T) {
	t.Parallel()
	b := func(name, approved string, n int) *v1alpha1.Bundle {
		return &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.AnnotationFoundDigest: digestNumber(n)}}, Spec: v1alpha1.BundleSpec{Digest: approved}}
	}
	byHand := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "by-hand", UID: "h"}}
	r, c := finder(t, b("gone", "", 1), b("approved", digestNumber(2), 2), b("plugged", "", 3), b("served", "", 4), byHand)
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	look := func(after time.Duration) {
		t.Helper()
		w := &fleetSnapshot{now: start.Add(after), bundles: bundlesOf(t, c), reports: []*v1alpha1.NodeUpdate{
			{Status: v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{}, Bundles: []string{digestNumber(4)}}}}}
		if err := r.deleteDiscovered(t.Context(), w, mediaOf("n1", 3, 1)); err != nil {
			t.Fatal(err)
		}
	}
	look(0)
	look(discoveredRetention - time.Second)
	if n := len(bundlesOf(t, c)); n != 5 {
		t.Fatalf("%d bundles are left before the time", n)
	}
	look(discoveredRetention)
	for _, left := range bundlesOf(t, c) {
		if left.Name == "gone" {
			t.Error("it stays")
		}
	}
	if n := len(bundlesOf(t, c)); n != 4 {
		t.Errorf("%d bundles are left", n)
	}
}
