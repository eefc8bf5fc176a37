package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestFromADelta updates a cluster from a stick that has only what changed. The nodes hold the bundle
// of the release that runs, and restore the next one from it and from the delta. The stick has FAT32
// and is in one node; the others get what they miss from that node.
func TestFromADelta(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("an update of a cluster of its own takes minutes: make e2e")
	}
	s := start(t, "fromdelta", 3)
	ctx := t.Context()
	base, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "base.tar", Version: strings.TrimPrefix(from, "v"), Release: s.FromRelease()})
	must(t, err)
	old, err := s.Insert(ctx, s.MediumNode, base)
	must(t, err)
	must(t, s.Install(ctx, base, old))
	must(t, s.Approve(ctx, base))
	copied(t, s)
	must(t, s.Eject(ctx, s.MediumNode, old))

	full, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "full.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	key, err := s.Key(ctx, "keys")
	must(t, err)
	delta, medium := s.Path("release.delta"), s.Path("medium.img")
	r, err := s.Run(ctx, "bundle", "create", "--base", base.Path, "--output", delta, "--key", key, "--name", "demo", "--version", strings.TrimPrefix(to, "v"), "bundle:"+full.Path)
	if err != nil || r.Code != 0 {
		t.Fatalf("bundle create --base: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	st, err := os.Stat(delta)
	must(t, err)
	must(t, os.WriteFile(medium, nil, 0o600))
	must(t, os.Truncate(medium, st.Size()+64<<20))
	for _, c := range [][]string{{"mkfs.vfat", "-F", "32", medium}, {"mcopy", "-i", medium, delta, "::release.delta"}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	// What the delta makes, to compare the nodes with.
	restored := s.Path("restored.tar")
	r, err = s.Run(ctx, "bundle", "restore", "--base", base.Path, delta, "--output", restored, "--pub", strings.TrimSuffix(key, ".key")+".pub")
	if err != nil || r.Code != 0 {
		t.Fatalf("bundle restore: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	b, err := s.Inspect(ctx, restored)
	must(t, err)

	_, err = s.InsertFile(ctx, s.MediumNode, medium)
	must(t, err)
	eventually(t, 2*time.Minute, "the delta is found", func() (bool, string) {
		nu, err := nodeUpdateOf(ctx, s, s.MediumNode)
		must(t, err)
		return len(nu.Status.Media) > 0 && nu.Status.Media[0].Digest == b.Digest, fmt.Sprintf("%+v", nu.Status)
	})
	eventually(t, 2*time.Minute, "the bundle of the delta is listed", func() (bool, string) {
		nu, err := nodeUpdateOf(ctx, s, s.MediumNode)
		must(t, err)
		var list v1alpha1.BundleList
		must(t, s.Client.List(ctx, &list))
		return len(list.Items) > 1, fmt.Sprintf("%+v", nu.Status.Media)
	})
	must(t, s.Approve(ctx, b))
	digest, err := s.Prepare(ctx, b)
	must(t, err)
	startUpdate(t, s)
	finished(t, s, b, digest)
	type source struct {
		Node      string `json:"node"`
		FromMedia int64  `json:"bytesFromMedia"`
		FromPeers int64  `json:"bytesFromPeers"`
	}
	var nodes []source
	for _, n := range s.Lab.Nodes() {
		nu, err := nodeUpdateOf(ctx, s, n)
		must(t, err)
		nodes = append(nodes, source{n, nu.Status.Pins.BytesFromMedia, nu.Status.Pins.BytesFromPeers})
	}
	keepResult(t, "fromdelta.json", func() any {
		return map[string]any{"deltaBytes": st.Size(), "fullBytes": b.Size, "nodes": nodes, "outcome": "every node observed at " + to}
	})
}
