package pin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func hour(n int) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour)
}

// ran is a release of the product "p" that the whole cluster was updated to at these hours.
func ran(digest string, hours ...int) ApprovedBundle {
	b := ApprovedBundle{Digest: digest, Product: "p", Kubernetes: "v" + digest}
	if len(hours) > 0 {
		b.FirstDone, b.LastDone = hour(slices.Min(hours)), hour(slices.Max(hours))
	}
	return b
}

func with(b ApprovedBundle, change func(*ApprovedBundle)) ApprovedBundle {
	change(&b)
	return b
}

// Each case names bundles and what they are held for.
func TestRetain(t *testing.T) {
	t.Parallel()
	older := func(digests ...string) func(*ApprovedBundle) {
		return func(b *ApprovedBundle) {
			b.OlderThan = map[string]bool{}
			for _, d := range digests {
				b.OlderThan[d] = true
			}
		}
	}
	for name, c := range map[string]struct {
		keep  int
		nodes map[string]string
		all   []ApprovedBundle
		want  string
	}{
		"no update was complete": {1, nil, []ApprovedBundle{ran("1"), ran("2")}, "1=Waits 2=Waits"},
		"the third release releases the first": {1, nil, []ApprovedBundle{ran("1", 1), ran("2", 2), ran("3", 3)},
			"1=Released 2=Rollback 3=Runs"},
		"none is kept": {0, nil, []ApprovedBundle{ran("1", 1), ran("2", 2)}, "1=Released 2=Runs"},
		"two are kept": {2, nil, []ApprovedBundle{ran("1", 1), ran("2", 2), ran("3", 3), ran("4", 4)},
			"1=Released 2=Rollback 3=Rollback 4=Runs"},
		"a running update keeps its target": {0, nil, []ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Update = "back" }), ran("2", 2)},
			"1=Update 2=Runs"},
		"a release that the cluster was rolled back from stays, and counts for nothing": {1, nil,
			[]ApprovedBundle{ran("1", 1), ran("2", 2, 4), ran("3", 3)}, "1=Rollback 2=Runs 3=Waits"},
		"after the rollback, the release that ran last is the rollback": {1, nil,
			[]ApprovedBundle{ran("2", 2, 4), ran("3", 3), ran("4", 5)}, "2=Rollback 3=Released 4=Runs"},
		"a node lags": {0, map[string]string{"v1": "n7", "v2": "n1"}, []ApprovedBundle{ran("1", 1), ran("2", 2)}, "1=Runs 2=Runs"},
		"releases of one Kubernetes version do not lag": {0, map[string]string{"v2": "n1"},
			[]ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Kubernetes = "v2" }), ran("2", 2)}, "1=Released 2=Runs"},
		"a node comes back after the release": {0, map[string]string{"v1": "n7"},
			[]ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Released = true }), ran("2", 2)}, "1=Released 2=Runs"},
		"a node changes to it": {0, nil, []ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Node = "n1" }), ran("2", 2)}, "1=Runs 2=Runs"},
		"some nodes were updated to it later": {0, nil, []ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.SomeDone = hour(3) }), ran("2", 2)},
			"1=Runs 2=Runs"},
		"an update of some nodes takes no place of a release": {1, nil, []ApprovedBundle{ran("1", 1),
			with(ran("2"), func(b *ApprovedBundle) { b.SomeDone = hour(2); older("3")(b) }), ran("3", 3)}, "1=Rollback 2=Rollback 3=Runs"},
		"some nodes were updated to it before": {0, nil, []ApprovedBundle{with(ran("1"), func(b *ApprovedBundle) { b.SomeDone = hour(1); older("2")(b) }), ran("2", 2)},
			"1=Released 2=Runs"},
		"an administrator holds it, and it still counts": {1, nil,
			[]ApprovedBundle{ran("1", 1), with(ran("2", 2), func(b *ApprovedBundle) { b.HeldBy = "Bundle b" }), ran("3", 3)}, "1=Released 2=Held 3=Runs"},
		"older ones that never ran come after those that ran": {1, nil,
			[]ApprovedBundle{with(ran("1"), older("2", "3")), with(ran("2"), older("3")), ran("3", 3)}, "1=Released 2=Rollback 3=Runs"},
		"a newer one that never ran waits": {0, nil, []ApprovedBundle{ran("1", 1), ran("2")}, "1=Runs 2=Waits"},
		"an older one that was approved after the update waits": {0, nil,
			[]ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Approved = hour(3) }), ran("2", 2)}, "1=Waits 2=Runs"},
		"other products have their own releases": {0, nil,
			[]ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Product = "apps" }), ran("2", 2)}, "1=Runs 2=Runs"},
		"what is unknown stays": {0, nil, []ApprovedBundle{with(ran("1", 1), func(b *ApprovedBundle) { b.Product = "" }), ran("2", 2)}, "1=Waits 2=Runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Retain(c.all, c.nodes, c.keep)
			var out []string
			for _, d := range slices.Sorted(maps.Keys(got)) {
				out = append(out, d+"="+string(got[d].Use))
				if got[d].Message == "" {
					t.Errorf("%s has no reason", d)
				}
			}
			if s := strings.Join(out, " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// Over any history, a release is never released while the cluster or a node runs it, an update
// names it, or an administrator holds it. Neither is one of the last releases before the
// running one, nor one without a later complete release. More kept releases never release more.
func TestRetainNeverReleasesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(0, 3).Draw(t, "keep")
		nodes := map[string]string{}
		n := rapid.IntRange(1, 6).Draw(t, "bundles")
		// history is the order of complete updates, by bundle.
		history := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 10).Draw(t, "history")
		all := make([]ApprovedBundle, n)
		for i := range all {
			b := &all[i]
			b.Digest, b.Kubernetes = fmt.Sprint(i), fmt.Sprint("v", rapid.IntRange(0, 3).Draw(t, "kubernetes"))
			b.Product = rapid.SampledFrom([]string{"p", "p", "q", ""}).Draw(t, "product")
			b.OlderThan, b.Released = map[string]bool{}, rapid.Bool().Draw(t, "released before")
			for j := i + 1; j < n; j++ {
				b.OlderThan[fmt.Sprint(j)] = true
			}
			b.Approved = hour(rapid.IntRange(0, 12).Draw(t, "approved"))
			for h, of := range history {
				if of == i {
					if b.FirstDone.IsZero() {
						b.FirstDone = hour(h + 1)
					}
					b.LastDone = hour(h + 1)
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "some nodes") == 0 {
				b.SomeDone = hour(rapid.IntRange(1, 12).Draw(t, "at"))
			}
			for _, what := range []*string{&b.Update, &b.Node, &b.HeldBy} {
				if rapid.IntRange(0, 7).Draw(t, "needed") == 0 {
					*what = "x"
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "runs") == 0 {
				nodes[b.Kubernetes] = "n1"
			}
		}
		got := Retain(all, nodes, keep)
		running := map[string]*ApprovedBundle{}
		for _, of := range history {
			running[all[of].Product] = &all[of] // the last one of its product
		}
		for i := range all {
			b := &all[i]
			if got[b.Digest].Use == "" || got[b.Digest].Message == "" {
				t.Fatalf("%s: no use or no reason: %+v", b.Digest, got)
			}
			if got[b.Digest].Use != UseReleased {
				continue
			}
			r := running[b.Product]
			switch {
			case b.Product == "" || r == nil:
				t.Fatalf("%s is released, and nothing took its place", b.Digest)
			case b.Update+b.Node+b.HeldBy != "":
				t.Fatalf("%s is released, and is needed: %+v", b.Digest, b)
			case b == r || b.SomeDone.After(r.LastDone):
				t.Fatalf("%s is released, and runs", b.Digest)
			case !b.Released && nodes[b.Kubernetes] != "" && b.Kubernetes != r.Kubernetes:
				t.Fatalf("%s is released, and a node runs its version", b.Digest)
			case b.Approved.After(r.LastDone):
				t.Fatalf("%s is released, and was approved after the last update", b.Digest)
			}
			// The rollback targets: the last other releases that were complete.
			seen := map[int]bool{}
			for h := len(history) - 1; h >= 0 && len(seen) < keep; h-- {
				of := &all[history[h]]
				if of.Product != b.Product || of == r || !of.FirstDone.Before(r.FirstDone) || of.Approved.After(r.LastDone) || of.SomeDone.After(r.LastDone) {
					continue
				}
				seen[history[h]] = true
				if of == b {
					t.Fatalf("%s is released, and is one of the last %d releases", b.Digest, keep)
				}
			}
			for more := keep + 1; more <= 5; more++ {
				if Retain(all, nodes, more-1)[b.Digest].Use != UseReleased && Retain(all, nodes, more)[b.Digest].Use == UseReleased {
					t.Fatalf("%s is released with %d kept, not with %d", b.Digest, more, more-1)
				}
			}
		}
	})
}

