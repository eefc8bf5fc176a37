package controller_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// message is what a webhook gets.
type message struct {
	ID, Event, Update, Reason, Fix, Cluster string
	NodesDone, NodesTotal                   int
}

// A whole update: a webhook hears that a person must start it, that it started, and that it is
// done, each once, also with a restart of the controller in between.
func TestNotifications(t *testing.T) {
	t.Parallel()
	got := make(chan message, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m message
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			t.Error(err)
		}
		got <- m
	}))
	t.Cleanup(hook.Close)
	file := filepath.Join(t.TempDir(), "receivers.yaml")
	if err := os.WriteFile(file, []byte("cluster: site-7\nreceivers: [{name: ops, type: webhook, url: '"+hook.URL+"'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, cfg: apitest.Start(t), agents: map[string]*simAgent{}, notifications: file}
	s.admin = newClient(t, s.cfg)
	s.populate(from)
	s.startController()
	next := func(event string) message {
		t.Helper()
		select {
		case m := <-got:
			if m.Event != event || m.Update != "to-136" || m.Cluster != "site-7" || m.ID == "" {
				t.Errorf("%+v, want %s", m, event)
			}
			return m
		case <-time.After(2 * patience):
			t.Fatalf("no message %s", event)
		}
		return message{}
	}
	raw := release(t, to)
	s.plugIn("n2", raw)
	s.approve("release", digest(t, raw))
	s.update("to-136", digest(t, raw), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	s.waitUpdate("to-136", "the gate opens", phase(v1alpha1.PhaseReady))
	s.ahead.Store(int64(time.Minute)) // what lasts less is not sent
	if m := next("NeedsPerson"); m.Reason != v1alpha1.ReasonAwaitingStart || !strings.Contains(m.Fix, "refit apply") || m.NodesTotal != 3 {
		t.Errorf("%+v", m)
	}
	s.waitUpdate("to-136", "the message is recorded", func(u *v1alpha1.ClusterUpdate) bool { return len(u.Status.Notifications) == 1 })
	s.restartController()
	s.change("to-136", func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartImmediate })
	next("Started")
	done := s.waitUpdate("to-136", "it is done", phase(v1alpha1.PhaseDone))
	if m := next("Done"); m.NodesDone != 3 || m.Reason != v1alpha1.ReasonUpdated {
		t.Errorf("%+v", m)
	}
	if len(got) > 0 {
		t.Errorf("one more message: %+v", <-got)
	}
	if len(done.Status.Phases) == 0 {
		t.Error("another field owner removed the phases")
	}
}
