package apitest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/refit-dev/refit/internal/areas"
)

// pool holds the servers that the tests of a package share. A server takes seconds of CPU time
// to start, and a part of a second to reset.
var pool struct {
	sync.Mutex
	// shared is true while Main runs the tests.
	shared bool
	idle   []*server
}

// server is an API server with its etcd and refit's manifests.
type server struct {
	env *envtest.Environment
	// cfg is the administrator's.
	cfg *rest.Config
	// installed is what etcd had after the installation, by key.
	installed map[string]entry
	// lease is that of the test that has the server.
	lease *lease
}

// Main runs the tests of a package that share servers and returns the exit code. TestMain calls
// it. A test gets a server in the state after the installation and has it alone.
// Twice as many tests as usual run at once, because they mostly wait.
func Main(m *testing.M) int {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		if err := p.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))); err != nil {
			fmt.Fprintln(os.Stderr, "run more tests at once:", err)
			return 1
		}
	}
	pool.shared = true
	code := m.Run()
	for _, s := range pool.idle {
		if err := s.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop a shared API server:", err)
			code = 1
		}
	}
	return code
}

// lend returns the configuration of a shared server, which it starts if none is idle.
func lend(t testing.TB, bin string) *rest.Config {
	t.Helper()
	s := takeIdle()
	if s == nil {
		s = &server{}
		s.env, s.cfg = launch(t, bin, nil)
		t.Cleanup(func() { giveUp(t, s) })
		apply(t, s.cfg, areas.Set{})
		var err error
		if s.installed, err = s.settle(); err != nil {
			t.Fatalf("record the installation: %v", err)
		}
	} else {
		t.Cleanup(func() { giveUp(t, s) })
	}
	s.lease = &lease{}
	servers.Store(s.cfg.Host, s)
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(s.lease.wrap)
	return cfg
}

func takeIdle() *server {
	pool.Lock()
	defer pool.Unlock()
	n := len(pool.idle)
	if n == 0 {
		return nil
	}
	s := pool.idle[n-1]
	pool.idle = pool.idle[:n-1]
	return s
}

// giveUp makes the server of a test that ended idle. It stops the server of a test that failed,
// and one that cannot be reset.
func giveUp(t testing.TB, s *server) {
	if s.lease != nil && !t.Failed() {
		s.lease.over.Store(true)
		err := s.reset(context.Background())
		if err == nil {
			pool.Lock()
			defer pool.Unlock()
			pool.idle = append(pool.idle, s)
			return
		}
		if !errors.Is(err, errRulesChanged) { // the next test starts another one
			t.Logf("reset the API server: %v", err)
		}
	}
	if err := s.env.Stop(); err != nil {
		t.Errorf("stop the API server: %v", err)
	}
}

// lease ends the requests of a test with the test: a goroutine that it left behind does not
// write to the server of the next test.
type lease struct{ over atomic.Bool }

var errLeaseOver = errors.New("the test that had this API server has ended")

func (l *lease) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if l.over.Load() {
			return nil, errLeaseOver
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
