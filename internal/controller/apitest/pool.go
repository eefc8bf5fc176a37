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

// pool holds servers that are reset and used again. A server takes seconds of CPU time to start,
// and a part of a second to reset.
type pool struct {
	sync.Mutex
	idle []*server
}

// ours is the pool of a package that calls Main, and shared is true while Main runs its tests.
var (
	ours   pool
	shared bool
)

// server is an API server with its etcd and refit's manifests.
type server struct {
	env *envtest.Environment
	// cfg is the administrator's.
	cfg *rest.Config
	// installed is what etcd had after the installation, by key.
	installed map[string]entry
}

func (s *server) addUser(u envtest.User) (*rest.Config, error) {
	added, err := s.env.AddUser(u, nil)
	if err != nil {
		return nil, err
	}
	return added.Config(), nil
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
	shared = true
	code := m.Run()
	if err := ours.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// lend returns the configuration of a shared server, which it starts if none is idle.
func lend(t testing.TB, bin string) *rest.Config {
	t.Helper()
	s, err := ours.take(bin)
	if err != nil {
		t.Fatal(err)
	}
	cfg, l := leased(s.cfg, s.addUser)
	t.Cleanup(func() {
		l.over.Store(true)
		reason, err := ours.giveBack(s, !t.Failed())
		if reason != nil { // the next test starts another one
			t.Log(reason)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return cfg
}

// take returns an idle server, or starts one.
func (p *pool) take(bin string) (*server, error) {
	if s := p.takeIdle(); s != nil {
		return s, nil
	}
	s, err := launch(bin, nil)
	if err != nil {
		return nil, err
	}
	if err = apply(s.cfg, areas.Set{}); err == nil {
		s.installed, err = s.settle()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("install refit: %w", err), s.env.Stop())
	}
	return s, nil
}

func (p *pool) takeIdle() *server {
	p.Lock()
	defer p.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	s := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return s
}

// giveBack makes the server of a test that ended idle. It stops one that is not reusable, and one
// that cannot be reset, for the reason that it returns; changed rules are none.
func (p *pool) giveBack(s *server, reusable bool) (reason, err error) {
	if reusable {
		reason = s.reset(context.Background())
		if reason == nil {
			p.Lock()
			defer p.Unlock()
			p.idle = append(p.idle, s)
			return nil, nil
		}
		reason = fmt.Errorf("reset the API server: %w", reason)
		if errors.Is(reason, errRulesChanged) {
			reason = nil
		}
	}
	if err := s.env.Stop(); err != nil {
		return reason, fmt.Errorf("stop the API server: %w", err)
	}
	return reason, nil
}

// stop stops the idle servers.
func (p *pool) stop() error {
	p.Lock()
	defer p.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.env.Stop())
	}
	p.idle = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop API servers: %w", err)
	}
	return nil
}

// leased returns a configuration for one test, whose requests end with its lease, and notes how
// users of the server get certificates.
func leased(admin *rest.Config, add addUser) (*rest.Config, *lease) {
	l := &lease{}
	users.Store(admin.Host, addUser(func(u envtest.User) (*rest.Config, error) {
		cfg, err := add(u)
		if err == nil {
			cfg.Wrap(l.wrap)
		}
		return cfg, err
	}))
	cfg := rest.CopyConfig(admin)
	cfg.Wrap(l.wrap)
	return cfg, l
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
