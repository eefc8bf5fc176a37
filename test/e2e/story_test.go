package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/test/results"
)

// TestMainJob is the main story of the product, with the faults of a real site. They are an
// altered USB stick, an unapproved one, a disk that is too small, a kill, and a budget that
// cannot be met. In the end every node has the new release.
func TestMainJob(t *testing.T) {
	s := start(t, "story", 3)
	keepStory(t, "story.json")
	ctx := t.Context()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	right, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, right))
	noBundleImages(t, s, b)

	step(t, "a stick that is not approved is found and nothing is loaded", func(t *testing.T) {
		eventually(t, time.Minute, "the stick is found", func() (bool, string) {
			m, said := medium(t, s, s.MediumNode, right)
			return m.State == v1alpha1.MediumFound && m.Digest == b.Digest, said
		})
		eventually(t, 10*time.Second, "status asks for an approval", func() (bool, string) { // a moment after the node's own word
			v, _ := status(t, s)
			return strings.Contains(v.Headline, "waits for approval"), v.Headline
		})
		noBundleImages(t, s, b)
	})
	must(t, s.Eject(ctx, s.MediumNode, right))
	must(t, approve(t, s, b.Digest))
	stranger, err := s.Key(ctx, "stranger")
	must(t, err)
	step(t, "a stick with a stranger's bundle is refused with both digests", func(t *testing.T) {
		unverifiedMedium(t, s, b, scenario.BundleOptions{File: "stranger.tar", Version: "9.9.9", Key: stranger})
	})
	step(t, "a stick with an unsigned bundle is refused with both digests", func(t *testing.T) {
		unverifiedMedium(t, s, b, scenario.BundleOptions{File: "unsigned.tar", Version: "8.8.8"})
	})
	step(t, "an altered stick is refused where it was altered", func(t *testing.T) { alteredMedium(t, s, b) })
	step(t, "a disk that is too small is named with needed and free bytes", func(t *testing.T) { smallDisk(t, s, b) })

	row := seeded(t)
	fired := arm(t, s, []killPoint{row})
	var digest string
	step(t, "every node holds and pins every image", func(t *testing.T) {
		eventually(t, 3*time.Minute, "the freed room is seen", func() (bool, string) {
			v, ok := status(t, s)
			return ok && v.Phase != v1alpha1.PhaseBlocked, fmt.Sprintf("%s %v", v.Phase, v.Waiting)
		})
		digest, err = s.Prepare(ctx, b)
		must(t, err)
	})
	step(t, "a budget that cannot be met is named, and lifted lets the update go on", func(t *testing.T) {
		setBudget(t, s, 3)
		startUpdate(t, s)
		budgetIsNamed(t, s)
		setBudget(t, s, scenario.WorkloadBudget)
	})
	step(t, "the update finishes by itself", func(t *testing.T) { finished(t, s, b, digest) })
	step(t, "a DaemonSet brings the host service back where it is missing", func(t *testing.T) { daemonSet(t, s, b) })
	step(t, "an older signed bundle is loaded by its trusted key and refused as an update", func(t *testing.T) { olderBundle(t, s) })
	step(t, "refit predicts what a crash runs, with the registry up and stopped", func(t *testing.T) { checkPredictions(t, s) })
	if f := fired()[row.name]; !f.fired {
		t.Errorf("the seeded kill %q did not fire: its moment was not seen, or the kill failed: %v", row.name, f.err)
	}
}

// step runs one part of a story; the long run keeps what came of it.
func step(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	began := time.Now()
	ok := t.Run(name, f)
	played[t.Name()] = append(played[t.Name()], outcome{Step: name, Passed: ok, Seconds: int(time.Since(began).Seconds())})
	if !ok {
		t.FailNow()
	}
}

// outcome is one part of a story as results/ keeps it.
type outcome struct {
	Step    string `json:"step"`
	Passed  bool   `json:"passed"`
	Seconds int    `json:"seconds"`
}

// played by the name of the test.
var played = map[string][]outcome{}

// noted is what was measured on the way, by the name of the test and what it is.
var noted = map[string]map[string][]any{}

// measured keeps a thing that was measured for the file of results.
func measured(t *testing.T, what string, value any) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if noted[test] == nil {
		noted[test] = map[string][]any{}
	}
	noted[test][what] = append(noted[test][what], value)
}

// keepStory writes the parts of this story to a file when the long tables run.
func keepStory(t *testing.T, file string) {
	if os.Getenv("REFIT_E2E") == "" {
		return
	}
	keepResult(t, file, func() any {
		story := map[string]any{"steps": played[t.Name()]}
		if m := noted[t.Name()]; m != nil {
			story["measured"] = m
		}
		return story
	})
}

