package controller_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// firmware is an external updater over TLS that moves the fields below a prefix.
type firmware struct {
	s      *site
	prefix string
	*httptest.Server

	mu sync.Mutex
	// steps is how often it says that it is at work before it is done.
	steps int
	// claimsDone answers Done although the node did not change; refuses answers Failed.
	claimsDone, refuses bool
	// hang makes calls of UpdateMachine wait until it is closed.
	hang chan struct{}
	// asked are the bodies of UpdateMachine by node, as they came.
	asked map[string][]string
	// order is shared: who worked on which node, as it was finished.
	order *[]string
}

func newFirmware(s *site, prefix string, order *[]string) *firmware {
	f := &firmware{s: s, prefix: prefix, asked: map[string][]string{}, order: order}
	f.Server = httptest.NewTLSServer(f)
	s.t.Cleanup(f.Close)
	return f
}

func (f *firmware) register(name string, order int32, change func(*v1alpha1.UpdaterSpec)) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	u := &v1alpha1.Updater{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpdaterSpec{Nodes: true, URL: f.URL, CABundle: string(ca), Order: order, TimeoutSeconds: 1}}
	if change != nil {
		change(&u.Spec)
	}
	f.s.create(u)
}

func (f *firmware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for _, h := range []hooks.Hook{hooks.CanUpdateMachine, hooks.UpdateMachine} {
		if r.URL.Path != h.Path() {
			continue
		}
		req, err := h.Decode(strings.NewReader(string(body)))
		if err != nil {
			f.s.t.Errorf("refit sends what is no request: %v", err)
			return
		}
		var a hooks.Answer
		if h.Claims {
			a = f.offer(req)
		} else {
			a = f.work(req, string(body))
		}
		data, err := h.EncodeAnswer(a)
		if err != nil {
			f.s.t.Error(err)
		}
		_, _ = w.Write(data)
		return
	}
	data, _ := hooks.Discovery()
	_, _ = w.Write(data)
}

func fieldsOf(o map[string]any) map[string]string {
	out := map[string]string{}
	spec, _ := o["spec"].(map[string]any)
	fields, _ := spec["fields"].(map[string]any)
	for path, v := range fields {
		out[path], _ = v.(string)
	}
	return out
}

func (f *firmware) mine(o map[string]any) map[string]string {
	out := fieldsOf(o)
	maps.DeleteFunc(out, func(path, _ string) bool { return !strings.HasPrefix(path, f.prefix) })
	return out
}

func (f *firmware) offer(r hooks.Request) hooks.Answer {
	data, _ := json.Marshal(map[string]any{"spec": map[string]any{"fields": f.mine(r.Desired[capidiff.Machine])}})
	return hooks.Answer{Harmless: true, Patches: map[string]hooks.Patch{capidiff.Machine: {PatchType: hooks.JSONMergePatch, Patch: data}}}
}

func (f *firmware) work(r hooks.Request, body string) hooks.Answer {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	node, _ := r.Desired[capidiff.Machine]["metadata"].(map[string]any)["name"].(string)
	f.asked[node] = append(f.asked[node], body)
	switch {
	case f.refuses:
		return hooks.Answer{Failed: true, Message: "the flash is write protected"}
	case f.claimsDone:
		return hooks.Answer{Message: "all is well"}
	case len(f.asked[node]) <= f.steps:
		return hooks.Answer{Message: "flashing", RetryAfter: 1}
	}
	want := f.mine(r.Desired[capidiff.Machine])
	f.s.agents[node].set(func(a *simAgent) {
		if a.firmware == nil {
			a.firmware = map[string]string{}
		}
		maps.Copy(a.firmware, want)
	})
	*f.order = append(*f.order, node+" "+f.prefix)
	return hooks.Answer{Message: "flashed"}
}

// newFirmwareSite wants two firmwares of every node; deadline in seconds.
func newFirmwareSite(t *testing.T, deadline int32) *site {
	s := newSite(t, from)
	one := intstr.FromInt32(1)
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &one, StepDeadlineSeconds: deadline}})
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.firmware = map[string]string{"bios/main": "1.0", "nic/eth0": "7"} })
	}
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "firmware"}, Spec: v1alpha1.NodeConfigSpec{Fields: []v1alpha1.NodeField{
		{Path: "bios/main", Value: "1.2", File: "/sys/class/dmi/id/bios_version"}, {Path: "nic/eth0", Value: "8", File: "/run/nic/version"}}}})
	return s
}

