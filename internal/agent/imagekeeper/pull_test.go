package imagekeeper

import (
	"context"
	"errors"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// registries is a runtime that can fetch.
type registries struct {
	*memory
	pulls []string
	away  error
}

func (r *registries) Pull(ctx context.Context, img containerd.Image) ([]string, error) {
	r.pulls = append(r.pulls, img.Name)
	if r.away != nil {
		return nil, r.away
	}
	return r.Load(ctx, img, nil)
}

// online is a source whose registry images may be fetched.
type online struct{ shelf }

func (online) MayPull(img model.PinSetImage) bool { return img.Registry }

// An image of no bundle is fetched by the runtime, and only such.
func TestPullsWhatMayComeFromARegistry(t *testing.T) {
	fetched := model.PinSetImage{Name: "r/app:1-b2", Digest: "sha256:n", Registry: true}
	of := model.PinSetImage{Name: "bundled:1", Digest: "sha256:b", Bundle: "sha256:x"}
	sync := func(t *testing.T, rt Runtime, src Source) Result {
		t.Helper()
		k := NewKeeper(rt, t.TempDir(), statefile.Ignore)
		r, err := k.Sync(t.Context(), []model.PinSetImage{fetched, of}, src, func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("it is fetched and pinned; what a bundle brings is waited for", func(t *testing.T) {
		rt := &registries{memory: newMemory()}
		r := sync(t, rt, online{})
		if len(rt.pulls) != 1 || rt.pulls[0] != fetched.Name || r.Fetched != 1 || r.FetchedTotal != 1 || r.Total != 1 || r.Held != 0 || r.Waiting != 1 {
			t.Fatalf("%v %+v", rt.pulls, r)
		}
	})
	t.Run("an unreachable registry is reported, with the image", func(t *testing.T) {
		rt := &registries{memory: newMemory(), away: errors.New("connection refused")}
		if r := sync(t, rt, online{shelf{of.Name}}); !errors.Is(r.Failed[fetched.Name], rt.away) || r.Fetched != 0 || !r.Complete() {
			t.Fatalf("what bundles bring must be complete without it: %+v", r)
		}
	})
	t.Run("where it may not be fetched it waits", func(t *testing.T) {
		rt := &registries{memory: newMemory()}
		if r := sync(t, rt, shelf{}); len(rt.pulls) != 0 || r.Waiting != 2 {
			t.Fatalf("%v %+v", rt.pulls, r)
		}
	})
	t.Run("a runtime that cannot be asked to fetch says so", func(t *testing.T) {
		if r := sync(t, newMemory(), online{}); r.Failed[fetched.Name] == nil {
			t.Fatalf("%+v", r)
		}
	})
}

// asked is a runtime that remembers how it was asked to fetch.
type asked struct {
	registries
	here bool
}

func (r *asked) Pull(ctx context.Context, img containerd.Image) ([]string, error) {
	if img.Here && !r.here {
		return nil, containerd.ErrNotHere
	}
	return r.registries.Pull(ctx, img)
}

// What needs credentials is not asked for without any: it is waited for, and gets
// its name and its pin when the kubelet has fetched it.
func TestWaitsForWhatTheKubeletFetches(t *testing.T) {
	img := model.PinSetImage{Name: "r/app:1-b2", Digest: "sha256:n", Registry: true, Kubelet: true}
	rt := &asked{registries: registries{memory: newMemory()}}
	k := NewKeeper(rt, t.TempDir(), statefile.Ignore)
	for _, here := range []bool{false, true} {
		rt.here = here
		r, err := k.Sync(t.Context(), []model.PinSetImage{img}, online{}, func(Result) {})
		if err != nil || len(r.Failed) > 0 || r.Fetched == 1 != here || r.Waiting == 1 == here {
			t.Fatalf("here %v: %+v %v", here, r, err)
		}
	}
}
