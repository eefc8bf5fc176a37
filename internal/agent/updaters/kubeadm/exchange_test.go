package kubeadm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/fsutil"
)

// simUnits records what is asked of systemd and the runtime.
type simUnits struct {
	asked []string
	fails string
}

func (u *simUnits) note(what string) error {
	u.asked = append(u.asked, what)
	if what == u.fails {
		return errors.New("the job failed")
	}
	return nil
}
func (u *simUnits) Start(context.Context, string) error { return u.note("start") }
func (u *simUnits) Stop(context.Context, string) error  { return u.note("stop") }
func (u *simUnits) EndPod(_ context.Context, pod EndedPod) error {
	return u.note("end " + pod.Name)
}

func exchangeOf(t *testing.T, names ...string) *Exchange {
	t.Helper()
	dir, x := t.TempDir(), &Exchange{Unit: "kubelet.service"}
	for _, n := range names {
		f := ExchangedFile{From: filepath.Join(dir, "new", n), To: filepath.Join(dir, "place", n), Mode: 0o600}
		for path, text := range map[string]string{f.From: "new " + n, f.To: "old " + n} {
			if err := fsutil.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if f.Digest, err = fsutil.Digest(f.From); err != nil {
			t.Fatal(err)
		}
		x.Files = append(x.Files, f)
	}
	return x
}

func inPlace(t *testing.T, x *Exchange) string {
	t.Helper()
	var out []string
	for _, f := range x.Files {
		b, err := os.ReadFile(f.To)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return strings.Join(out, ", ")
}

func TestExchange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, x *Exchange, u *simUnits)
		want  string
		asked string
		fails bool
	}{
		"all files while the unit is stopped": {nil, "new a, new b", "stop start", false},
		"content with another digest stops nothing": {func(t *testing.T, x *Exchange, _ *simUnits) {
			if err := os.WriteFile(x.Files[1].From, []byte("rotten"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "old a, old b", "", true},
		"pods end between the unit and the files": {func(_ *testing.T, x *Exchange, _ *simUnits) { x.Pods = []EndedPod{{"p", 1}, {"q", 1}} }, "new a, new b", "stop end p end q start", false},
		"a pod that does not end keeps the files": {func(_ *testing.T, x *Exchange, u *simUnits) {
			x.Pods, u.fails = []EndedPod{{"p", 1}, {"q", 1}}, "end p"
		}, "old a, old b", "stop end p start", true},
		"nor does one of the others": {func(_ *testing.T, x *Exchange, u *simUnits) {
			x.Pods, u.fails = []EndedPod{{"p", 1}, {"q", 1}}, "end q"
		}, "old a, old b", "stop end p end q start", true},
		"a unit that does not stop is started again": {func(_ *testing.T, _ *Exchange, u *simUnits) { u.fails = "stop" }, "old a, old b", "stop start", true},
		"files in place restart nothing": {func(t *testing.T, x *Exchange, _ *simUnits) {
			if err := x.Run(t.Context(), &simUnits{}); err != nil {
				t.Fatal(err)
			}
		}, "new a, new b", "start", false},
		"no unit": {func(_ *testing.T, x *Exchange, _ *simUnits) { x.Unit = "" }, "new a, new b", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, u := exchangeOf(t, "a", "b"), &simUnits{}
			if c.spoil != nil {
				c.spoil(t, x, u)
			}
			err := x.Run(t.Context(), u)
			if got := inPlace(t, x); (err != nil) != c.fails || got != c.want || strings.Join(u.asked, " ") != c.asked {
				t.Errorf("%v; files %q, want %q; systemd was asked to %q", err, got, c.want, u.asked)
			}
		})
	}
}
