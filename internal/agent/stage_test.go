package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
)

// fakeStager notes what it is asked.
type fakeStager struct {
	mu   sync.Mutex
	said []string
	// away: nothing can be prepared; slow: it takes until its context ends.
	away, slow bool
}

func (s *fakeStager) record(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

func (s *fakeStager) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.said
	s.said = nil
	return out
}

func (s *fakeStager) Prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	s.record("prepare " + name + " " + c.OS.Digest())
	s.mu.Lock()
	away, slow := s.away, s.slow
	s.mu.Unlock()
	switch {
	case slow:
		<-ctx.Done()
		s.record("given up " + name)
		return ctx.Err()
	case away:
		return errors.New("the registry does not answer")
	}
	return nil
}

func (s *fakeStager) Drop(context.Context) error { s.record("drop"); return nil }

// busyRun is a runner that is busy while busy is set.
type busyRun struct {
	noRun
	mu   sync.Mutex
	busy bool
}

func (r *busyRun) Busy() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.busy }

func (r *busyRun) set(busy bool) { r.mu.Lock(); defer r.mu.Unlock(); r.busy = busy }

func configText(t *testing.T, version, image string) string {
	t.Helper()
	b, err := json.Marshal(model.NodeConfig{Version: version, OS: &model.ConfigOS{Image: image}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantsStaged is a desired state that stages the configuration of that name.
func wantsStaged(t *testing.T, name string) *desired.State {
	t.Helper()
	return &desired.State{Spec: v1alpha1.NodeUpdateSpec{Stage: name}, Configs: map[string]string{
		"one": configText(t, model.ConfigVersion, "q/os@sha256:1"), "two": configText(t, model.ConfigVersion, "q/os@sha256:2"), "newer": configText(t, "refit.dev/config/v9", "q/os@sha256:3"), "torn": "{"}}
}

func TestStage(t *testing.T) {
	for name, c := range map[string]struct {
		stage string
		says  []string
		fails string
	}{
		"what is named is made ready":                {"one", []string{"prepare one sha256:1"}, ""},
		"nothing is named any more: dropped":         {"", []string{"drop"}, ""},
		"of a version that this agent does not know": {"newer", nil, "update refit on this node"},
		"a configuration that is no configuration":   {"torn", nil, "configuration torn"},
		"a configuration that has not arrived":       {"later", nil, "configuration later"},
	} {
		t.Run(name, func(t *testing.T) {
			a, s := idle(t, &fakeRuntime{dir: t.TempDir()}), &fakeStager{}
			a.staging.stager = s
			a.authority.Follow([]string{"one"})
			w := wantsStaged(t, c.stage)
			err := a.staging.stage(t.Context(), c.stage, w.Configs[c.stage])
			if d := cmp.Diff(c.says, s.took()); d != "" || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatal(err, d)
			}
		})
	}
}

// The stage loop pauses during a run, and retries a failure after a minute. A new desired state
// interrupts an attempt and starts another one at once.
func TestStageLoop(t *testing.T) {
	a, s, r := idle(t, &fakeRuntime{dir: t.TempDir()}), &fakeStager{away: true}, &busyRun{busy: true}
	a.staging.stager, a.runner = s, r
	a.authority.Follow([]string{"one", "two"})
	synctest.Test(t, func(t *testing.T) {
		a.wakeStage, a.wakeFacts = make(chan struct{}, 1), make(chan struct{}, 1)
		tell := func(name string) {
			a.mu.Lock()
			a.want = wantsStaged(t, name)
			a.mu.Unlock()
			wake(a.wakeStage)
		}
		is := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, s.took()); d != "" {
				t.Fatal(what, d)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.staging.Run(ctx) }()
		is("nothing is desired")
		tell("one")
		is("a run is under way")
		r.set(false)
		time.Sleep(stageEvery)
		is("it is over", "prepare one sha256:1")
		time.Sleep(3 * stageEvery)
		is("the registry is unreachable", "prepare one sha256:1", "prepare one sha256:1", "prepare one sha256:1")
		s.mu.Lock()
		s.away, s.slow = false, true
		s.mu.Unlock()
		time.Sleep(stageEvery)
		is("it comes slowly", "prepare one sha256:1")
		s.mu.Lock()
		s.slow = false
		s.mu.Unlock()
		time.Sleep(10 * stageEvery)
		is("it still comes slowly")
		tell("two")
		time.Sleep(2 * supersededEvery)
		is("another is wanted", "given up one", "prepare two sha256:2")
		select {
		case <-a.wakeFacts:
		default:
			t.Error("the staged boot is not reported")
		}
		tell("")
		is("nothing is wanted", "drop")
		stop()
		<-ended
	})
}

// Drift is repaired and reported if the desired configuration asks for that.
func TestDriftIsRepaired(t *testing.T) {
	repair := `{"version":"refit.dev/config/v1","drift":"repair"}`
	report := `{"version":"refit.dev/config/v1"}`
	long := strings.Repeat("/etc/some/file ", 40)
	for name, c := range map[string]struct {
		configs []string
		did     []string
		fails   error
		asked   int
		event   string
	}{
		"a file is restored":                     {[]string{repair}, []string{"/etc/motd"}, nil, 1, "DriftRepaired: restored the configured state of: /etc/motd"},
		"nothing was changed":                    {[]string{repair}, nil, nil, 1, ""},
		"it cannot be restored":                  {[]string{repair}, []string{"/etc/motd"}, errors.New("read-only file system"), 1, ""},
		"so many that a message would not end":   {[]string{repair}, []string{long}, nil, 1, "DriftRepaired: restored the configured state of: /etc/some"},
		"a rule repairs one file":                {[]string{`{"version":"refit.dev/config/v1","files":[{"path":"/etc/motd","drift":"repair"}]}`}, []string{"/etc/motd"}, nil, 1, "DriftRepaired: "},
		"only reported":                          {[]string{report}, nil, nil, 0, ""},
		"ignored":                                {[]string{`{"version":"refit.dev/config/v1","drift":"ignore"}`}, nil, nil, 0, ""},
		"asked for by a configuration of before": {[]string{report, repair}, nil, nil, 0, ""},
		"no configuration is wanted":             {nil, nil, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, api, asked := idle(t, &fakeRuntime{dir: t.TempDir()}), newFakeAPI(), 0
			a.api = api
			a.facts.drift.repair = func(_ context.Context, got *model.NodeConfig, busy func() bool) ([]string, error) {
				if asked++; !got.RepairsDrift() || busy() {
					t.Errorf("asked about %+v, busy %v", got, busy())
				}
				return c.did, c.fails
			}
			w := &desired.State{Configs: map[string]string{}}
			for i, text := range c.configs {
				name := []string{"current", "staged"}[i]
				w.Configs[name] = text
				*[]*string{&w.Spec.Config, &w.Spec.Stage}[i] = name
			}
			a.want = w
			a.authority.Follow([]string{"current", "staged"})
			a.facts.drift.run(t.Context())
			said := strings.Join(api.events, "\n")
			if asked != c.asked || (c.event == "") != (said == "") || !strings.HasPrefix(said, c.event) || len(said) > messageBytes+len("DriftRepaired: ") {
				t.Fatalf("asked %d times, said %q", asked, said)
			}
		})
	}
	idle(t, &fakeRuntime{dir: t.TempDir()}).facts.drift.run(t.Context()) // without a repair function
}