// What a node frees: images and blobs that no other held bundle has. Layers count as a copy,
// compressed and unpacked; payloads once.
func TestFrees(t *testing.T) {
	t.Parallel()
	h := header()
	all := Frees(h, nil, Needs{"linux/amd64", true})
	if all.Images != len(h.Metadata.Images) || all.Bytes <= 0 {
		t.Fatalf("%+v", all)
	}
	var want int64
	inImages := map[int]bool{}
	for _, img := range h.Metadata.Images {
		for _, b := range img.Blobs {
			inImages[b] = true
		}
	}
	for _, b := range SelectNeeded(h, FromBundle(h, Needs{"linux/amd64", true}), "linux/amd64", nil).Blobs {
		want += h.Metadata.Blobs[b].Size
		if inImages[b] {
			want += h.Metadata.Blobs[b].Size + h.Metadata.Blobs[b].UnpackedSize
		}
	}
	if all.Bytes != want {
		t.Errorf("frees %d, want %d", all.Bytes, want)
	}
	if f := Frees(h, []*bundle.Header{h}, Needs{"linux/amd64", true}); f.Images != 0 || f.Bytes != 0 {
		t.Errorf("another bundle has everything: %+v", f)
	}
	other := *h.Metadata
	other.Images, other.Payloads = h.Metadata.Images[:1], nil
	f := Frees(h, []*bundle.Header{{Digest: "sha256:other", Metadata: &other}}, Needs{"linux/amd64", true})
	if f.Images != all.Images-1 || f.Bytes >= all.Bytes || f.Bytes <= 0 {
		t.Errorf("one image is shared: %+v of %+v", f, all)
	}
}
