package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/model"
)

const want = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":50,"shutdownGracePeriod":"60s"}`

// configNode is a node whose kubelet reads its drop-ins when it starts.
type configNode struct {
	root, config    string
	now             time.Time
	flags           []string // of the process
	fields          string   // that the process has read
	pid, age        int
	started         time.Time
	sick, noConfigz bool
	reportsFalse    bool
}

func (n *configNode) What() string                 { return "the kubelet" }
func (n *configNode) Log(context.Context) string   { return "kubelet: bad field" }
func (n *configNode) Config(string) (string, bool) { return n.config, true }
func (n *configNode) Command(context.Context) ([]string, error) {
	return []string{"/usr/bin/kubelet", "$KUBELET_KUBECONFIG_ARGS", "--node-labels=a b", "--x=50%"}, nil
}
func (n *configNode) Flags(context.Context) ([]string, error)             { return n.flags, nil }
func (n *configNode) Process(context.Context) (string, error)             { return fmt.Sprint(n.pid), nil }
func (n *configNode) Started(context.Context) (time.Time, error)          { return n.started, nil }
func (n *configNode) ReloadUnits(context.Context) error                   { return nil }
func (n *configNode) Containers(context.Context) ([]cri.Container, error) { return nil, nil }
func (n *configNode) ModTime(path string) (time.Time, error) {
	st, err := os.Stat(filepath.Join(n.root, path))
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}
func (n *configNode) Restart(context.Context) error {
	n.pid++
	n.age, n.started = 0, n.now
	if b, err := os.ReadFile(filepath.Join(n.root, unitDropin)); err == nil {
		n.flags = strings.Fields(string(b[strings.LastIndex(string(b), "ExecStart="):]))
	} else if configDir(n.flags) == defaultDropinDir {
		n.flags = []string{"/usr/bin/kubelet"}
	}
	n.fields = ""
	if d := configDir(n.flags); d != "" {
		b, _ := os.ReadFile(filepath.Join(n.root, d, dropinName))
		n.fields = string(b)
	}
	return nil
}
func (n *configNode) Unready(context.Context) string {
	if n.age < 3 || n.sick && n.fields == want {
		return "kubelet's health: connection refused"
	}
	return ""
}
func (n *configNode) Configz(context.Context) (map[string]any, error) {
	if n.noConfigz {
		return nil, nil
	}
	out := map[string]any{"maxPods": 110.0}
	if n.fields != "" && !n.reportsFalse {
		_ = json.Unmarshal([]byte(strings.ReplaceAll(n.fields, "60s", "1m0s")), &out)
	}
	return out, nil
}

func newConfigNode(t *testing.T) (*configNode, updaters.Task) {
	c := model.NodeConfig{Version: model.ConfigVersion, Kubelet: want}
	now := time.Now().Add(time.Hour) // files are written in the machine's time
	n := &configNode{root: t.TempDir(), config: string(c.JSON()), now: now, flags: []string{"/usr/bin/kubelet"}, age: 100, started: now.Add(-2 * time.Hour)}
	return n, updaters.Task{UID: "u", Attempt: 1, Started: now, Dir: filepath.Join(n.root, "runs"), Rollback: filepath.Join(n.root, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "kubelet-config", Updater: "kubelet-config", Verb: "apply",
			Params: map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, n.config)}}}
}

func (n *configNode) state() string {
	if n.Unready(context.Background()) != "" {
		return "between"
	}
	return fmt.Sprint(n.flags[0], configDir(n.flags), n.fields)
}

func configFixture(prepare func(*configNode)) func(t *testing.T) *updatertest.Fixture {
	return func(t *testing.T) *updatertest.Fixture {
		n, tk := newConfigNode(t)
		prepare(n)
		f := &updatertest.Fixture{
			Make: func() updaters.Updater {
				u := NewConfig(n, n.root)
				u.now = func() time.Time { return n.now }
				return u
			},
			Task: tk, Tick: func() { n.now = n.now.Add(time.Second); n.age++ },
			State: n.state, From: n.state(), To: fmt.Sprint("/usr/bin/kubelet", defaultDropinDir, want), Reversible: true,
			Break: func() { n.sick = true },
		}
		if d := configDir(n.flags); d != "" {
			f.To = fmt.Sprint("/usr/bin/kubelet", d, want)
		}
		state := f.State
		f.State = func() string { return strings.Replace(state(), "ExecStart=/usr", "/usr", 1) }
		return f
	}
}

func TestConfigConformance(t *testing.T) {
	t.Run("a kubelet without a directory for drop-ins", func(t *testing.T) { updatertest.Conform(t, configFixture(func(*configNode) {})) })
	t.Run("one with a directory of its own", func(t *testing.T) {
		updatertest.Conform(t, configFixture(func(n *configNode) { n.flags = []string{"/usr/bin/kubelet", "--config-dir", "/etc/kubelet.d"} }))
	})
	t.Run("one that may not be asked", func(t *testing.T) { updatertest.Conform(t, configFixture(func(n *configNode) { n.noConfigz = true })) })
}

// Done is what the kubelet says, not what was written.
func TestAKubeletThatReportsAnotherValueIsNotDone(t *testing.T) {
	n, tk := newConfigNode(t)
	n.reportsFalse = true
	u := NewConfig(n, n.root)
	u.now = func() time.Time { return n.now }
	for range 1000 {
		r, err := u.Update(t.Context(), tk)
		if err != nil || r.Done {
			t.Fatal(r, err)
		}
		if r.Failed {
			if !strings.Contains(r.Message, "maxPods") {
				t.Fatal(r.Message)
			}
			return
		}
		n.now, n.age = n.now.Add(time.Second), n.age+1
	}
	t.Fatal("no end")
}

func TestTheCommandIsKept(t *testing.T) {
	got := string(unitText([]string{"/usr/bin/kubelet", "$ARGS", "--config-dir=/old", "--node-labels=a b", "--x=50%", `--q=a"b`}, "/d"))
	wantText := "ExecStart=/usr/bin/kubelet $ARGS \"--node-labels=a b\" --x=50%% \"--q=a\\\"b\" --config-dir=/d\n"
	if i := strings.LastIndex(got, "ExecStart="); got[i:] != wantText {
		t.Fatal(cmp.Diff(wantText, got[i:]))
	}
}

func TestDiffers(t *testing.T) {
	for name, c := range map[string]struct{ want, have, field string }{
		"the same":                   {`{"a":1}`, `{"a":1,"b":2}`, ""},
		"a duration in other words":  {`{"a":"60s"}`, `{"a":"1m0s"}`, ""},
		"a quantity in other words":  {`{"a":"1024Mi"}`, `{"a":"1Gi"}`, ""},
		"another duration":           {`{"a":"60s"}`, `{"a":"2m"}`, "a"},
		"a nested field":             {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, "a.c"},
		"a field that is not there":  {`{"a":{"b":1}}`, `{}`, "a.b"},
		"a list":                     {`{"a":["x"]}`, `{"a":["x","y"]}`, "a"},
		"a text that is no quantity": {`{"a":"x"}`, `{"a":"y"}`, "a"},
	} {
		var w, h map[string]any
		if err := errors.Join(json.Unmarshal([]byte(c.want), &w), json.Unmarshal([]byte(c.have), &h)); err != nil {
			t.Fatal(err)
		}
		if got := firstDifference("", w, h); got != c.field {
			t.Errorf("%s: %q", name, got)
		}
	}
}
