package notifications

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// site is a real API server, a file of receivers, and a notifier with the controller's rights.
type site struct {
	t       *testing.T
	admin   client.Client
	service client.Client
	file    string
	stop    func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	cfg := apitest.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{t: t, file: filepath.Join(t.TempDir(), "receivers.yaml"), stop: func() {}}
	var err error
	if s.admin, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if s.service, err = client.New(apitest.As(cfg, apitest.ControllerUser), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return s
}

// receivers writes the file, with each receiver as name, type and URL.
func (s *site) receivers(all ...[3]string) {
	s.t.Helper()
	text := "cluster: site-7\nreceivers:\n"
	for _, r := range all {
		text += fmt.Sprintf("- {name: %s, type: %s, url: %q}\n", r[0], r[1], r[2])
	}
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start starts a notifier, as after a restart of the controller: nothing is left of the one before.
func (s *site) start() *Notifier {
	s.t.Helper()
	s.stop()
	n, err := newNotifier(s.service, logr.Discard(), Options{File: s.file, Servers: local, Registry: prometheus.NewRegistry(), Now: time.Now})
	if err != nil {
		s.t.Fatal(err)
	}
	n.collect, n.pause = time.Millisecond, func(int) time.Duration { return time.Millisecond }
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.Start(ctx); err != nil {
			s.t.Errorf("the notifier ended: %v", err)
		}
	})
	s.stop = func() { cancel(); wg.Wait(); s.stop = func() {} }
	s.t.Cleanup(func() { s.stop() })
	return n
}

// write makes an update with a status, or replaces the status.
func (s *site) write(name string, change func(*v1alpha1.ClusterUpdateStatus)) {
	s.t.Helper()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(u), u); err != nil {
		u.Spec.Start = v1alpha1.StartImmediate
		if err := s.admin.Create(context.Background(), u); err != nil {
			s.t.Fatal(err)
		}
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the notifier writes too
		if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		change(&u.Status)
		return s.service.Status().Update(context.Background(), u) // others may not write it
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// recorded waits until the receivers of an event are in the status.
func (s *site) recorded(n *Notifier, name, event string, receivers ...string) {
	s.t.Helper()
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		n.notify()
		var u v1alpha1.ClusterUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &u); err != nil {
			s.t.Fatal(err)
		}
		last = fmt.Sprintf("%+v", u.Status.Notifications)
		for _, r := range u.Status.Notifications {
			if r.Event == event && slices.Equal(r.Receivers, receivers) {
				return
			}
		}
	}
	s.t.Fatalf("%s is not recorded for %q: %s", event, receivers, last)
}

func running(s *v1alpha1.ClusterUpdateStatus) {
	now := metav1.Now()
	s.Phase, s.Version, s.NodesTotal, s.StartedAt = v1alpha1.PhaseUpdating, "1.36.3", 3, &now
}

// A started update is sent to each webhook once, also after restarts; one that does not answer
// delays no other, and gets its message when it is back.
func TestEachMessageOnce(t *testing.T) {
	s := newSite(t)
	up, down := newEndpoint(t, httptest.NewServer), newEndpoint(t, httptest.NewServer)
	down.status.Store(http.StatusInternalServerError)
	s.receivers([3]string{"down", typeWebhook, down.URL}, [3]string{"up", typeWebhook, up.URL})
	s.write("to-136", running)
	n := s.start()
	first := up.next(t).notice(t)
	if first.Event != eventStarted || first.Cluster != "site-7" || first.Update != "to-136" || first.NodesTotal != 3 || first.Version != "1.36.3" {
		t.Errorf("%+v", first)
	}
	missed := down.next(t).notice(t)
	s.recorded(n, "to-136", eventStarted, "up")
	s.stop()
	down.status.Store(http.StatusOK)
	n = s.start()
	if again := down.accepted(t).notice(t); again.ID != missed.ID || again.ID != first.ID {
		t.Errorf("ID %s, then %s", missed.ID, again.ID)
	}
	s.recorded(n, "to-136", eventStarted, "down", "up")

	n = s.start()
	s.write("to-136", func(s *v1alpha1.ClusterUpdateStatus) {
		now := metav1.Now()
		s.Phase, s.NodesDone, s.FinishedAt = v1alpha1.PhaseDone, 3, &now
	})
	n.notify()
	for _, e := range []*endpoint{up, down} {
		next := e.accepted(t).notice(t)
		if e == down && next.Event == eventStarted && next.ID == missed.ID {
			next = e.accepted(t).notice(t) // the attempt during which the first process ended arrived, too
		}
		if next.Event != eventDone || next.NodesDone != 3 {
			t.Errorf("after the restart came %+v", next)
		}
	}
	s.recorded(n, "to-136", eventDone, "down", "up")
	if len(up.requests)+len(down.requests) > 0 {
		t.Error("a message came twice")
	}
}

// A crash between the request and the record repeats the message with the same ID.
func TestCrashBeforeTheRecord(t *testing.T) {
	s := newSite(t)
	up := newEndpoint(t, httptest.NewServer)
	s.receivers([3]string{"up", typeWebhook, up.URL})
	s.write("to-136", running)
	n := s.start()
	first := up.next(t).notice(t)
	s.recorded(n, "to-136", eventStarted, "up")
	s.stop()
	s.write("to-136", func(s *v1alpha1.ClusterUpdateStatus) { s.Notifications = nil })
	n = s.start()
	if again := up.next(t).notice(t); again.ID != first.ID {
		t.Errorf("ID %s, then %s", first.ID, again.ID)
	}
	s.recorded(n, "to-136", eventStarted, "up")
}

// The file may be written later and change; one that is not valid changes nothing.
func TestReceiversChange(t *testing.T) {
	s := newSite(t)
	a, b := newEndpoint(t, httptest.NewServer), newEndpoint(t, httptest.NewServer)
	s.write("to-136", running)
	n := s.start()
	s.receivers([3]string{"a", typeWebhook, a.URL})
	n.notify()
	a.next(t)
	s.recorded(n, "to-136", eventStarted, "a")
	if err := os.WriteFile(s.file, []byte("receivers: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write("to-137", running)
	n.notify()
	if got := a.next(t).notice(t); got.Update != "to-137" {
		t.Errorf("%+v", got)
	}
	s.receivers([3]string{"a", typeWebhook, a.URL}, [3]string{"am", typeAlertmanager, b.URL})
	n.notify()
	if got := b.next(t); got.path != "/api/v2/alerts" || !strings.Contains(string(got.body), `"update":"to-137"`) || !strings.Contains(string(got.body), `"update":"to-136"`) {
		t.Errorf("%s %s", got.path, got.body)
	}
	if len(a.requests) > 0 {
		t.Error("a message came twice")
	}
}