// keepResult writes what a test measured to results/, if it passes.
func keepResult(t *testing.T, file string, value func() any) {
	t.Helper()
	results.Keep(t, filepath.Join("results", file), value)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noBundleImages: no node's CRI has an image that only the bundle brings.
func noBundleImages(t *testing.T, s *scenario.Scenario, b scenario.Bundle) {
	t.Helper()
	for _, n := range s.Lab.Nodes() {
		held, err := s.Held(t.Context(), n, b, "registry.k8s.io/kube-apiserver:"+to)
		must(t, err)
		if held {
			t.Errorf("node %s already has the new kube-apiserver image", n)
		}
	}
}

// unverifiedMedium: another bundle than the approved one, signed with the key, or
// not signed at all without one.
func unverifiedMedium(t *testing.T, s *scenario.Scenario, b scenario.Bundle, o scenario.BundleOptions) {
	ctx := t.Context()
	wrong, err := s.SmallBundle(ctx, o)
	must(t, err)
	before := stored(t, s)
	dev, err := s.Insert(ctx, s.MediumNode, wrong)
	must(t, err)
	eventually(t, time.Minute, "the wrong stick is refused", func() (bool, string) {
		m, said := medium(t, s, s.MediumNode, dev)
		return m.State == v1alpha1.MediumRefused && strings.Contains(m.Message, wrong.Digest) && strings.Contains(m.Message, b.Digest), said
	})
	eventually(t, time.Minute, "a Bundle's condition names the digest found and the one expected", func() (bool, string) {
		var list v1alpha1.BundleList
		if err := s.Client.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		return conditionSays(list.Items, wrong.Digest, b.Digest)
	})
	for f := range stored(t, s) {
		if !before[f] {
			t.Errorf("a refused stick left %s", f)
		}
	}
	must(t, s.Eject(ctx, s.MediumNode, dev))
}

// stored are the bundles, blobs and parts of blobs that a node's agent keeps.
func stored(t *testing.T, s *scenario.Scenario) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, n := range s.Lab.Nodes() {
		out, err := s.Output(t.Context(), n, "find", "/var/lib/refit", "-path", "*/bundles/*", "-o", "-path", "*/blobs/*")
		must(t, err)
		for f := range strings.FieldsSeq(out) {
			files[n+":"+f] = true
		}
	}
	return files
}

// conditionSays finds a Bundle's condition whose message has all the words.
func conditionSays(bundles []v1alpha1.Bundle, words ...string) (bool, string) {
	var said []string
	for _, b := range bundles {
		for _, c := range b.Status.Conditions {
			said = append(said, b.Name+" "+c.Type+" "+c.Reason+" "+c.Message)
			missing := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
			if missing < 0 {
				return true, c.Message
			}
		}
	}
	return false, strings.Join(said, "; ")
}

// alteredMedium: the right bundle with one byte changed in the middle.
func alteredMedium(t *testing.T, s *scenario.Scenario, b scenario.Bundle) {
	ctx := t.Context()
	bad, err := s.Altered(b, b.Size/2)
	must(t, err)
	dev, err := s.InsertFile(ctx, s.MediumNode, bad)
	must(t, err)
	eventually(t, 2*time.Minute, "the altered byte is found", func() (bool, string) {
		m, said := medium(t, s, s.MediumNode, dev)
		return m.State == v1alpha1.MediumUnreadable && strings.Contains(m.Message, "offset"), said
	})
	eventually(t, time.Minute, "a Bundle's condition names the damage with the digest found and the one expected", func() (bool, string) {
		var list v1alpha1.BundleList
		if err := s.Client.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		return conditionSays(list.Items, "offset", "found sha256:", "expected sha256:")
	})
	noBundleImages(t, s, b)
	must(t, s.Eject(ctx, s.MediumNode, dev))
}

// smallDisk: n3 has no room; the gate names node, needed and free bytes, and
// nothing is started.
func smallDisk(t *testing.T, s *scenario.Scenario, b scenario.Bundle) {
	ctx := t.Context()
	must(t, s.Fill(ctx, "n3", 200<<20))
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	_, err = s.Run(ctx, "plan", "--to", b.Digest, "--timeout", "30s")
	must(t, err)
	eventually(t, 3*time.Minute, "the gate names the full node", func() (bool, string) {
		v, ok := status(t, s)
		if !ok {
			return false, "no answer"
		}
		for _, w := range v.Waiting {
			if w.Reason == v1alpha1.ReasonInsufficientSpace && strings.Contains(w.Message, "n3") && strings.Contains(w.Message, "bytes") {
				return v.Phase == v1alpha1.PhaseBlocked, w.Message
			}
		}
		return false, fmt.Sprintf("%s %v", v.Phase, v.Waiting)
	})
	for _, n := range s.Lab.Nodes() {
		if nu, err := nodeUpdate(t, s, n); err != nil || nu.Spec.Run != nil {
			t.Errorf("node %s was started (%v)", n, err)
		}
	}
	must(t, s.Free(ctx, "n3"))
	t.Logf("n3 has room again; the stick stays as %s", dev)
}

func approve(t *testing.T, s *scenario.Scenario, digest string) error {
	t.Helper()
	r, err := s.Run(t.Context(), "approve", digest)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("approve: exit code %d: %s", r.Code, r.Stderr)
	}
	return err
}