// Two updaters share a node's fields. The plan names each as an owner, and the controller
// calls them in their order, with the same request until the step is done. A step is done
// when the node's agent observes the new values.
func TestExternalUpdatersOfPlainNodes(t *testing.T) {
	s := newFirmwareSite(t, 600)
	var order []string
	nic, bios := newFirmware(s, "nic/", &order), newFirmware(s, "bios/", &order)
	bios.steps = 2
	s.updateOfConfigs("u", v1alpha1.StartManual)
	s.waitUpdate("u", "no updater covers the fields", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseBlocked && blocked(v1alpha1.ReasonNoUpdater)(u)
	})
	nic.register("nic", 2, nil)
	s.waitUpdate("u", "one field is left", func(u *v1alpha1.ClusterUpdate) bool {
		return blocked(v1alpha1.ReasonNoUpdater)(u) && strings.Contains(fmt.Sprint(u.Status.Blockers), "bios/main") && !strings.Contains(fmt.Sprint(u.Status.Blockers), "covers nic/eth0")
	})
	bios.register("bios", 1, nil)
	u := s.waitUpdate("u", "every field has an owner", phase(v1alpha1.PhaseReady))
	for _, f := range []*firmware{nic, bios} {
		if f.mu.Lock(); len(f.asked) > 0 {
			t.Error("a plan has moved something")
		}
		f.mu.Unlock()
	}
	s.change("u", func(spec *v1alpha1.ClusterUpdateSpec) {
		spec.Start, spec.PlanDigest = v1alpha1.StartImmediate, u.Status.PlanDigest
	})
	if u = s.waitUpdate("u", "every node is at its firmware", phase(v1alpha1.PhaseDone)); u.Status.NodesDone != 3 || len(u.Status.External) > 0 {
		t.Errorf("%d nodes done, %v", u.Status.NodesDone, u.Status.External)
	}
	bios.mu.Lock()
	defer bios.mu.Unlock()
	for node, bodies := range bios.asked {
		if len(bodies) < 3 || len(slices.Compact(slices.Clone(bodies))) != 1 {
			t.Errorf("node %s was asked for %d times, by %d different requests", node, len(bodies), len(slices.Compact(bodies)))
		}
		if strings.Contains(bodies[0], "nic/eth0") {
			t.Errorf("an updater is shown what it does not own: %s", bodies[0])
		}
	}
	// One that is asked once more, because its "done" was not seen yet, says so again.
	once := slices.Compact(slices.Clone(order))
	if len(once) != 6 {
		t.Errorf("in the order %v", order)
	}
	for i := 0; i+1 < len(once); i += 2 {
		if node, ok := strings.CutSuffix(once[i], " bios/"); !ok || once[i+1] != node+" nic/" {
			t.Errorf("in the order %v", order)
		}
	}
}

// A false Done, a hang and a refusal each fail the step with the reason and halt the update.
// The answer of an updater proves nothing, and its silence ends at the deadline. A retry
// needs spec.retry.
func TestExternalUpdatersThatCannotBeTrusted(t *testing.T) {
	s := newFirmwareSite(t, 60)
	var order []string
	f := newFirmware(s, "", &order)
	f.claimsDone = true
	f.register("vendor", 0, nil)
	s.updateOfConfigs("u", v1alpha1.StartImmediate)
	s.waitUpdate("u", "the status reports a false Done while the controller waits", func(u *v1alpha1.ClusterUpdate) bool {
		return len(u.Status.External) == 1 && strings.Contains(u.Status.External[0].Message, "says that it is done, but the node's agent does not confirm it: its bios/main is 1.0, not 1.2")
	})
	halted := func(why ...string) func(*v1alpha1.ClusterUpdate) bool {
		return func(u *v1alpha1.ClusterUpdate) bool {
			said := fmt.Sprint(u.Status.Blockers)
			return u.Status.Phase == v1alpha1.PhaseHalted && !slices.ContainsFunc(why, func(w string) bool { return !strings.Contains(said, w) })
		}
	}
	s.ahead.Add(int64(time.Minute))
	s.waitUpdate("u", "a false Done fails at its deadline", halted("external-vendor", "did not finish within 1m0s", "bios/main"))

	hang := make(chan struct{})
	f.mu.Lock()
	f.claimsDone, f.hang = false, hang
	f.mu.Unlock()
	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Retry = 1 })
	s.waitUpdate("u", "the status reports a hang", func(u *v1alpha1.ClusterUpdate) bool {
		return len(u.Status.External) == 1 && strings.Contains(u.Status.External[0].Message, "does not answer in time")
	})
	s.ahead.Add(int64(time.Minute))
	s.waitUpdate("u", "a hang fails at its deadline", halted("external-vendor", "did not finish within 1m0s", "does not answer in time"))

	f.mu.Lock()
	f.hang, f.refuses = nil, true
	f.mu.Unlock()
	close(hang) // a call that still waits is refused, too
	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Retry = 2 })
	s.waitUpdate("u", "a refusal fails at once, in its own words", halted("external-vendor", "the flash is write protected"))
	if v := s.node("n2"); v.Annotations[v1alpha1.AnnotationUpdating] != "" {
		t.Error("another node was started after the first had failed")
	}

	f.mu.Lock()
	f.refuses = false
	f.mu.Unlock()
	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Retry = 3 })
	if u := s.waitUpdate("u", "then it goes through", phase(v1alpha1.PhaseDone)); u.Status.NodesDone != 3 {
		t.Errorf("%d nodes done", u.Status.NodesDone)
	}
}

// Who shows another certificate is not talked to, and the plan says so.
func TestAnExternalUpdaterWithAnotherCertificate(t *testing.T) {
	s := newFirmwareSite(t, 600)
	var order []string
	f := newFirmware(s, "", &order)
	f.register("vendor", 0, func(u *v1alpha1.UpdaterSpec) { u.CABundle = strangersCA(t) })
	s.updateOfConfigs("u", v1alpha1.StartImmediate)
	s.waitUpdate("u", "the certificate is refused", func(u *v1alpha1.ClusterUpdate) bool {
		return blocked(v1alpha1.ReasonNoUpdater)(u) && strings.Contains(fmt.Sprint(u.Status.Blockers), "certificate is not one that its CA bundle trusts")
	})
	if s.node("n1").Annotations[v1alpha1.AnnotationUpdating] != "" || len(f.asked) > 0 {
		t.Error("something was moved")
	}
}

// strangersCA is a certificate that has signed nothing of ours.
func strangersCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
