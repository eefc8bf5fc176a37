package audit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/text"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

var update = flag.Bool("update", false, "write testdata")

func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

const repo = "reg.example/shop/web"

// site is three nodes with containerd, which pin what they have.
func site() Facts {
	f := Facts{Published: map[string]model.Published{}, Same: &model.SameImages{}, Scheme: func(r string) (imagetag.Scheme, bool) {
		s, _ := imagetag.ByName("rev")
		return s, strings.HasPrefix(r, "reg.example/")
	}}
	for _, n := range []string{"n1", "n2", "n3"} {
		node := model.ImageNode{Name: n, Runtime: "containerd", Arch: "amd64", Kubelet: "v1.36.3", Role: model.RoleWorker, OS: "Debian 12", Kernel: "6.1.0",
			Takes: true, Complete: true, PinnedKnown: true}
		f.Nodes = append(f.Nodes, node)
	}
	return f
}

// deploy adds a pod of Deployment shop/NAME on each node, running the digest.
func (f *Facts) deploy(name, image string, digests ...string) {
	for i, digest := range digests {
		n := &f.Nodes[i]
		r, _ := imagetag.ParseRef(image)
		f.Pods = append(f.Pods, model.ImagePod{Namespace: "shop", Name: fmt.Sprint(name, "-", i), Node: n.Name, OwnerKind: model.OwnerDeployment, OwnerName: name,
			Uses: []model.ImageUse{{Container: "main", Kind: model.UseContainer, Image: image, Policy: model.PullIfNotPresent, Runs: r.Repository + "@" + digest}}})
		n.Images = append(n.Images, model.CachedImage{Names: []string{image, r.Repository + "@" + digest}, Pinned: true})
	}
}

var stories = map[string]func() Facts{
	"everything-is-current": func() Facts {
		f := site()
		f.deploy("web", repo+":2.6.2-rev1", d("a"), d("a"), d("a"))
		f.Published[repo+":2.6.2-rev1"] = model.Published{Digest: d("a")}
		f.deploy("pinned", repo+":2.6.2-rev1@"+d("a"), d("a"))
		return f
	},
	"a-tag-moved-under-running-pods": func() Facts {
		f := site()
		f.deploy("web", repo+":2.6.2-rev1", d("a"), d("b"), d("a"))
		f.Published[repo+":2.6.2-rev1"] = model.Published{Digest: d("b"), Version: "2.6.2", Security: true}
		f.Published[repo+":2.6.2-rev1-b1"] = model.Published{Digest: d("a")}
		f.Published[repo+":2.6.2-rev1-b2"] = model.Published{Digest: d("b")}
		f.Restart = func(p *model.ImagePod, _ *model.ImageUse) []model.RestartAnswer {
			if p.Node == "n1" {
				return []model.RestartAnswer{{Event: "crash", Outcome: model.OutcomeChanges, To: d("b"), Why: "policy Always"}}
			}
			return nil
		}
		return f
	},
	"a-publisher-went-backwards-with-a-version-mismatch": func() Facts {
		f := site()
		f.deploy("web", repo+":2.6.2-rev1", d("b"))
		f.Published[repo+":2.6.2-rev1"] = model.Published{Digest: d("a"), Version: "2.6.3"}
		f.Published[repo+":2.6.2-rev1-b1"] = model.Published{Digest: d("a")}
		f.Published[repo+":2.6.2-rev1-b2"] = model.Published{Digest: d("b")}
		return f
	},
	"newer-things-are-published": func() Facts {
		f := site()
		f.deploy("web", repo+":2.6.2-rev1", d("a"))
		f.Published[repo+":2.6.2-rev1"] = model.Published{Digest: d("a")}
		f.Published[repo+":2.6.2-rev1-b1"] = model.Published{Digest: d("a")}
		f.Published[repo+":2.6.2-rev2-b1"] = model.Published{Digest: d("b")}
		f.deploy("api", "reg.example/shop/api:1.0-rev1", d("c"))
		f.Published["reg.example/shop/api:1.0-rev1"] = model.Published{Digest: d("c"), Mirror: d("e")}
		f.Published["reg.example/shop/api:1.0-rev1-b1"] = model.Published{Digest: d("c")}
		f.Published["reg.example/shop/api:1.1-rev1-b1"] = model.Published{Digest: d("f")}
		return f
	},
	"a-site-without-a-registry": func() Facts {
		f := site()
		f.Offline = true
		f.deploy("web", repo+":2.6.2", d("a"), d("a"))
		f.Nodes[1].Images[0].Pinned = false
		f.Pods = append(f.Pods, model.ImagePod{Namespace: "kube-system", Name: "kube-proxy-x", Node: "n1", OwnerKind: model.OwnerDaemonSet, OwnerName: "kube-proxy",
			HostNetwork: true, Critical: true, Uses: []model.ImageUse{{Container: "kube-proxy", Kind: model.UseContainer, Image: "registry.k8s.io/kube-proxy:v1.36.3",
				Policy: model.PullAlways, Runs: d("c")}}},
			model.ImagePod{Namespace: "kube-system", Name: "etcd-n1", Node: "n1", Static: true, Critical: true,
				Uses: []model.ImageUse{{Container: "etcd", Kind: model.UseContainer, Image: "registry.k8s.io/etcd:3.6.4", Policy: model.PullIfNotPresent, Runs: d("e")}}})
		f.Nodes[0].Images = append(f.Nodes[0].Images, model.CachedImage{Names: []string{"registry.k8s.io/kube-proxy:v1.36.3"}, Pinned: true},
			model.CachedImage{Names: []string{"registry.k8s.io/etcd:3.6.4"}, Pinned: true})
		f.Restart = func(_ *model.ImagePod, u *model.ImageUse) []model.RestartAnswer {
			if u.Policy == model.PullAlways {
				return []model.RestartAnswer{{Event: "reboot", Outcome: model.OutcomeFails, Why: "policy Always, and the registry does not answer"}}
			}
			return []model.RestartAnswer{{Event: "reboot", Outcome: model.OutcomeSame, Why: "x"}}
		}
		return f
	},
	"the-image-before-is-gone": func() Facts {
		f := site()
		f.Offline = true
		f.Previous = map[string]string{repo: d("e")}
		f.deploy("web", repo+":2.6.2", d("a"), d("a"))
		f.Nodes[1].Images = append(f.Nodes[1].Images, model.CachedImage{Names: []string{repo + "@" + d("e")}, Pinned: true})
		return f
	},
	"nodes-that-differ": func() Facts {
		f := site()
		for i := range f.Nodes {
			f.Nodes[i].Sandbox = "registry.k8s.io/pause:3.10.2"
			f.Nodes[i].Images = append(f.Nodes[i].Images, model.CachedImage{Names: []string{"registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause@" + d("a")}})
		}
		f.Nodes[1].Images[0].Names[1] = "registry.k8s.io/pause@" + d("b")
		f.Nodes[2].Images = nil
		f.Nodes[2].OS = "Debian 13"
		return f
	},
	"digests-of-different-kinds-prove-nothing": func() Facts {
		f := site()
		f.Nodes[1].Runtime = "cri-o"
		f.deploy("mixed", repo+":1", d("a"), d("b"))
		f.deploy("known", repo+":2", d("c"), d("e"))
		f.Same.Join(d("c"), d("e"))
		f.Published[repo+":1"] = model.Published{Digest: d("a")}
		f.Published[repo+":2"] = model.Published{Digest: d("c")}
		return f
	},
	"no-registry-was-asked": func() Facts {
		f := site()
		f.deploy("web", repo+":2.6.2", d("a"))
		f.deploy("pinned", repo+"@"+d("a"), d("a"))
		f.deploy("broken", "reg.example/Shop:1", d("a"))
		return f
	},
	"no-pods": func() Facts { return Facts{} },
}