// The controller alone has no drift repaired, no field of the node read and no OS image
// fetched: administrators' objects must say the same.
func TestTheControllerAloneConfiguresNothing(t *testing.T) {
	mine := model.NodeConfig{Version: model.ConfigVersion, Drift: model.DriftRepair, External: []model.ConfigField{{Path: "firmware/bios", Value: "2", File: "/sys/class/dmi/id/bios_version"}},
		Files: []model.ConfigFile{{Path: "/etc/motd", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("hello\n")}}}
	hello := "hello\n"
	type objects = people
	people := func(p *people) {
		p.configs = []v1alpha1.NodeConfig{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeConfigSpec{Fields: []v1alpha1.NodeField{{Path: "firmware/bios", Value: "2", File: "/sys/class/dmi/id/bios_version"}},
			Files: []v1alpha1.NodeFile{{Path: "/etc/motd", Contents: &v1alpha1.FileContents{Inline: &hello}}}}}}
		p.pools = []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.UpdatePoolSpec{Drift: v1alpha1.DriftRepair}}}
	}
	forge := func(change func(*model.NodeConfig)) model.NodeConfig {
		c := mine
		c.Files, c.External = slices.Clone(c.Files), slices.Clone(c.External)
		change(&c)
		return c
	}
	byRule := func(p *objects) {
		people(p)
		p.pools[0].Spec = v1alpha1.UpdatePoolSpec{DriftRules: []v1alpha1.DriftRule{{Files: []string{"/etc/motd"}, Action: v1alpha1.DriftRepair}}}
	}
	for name, says := range map[string]func(*objects){"drift: Report": func(p *objects) { people(p); p.pools[0].Spec.Drift = "" }, "a rule": byRule} {
		a, api := idle(t, &fakeRuntime{dir: t.TempDir()}), newFakeAPI()
		api.says(says)
		a.api = api
		repaired := 0
		a.facts.drift.repair = func(context.Context, *model.NodeConfig, func() bool) ([]string, error) { repaired++; return nil, nil }
		c := forge(func(c *model.NodeConfig) { c.Drift, c.Files[0].Drift = "", model.DriftRepair })
		a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Config: "c"}, Configs: map[string]string{"c": string(c.JSON())}}
		a.facts.asked(t.Context())
		a.facts.drift.run(t.Context())
		if allowed := name == "a rule"; repaired > 0 != allowed {
			t.Errorf("%s: repaired %d times", name, repaired)
		}
	}
	for name, c := range map[string]struct {
		config  model.NodeConfig
		refused string
	}{
		"as administrators want it": {mine, ""},
		"less than they want":       {forge(func(c *model.NodeConfig) { c.Files = nil }), ""},
		"a file of nobody":          {forge(func(c *model.NodeConfig) { c.Files[0].Path = "/etc/cron.d/evil" }), "no NodeConfig has the file /etc/cron.d/evil"},
		"other bytes":               {forge(func(c *model.NodeConfig) { c.Files[0].Data = []byte("evil") }), "/etc/motd"},
		"another mode":              {forge(func(c *model.NodeConfig) { c.Files[0].Mode = 0o4755 }), "/etc/motd"},
		"bytes of a bundle": {forge(func(c *model.NodeConfig) {
			c.Files[0].Payload, c.Files[0].Digest = "file.x", model.DigestOf([]byte(hello))
		}), "/etc/motd"},
		"removed":               {forge(func(c *model.NodeConfig) { c.Files[0].Absent = true }), "/etc/motd"},
		"a unit of nobody":      {forge(func(c *model.NodeConfig) { c.Units = []model.ConfigUnit{{Name: "evil.service", State: "enabled"}} }), "evil.service"},
		"fields of the kubelet": {forge(func(c *model.NodeConfig) { c.Kubelet = `{"maxPods":1}` }), "kubelet"},
		"a certificate": {forge(func(c *model.NodeConfig) {
			c.Certificates = []model.ConfigCertificate{{Name: "apiserver", DaysLeft: 300}}
		}), "apiserver"},
		"a sandbox image":             {forge(func(c *model.NodeConfig) { c.SandboxImage = "evil.example/pause:1" }), "evil.example"},
		"a file that a field is read": {forge(func(c *model.NodeConfig) { c.External[0].File = "/etc/secret-token" }), "/etc/secret-token"},
	} {
		t.Run(name, func(t *testing.T) {
			a, api, repaired := idle(t, &fakeRuntime{dir: t.TempDir()}), newFakeAPI(), 0
			api.says(people)
			a.api = api
			a.facts.drift.repair = func(context.Context, *model.NodeConfig, func() bool) ([]string, error) { repaired++; return nil, nil }
			a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Config: "c"}, Configs: map[string]string{"c": string(c.config.JSON())}}
			asked, config, _ := a.facts.asked(t.Context())
			a.facts.drift.run(t.Context())
			read := len(asked.Configs[0].External) > 0
			if ok := c.refused == ""; repaired > 0 != ok || read != ok || (config == "c") != ok {
				t.Errorf("repaired %d times, fields are read: %v, observed %q", repaired, read, config)
			}
			all := a.problems.List(time.Now())
			if (c.refused == "") != (len(all) == 0) || len(all) > 0 && (all[0].Reason != v1alpha1.ReasonConfigNotApproved || !strings.Contains(all[0].Message, c.refused) || all[0].Fix == "") {
				t.Errorf("%+v", all)
			}
		})
	}
}

// The controller cannot have an agent take a port without which its node does not run.
func TestAPortThatTheNodeNeedsIsNotTaken(t *testing.T) {
	a := idle(t, &fakeRuntime{dir: t.TempDir()})
	a.conf.Address = "127.0.0.1"
	for port, refused := range map[int32]bool{0: false, 18740: false, 7000: false, 22: true, 2379: true, 6443: true, 10250: true, 10257: true} {
		a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{PeerPort: port}}
		if address, err := a.server.listenAddress(); (err != nil) != refused {
			t.Errorf("port %d: %s %v", port, address, err)
		}
	}
}
