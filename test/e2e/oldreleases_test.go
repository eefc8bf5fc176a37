package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestOldReleases: two releases of one product follow each other, and no older one shall stay.
// A third one fills the disk of a node while the node loads it. That node removes the images
// of the first release at once, the other one after the grace time. No user deletes anything.
func TestOldReleases(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the grace time is ten minutes: make e2e")
	}
	s := start(t, "releases", 2)
	keepStory(t, "oldreleases.json")
	ctx := t.Context()
	var apps []components.Image
	for _, version := range []string{"old", "new"} {
		app, err := components.App(ctx, version, func(line string) { t.Log(line) })
		must(t, err)
		apps = append(apps, app)
	}
	releases := make([]scenario.Bundle, 2)
	for i, app := range apps {
		version := fmt.Sprintf("%d.0.0", i+1)
		b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: version + ".tar", Version: version, LeaveKubernetes: true, Images: []components.Image{app}})
		must(t, err)
		releases[i] = b
	}
	step(t, "the first release is installed, then the second one", func(t *testing.T) {
		for i, b := range releases {
			device, err := s.Insert(ctx, s.MediumNode, b)
			must(t, err)
			if i == 0 {
				must(t, s.Install(ctx, b, device))
				none := int32(0)
				p := pool()
				p.Spec.KeepReleases = &none
				p.Spec.PinImages = v1alpha1.PinAll // so that loading takes long enough for the disk to fill
				must(t, s.Client.Create(ctx, p))
			}
			must(t, s.Approve(ctx, b))
			r, err := s.Run(ctx, "plan", "--to", b.Digest, "--wait", "--timeout", "5m") // of images only: no step
			if err != nil || r.Code != 0 {
				t.Fatalf("plan: exit code %d, %v: %s", r.Code, err, r.Stderr)
			}
			eventually(t, 2*time.Minute, "the update to the release is done", func() (bool, string) { return use(t, s, b.Digest, v1alpha1.BundleRuns) })
			must(t, s.Eject(ctx, s.MediumNode, device))
		}
	})
	released := time.Now()
	eventually(t, 2*time.Minute, "the first release is released", func() (bool, string) { return use(t, s, releases[0].Digest, v1alpha1.BundleReleased) })
	before := freeBytes(t, s, "n1")
	for _, n := range s.Lab.Nodes() {
		for i, app := range apps {
			if held, err := s.Held(ctx, n, releases[i], app.Name); err != nil || !held {
				t.Fatalf("node %s does not have %s (%v): its removal would show nothing", n, app.Name, err)
			}
		}
	}
	third, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "3.0.0.tar", Version: "3.0.0"})
	must(t, err)
	const full = "n2" // it has the stick
	step(t, "a disk gets full while images are loaded: loading stops, what is not needed goes", func(t *testing.T) {
		_, err := s.Insert(ctx, full, third)
		must(t, err)
		must(t, s.Approve(ctx, third))
		eventually(t, 5*time.Minute, "the first image of the third release is loaded", func() (bool, string) { return holdsAny(t, s, full, third) })
		must(t, s.Fill(ctx, full, 4<<20))
		eventually(t, 3*time.Minute, "the node says that it has no space", func() (bool, string) {
			said := report(t, s, full)
			return strings.Contains(said, v1alpha1.ReasonInsufficientSpace), said
		})
		eventually(t, 3*time.Minute, "the old image is removed at once", func() (bool, string) {
			held, err := s.Held(ctx, full, releases[0], apps[0].Name)
			return err == nil && !held, fmt.Sprint(held, err)
		})
		if held, err := s.Held(ctx, full, releases[1], apps[1].Name); err != nil || !held {
			t.Errorf("the image of the release that runs is gone (%v)", err)
		}
		if time.Since(released) > 9*time.Minute {
			t.Log("the grace time was nearly over: this does not show that the image was removed without it")
		}
		measured(t, "secondsUntilRemovedFromTheFullDisk", int(time.Since(released).Seconds()))
	})
	step(t, "there is room again: loading continues by itself", func(t *testing.T) {
		must(t, s.Free(ctx, full))
		eventually(t, 5*time.Minute, "all images of the third release are loaded", func() (bool, string) {
			for name := range third.Images {
				if held, err := s.Held(ctx, full, third, name); err != nil || !held {
					return false, fmt.Sprintf("%s: %v", name, err)
				}
			}
			return true, fmt.Sprintf("%d images", len(third.Images))
		})
	})
	step(t, "the other node removes the old image after the grace time", func(t *testing.T) {
		eventually(t, 15*time.Minute, "the old image is removed", func() (bool, string) {
			held, err := s.Held(ctx, "n1", releases[0], apps[0].Name)
			return err == nil && !held, fmt.Sprint(held, err)
		})
		measured(t, "secondsUntilRemoved", int(time.Since(released).Seconds()))
		measured(t, "freeBytesBeforeTheThirdRelease", before)
		for _, n := range s.Lab.Nodes() {
			if held, err := s.Held(ctx, n, releases[1], apps[1].Name); err != nil || !held {
				t.Errorf("node %s lost the image of the release that runs (%v)", n, err)
			}
		}
		if ready, err := s.ReadyPods(ctx, "n2"); err != nil || ready == 0 {
			t.Errorf("%d pods of the workload are ready on n2 (%v)", ready, err)
		}
	})
}

// use reports whether nodes hold a bundle for this use.
func use(t *testing.T, s *scenario.Scenario, digest string, want v1alpha1.BundleUse) (bool, string) {
	t.Helper()
	var list v1alpha1.BundleList
	if err := s.Client.List(t.Context(), &list); err != nil {
		return false, err.Error()
	}
	for _, b := range list.Items {
		if r := b.Status.Retention; b.Status.Digest == digest && r != nil {
			return r.Use == want, fmt.Sprintf("%s: %s", r.Use, r.Message)
		}
	}
	return false, "no use is reported"
}

// holdsAny reports whether a node has an image that only this bundle brings.
func holdsAny(t *testing.T, s *scenario.Scenario, node string, b scenario.Bundle) (bool, string) {
	t.Helper()
	for name := range b.Images {
		if !strings.HasSuffix(name, ":"+to) {
			continue
		}
		if held, err := s.Held(t.Context(), node, b, name); err == nil && held {
			return true, name
		}
	}
	return false, "none"
}

// report is what a node says of itself, as JSON.
func report(t *testing.T, s *scenario.Scenario, node string) string {
	t.Helper()
	nu, err := nodeUpdate(t, s, node)
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(nu.Status)
	must(t, err)
	return string(text)
}

func freeBytes(t *testing.T, s *scenario.Scenario, node string) int64 {
	t.Helper()
	out, err := s.Output(t.Context(), node, "stat", "-f", "-c", "%a %S", "/var/lib")
	must(t, err)
	var blocks, size int64
	_, err = fmt.Sscan(out, &blocks, &size)
	must(t, err)
	return blocks * size
}