// The table of a cluster, story by story.
func TestStories(t *testing.T) {
	t.Parallel()
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewReport(story())
			var b strings.Builder
			fmt.Fprintf(&b, "%s\nact: %v\n", r.Verdict, r.Act)
			for _, l := range r.Lines {
				fmt.Fprintf(&b, "\n%s [%s] %s: %s %s %s, %d\n", l.State, strings.Join(l.States, " "), l.Kind, l.Where, l.Container, l.Image, l.Pods)
				for _, run := range l.Running {
					fmt.Fprintf(&b, "  runs %s %s %d on %s\n", text.ShortDigest(run.Digest), run.LongTag, run.Pods, strings.Join(run.Nodes, " "))
				}
				for _, text := range []string{l.Message, l.Fix} {
					if text != "" {
						fmt.Fprintf(&b, "  %s\n", text)
					}
				}
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Only pods of one template that run two digests on one kind of node are skewed. The order of
// the pods does not matter. Every line has a state that the report counts.
func TestReportHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := site()
		var digests []string
		for range rapid.IntRange(1, 3).Draw(t, "pods") {
			digests = append(digests, d(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "digest")))
		}
		f.deploy("web", repo+":2.6.2", digests...)
		if rapid.Bool().Draw(t, "a and b are one image") {
			f.Same.Join(d("a"), d("b"))
		}
		kinds := map[string]bool{}
		for _, x := range digests {
			kinds[f.Same.Root(x)] = true
		}
		r := NewReport(f)
		line := r.Lines[slices.IndexFunc(r.Lines, func(l Line) bool { return l.Kind == KindWorkload })]
		if slices.Contains(line.States, Skewed) != (len(kinds) > 1) {
			t.Fatalf("%d images, %v", len(kinds), line.States)
		}
		total := 0
		for word, n := range r.Counts {
			total += n
			if index(word) == len(states) {
				t.Fatalf("unknown word %q", word)
			}
		}
		if total != len(r.Lines) {
			t.Fatalf("%d lines, %d counted", len(r.Lines), total)
		}
		slices.Reverse(f.Pods)
		if diff := cmp.Diff(r, NewReport(f)); diff != "" {
			t.Fatal(diff)
		}
	})
}
