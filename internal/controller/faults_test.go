package controller_test

import (
	"context"
	"errors"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// The controller is killed again and again, at any line: the update goes on, no
// node runs twice, none is called done that is not.
func TestKilledAgainAndAgain(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.create(owned(pod("default", "web-"+n, n, "web"), map[string]string{"app": "web"}))
	}
	s.update("u", d, nil)
	r := rand.New(rand.NewSource(20261120))
	var last *v1alpha1.ClusterUpdate
	for kills := 0; ; kills++ {
		if kills > 60 {
			t.Fatalf("no end: %+v", last.Status)
		}
		// Lives grow: on a machine so busy that the first are over before the
		// caches are full, nothing but kills would never let an update end.
		time.Sleep(time.Duration((300+r.Intn(1200))*(5+kills)/5) * time.Millisecond)
		last = s.waitUpdate("u", "the update exists", func(*v1alpha1.ClusterUpdate) bool { return true })
		for _, name := range []string{"n1", "n2", "n3"} {
			if n := s.node(name); n.Status.NodeInfo.KubeletVersion == to && len(markings(n)) == 0 && n.Spec.Unschedulable {
				t.Errorf("%s is left cordoned without a mark", name)
			}
		}
		if last.Status.Phase == v1alpha1.PhaseDone {
			t.Logf("done after %d kills", kills)
			break
		}
		s.restartController()
	}
	for name, a := range s.agents {
		if n := s.node(name); n.Status.NodeInfo.KubeletVersion != to || n.Spec.Unschedulable || len(markings(n)) > 0 {
			t.Errorf("%s is not done: %v", name, n.Annotations)
		}
		a.set(func(a *simAgent) {
			if a.runs != 1 {
				t.Errorf("%s ran %d times", name, a.runs)
			}
		})
	}
}

// mortal lets some writes through and then nothing more, as after kill -9.
type mortal struct {
	mu     sync.Mutex
	writes int
	dead   chan struct{}
}

var errDead = errors.New("this process is dead")

func (m *mortal) alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes > 0
}

func (m *mortal) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writes--; m.writes == 0 {
		close(m.dead)
	}
}

// mortalTransport is one client's transport in a mortal process.
type mortalTransport struct {
	m    *mortal
	next http.RoundTripper
}

func (t mortalTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.m.alive() {
		return nil, errDead
	}
	resp, err := t.next.RoundTrip(req)
	refused := err == nil && resp.StatusCode >= http.StatusBadRequest // what was refused was not written
	if req.Method != http.MethodGet && !refused && !strings.Contains(req.URL.Path, "/leases") && !strings.Contains(req.URL.Path, "/events") {
		t.m.count()
	}
	return resp, err
}

// The controller dies after every write or two, from the first to the last: the
// end is the same, and each node ran once.
func TestDiesAfterEveryWrite(t *testing.T) {
	s := newSite(t, from)
	s.stop()
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	s.create(owned(pod("default", "web", "n2", "web"), map[string]string{"app": "web"}))
	s.update("u", d, nil)
	r := rand.New(rand.NewSource(7))
	lives := 0
	for ; lives < 200; lives++ {
		m := &mortal{writes: 1 + r.Intn(2), dead: make(chan struct{})}
		cfg := apitest.As(s.cfg, apitest.ControllerUser)
		cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
			return mortalTransport{m, rt}
		}
		s.startWith(cfg, true)
		end := s.untilDeadOrDone(m.dead)
		s.stop()
		if end {
			break
		}
	}
	t.Logf("%d lives", lives)
	s.waitUpdate("u", "the end is the same", phase(v1alpha1.PhaseDone))
	for name, a := range s.agents {
		if n := s.node(name); n.Status.NodeInfo.KubeletVersion != to || n.Spec.Unschedulable || len(markings(n)) > 0 {
			t.Errorf("%s is not done: %v", name, n.Annotations)
		}
		a.set(func(a *simAgent) {
			if a.runs != 1 {
				t.Errorf("%s ran %d times", name, a.runs)
			}
		})
	}
}

// untilDeadOrDone waits for the end of a life, or of the update.
func (s *site) untilDeadOrDone(dead <-chan struct{}) (done bool) {
	end := time.After(patience)
	for {
		var u v1alpha1.ClusterUpdate
		if s.admin.Get(context.Background(), client.ObjectKey{Name: "u"}, &u) == nil && u.Status.Phase == v1alpha1.PhaseDone {
			return true
		}
		select {
		case <-dead:
			return false
		case <-end:
			s.t.Fatalf("neither dead nor done: %+v", u.Status)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// door is a way to the API server that can be shut.
type door struct {
	t    *testing.T
	to   string
	addr string

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newDoor(t *testing.T, cfg *rest.Config) (*door, *rest.Config) {
	t.Helper()
	u, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := u.Host
	if host == "" {
		host = cfg.Host
	}
	d := &door{t: t, to: host, addr: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	d.open()
	t.Cleanup(func() { d.shut(); d.wg.Wait() })
	out := rest.CopyConfig(cfg)
	out.Host = "https://" + d.addr
	return d, out
}

func (d *door) open() {
	d.t.Helper()
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	d.l, d.addr = l, l.Addr().String()
	d.mu.Unlock()
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.pass(c)
		}
	}()
}

func (d *door) pass(c net.Conn) {
	up, err := net.Dial("tcp", d.to)
	if err != nil {
		_ = c.Close()
		return
	}
	d.mu.Lock()
	d.conns[c], d.conns[up] = true, true
	d.mu.Unlock()
	for _, pair := range [][2]net.Conn{{c, up}, {up, c}} {
		d.wg.Add(1)
		go func() {
			defer d.wg.Done()
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
			_ = pair[1].Close()
		}()
	}
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.l.Close()
	for c := range d.conns {
		_ = c.Close()
	}
	d.conns = map[net.Conn]bool{}
}

// The controller loses the API server while agents continue. It resumes when the API server
// is back, without a restart.
func TestAPIServerUnavailable(t *testing.T) {
	s := newSite(t, from)
	s.stop()
	d, cfg := newDoor(t, s.cfg)
	s.cfg = cfg
	s.startController()
	raw := release(t, to)
	s.plugIn("n1", raw)
	s.approve("expected", digest(t, raw))
	s.agents["n1"].set(func(a *simAgent) { a.slow = true })
	s.update("u", digest(t, raw), nil)
	s.waitUpdate("u", "n1 runs", blocked(v1alpha1.ReasonUpdating))
	d.shut()
	s.agents["n1"].set(func(a *simAgent) { a.slow = false })
	s.wait("n1 moves meanwhile", func() string {
		if n := s.node("n1"); n.Status.NodeInfo.KubeletVersion != to {
			return n.Status.NodeInfo.KubeletVersion
		}
		return ""
	})
	time.Sleep(3 * time.Second)
	d.open()
	s.waitUpdate("u", "the update resumes", phase(v1alpha1.PhaseDone))
}