func setBudget(t *testing.T, s *scenario.Scenario, n int) {
	t.Helper()
	var pdb policyv1.PodDisruptionBudget
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "app"}, &pdb))
	patch := client.MergeFrom(pdb.DeepCopy())
	v := intstr.FromInt(n)
	pdb.Spec.MinAvailable = &v
	must(t, s.Client.Patch(t.Context(), &pdb, patch))
}

func startUpdate(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	r, err := s.Run(t.Context(), "apply", "--yes", "--no-wait")
	if err != nil || r.Code != 0 {
		t.Fatalf("apply: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
}

// budgetIsNamed waits until status names the pod and the budget. The first node is the
// control plane. The budget does not block its drain if no pod of the workload runs there,
// so it may take a while until a worker is drained.
func budgetIsNamed(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	var since time.Time
	eventually(t, 15*time.Minute, "the budget is named", func() (bool, string) {
		v, ok := status(t, s)
		if !ok {
			return false, "the API server is unavailable"
		}
		if since.IsZero() && workerCordoned(t, s) {
			since = time.Now()
		}
		for _, w := range v.Waiting {
			if w.Reason == v1alpha1.ReasonDisruptionBudget && strings.Contains(w.Message, "shop/app") {
				if !since.IsZero() {
					t.Logf("measured: %.1f s from the cordon of the node to the sentence", time.Since(since).Seconds())
				}
				return true, w.Message
			}
		}
		return false, v.Headline
	})
}

// workerCordoned: a worker, which has pods of the workload, is cordoned.
func workerCordoned(t *testing.T, s *scenario.Scenario) bool {
	t.Helper()
	for _, n := range []string{"n2", "n3"} {
		if cordoned, err := s.Cordoned(t.Context(), n); err == nil && cordoned {
			return true
		}
	}
	return false
}

// daemonSet: the agent of n3 is uninstalled; the DaemonSet, whose image every
// node holds by now, installs it again as a host service.
func daemonSet(t *testing.T, s *scenario.Scenario, b scenario.Bundle) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Exec(ctx, "n3", "refit-agent", "uninstall", "--keep-state"))
	if err := s.Exec(ctx, "n3", "systemctl", "is-active", "refit-agent"); err == nil {
		t.Fatal("the agent of n3 still runs after uninstall")
	}
	r, err := s.Run(ctx, "install", "--from", b.Path, "--daemonset")
	if err != nil || r.Code != 0 {
		t.Fatalf("install --daemonset: exit code %d, %v", r.Code, err)
	}
	eventually(t, 2*time.Minute, "the host service of n3 runs again", func() (bool, string) {
		out, err := s.Output(ctx, "n3", "systemctl", "is-active", "refit-agent")
		return err == nil, out
	})
}

// olderBundle: a bundle of the release that ran before, signed by a key that a
// TrustPolicy trusts. Nodes load it; it is no way back in.
func olderBundle(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	ctx := t.Context()
	pub, err := os.ReadFile(s.Path("keys/refit.pub"))
	must(t, err)
	policy := &v1alpha1.TrustPolicy{Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "maker", PublicKey: string(pub)}}, Threshold: 1}}
	policy.Name = "makers"
	must(t, s.Client.Create(ctx, policy))
	older, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "older.tar", Version: strings.TrimPrefix(from, "v"), Release: s.FromRelease()})
	must(t, err)
	_, err = s.Insert(ctx, s.MediumNode, older)
	must(t, err)
	eventually(t, 5*time.Minute, "the older bundle is loaded", func() (bool, string) {
		var list v1alpha1.BundleList
		if err := s.Client.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		for _, b := range list.Items {
			if b.Status.Digest == older.Digest {
				return b.Status.Loaded == "3/3" && b.Spec.Digest == "", fmt.Sprintf("loaded %s, %v", b.Status.Loaded, b.Status.Conditions)
			}
		}
		return false, "no Bundle of its digest"
	})
	r, err := s.Run(ctx, "plan", "--to", older.Digest)
	must(t, err)
	if r.Code != 3 || !strings.Contains(r.Stdout, v1alpha1.ReasonOlderThanRunning) {
		t.Errorf("plan of an older bundle: exit code %d, want 3 with OlderThanRunning:\n%s", r.Code, r.Stdout)
	}
}

// finished waits for the end and measures from outside.
func finished(t *testing.T, s *scenario.Scenario, b scenario.Bundle, digest string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	r, err := s.Run(ctx, "status", "--watch", "--timeout", "15m")
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("status --watch: exit code %d\n%s", r.Code, r.Stdout)
	}
	before := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		before[n] = from
	}
	res, err := s.Measure(ctx, scenario.Result{PlanDigest: digest, Phases: map[string]float64{}, Workload: scenario.Workload{Samples: 1, MinReady: 1, Budget: 1}}, b, before)
	must(t, err)
	if !res.OK {
		t.Errorf("problems: %v", res.Problems)
	}
	text, err := json.Marshal(res)
	must(t, err)
	t.Logf("%s", text)
}
