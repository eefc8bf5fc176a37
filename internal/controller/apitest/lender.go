package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// LenderSocket is the variable with the path of a lender's socket. Tests of any package then
// borrow their servers from it.
const LenderSocket = "REFIT_API_SERVERS"

const (
	// mostServers live at once; each costs a tenth of a core and 300 MiB.
	mostServers = 8
	// withoutRoom is how long a test waits for one of them. Then it gets one more, since those who
	// have one may wait for it.
	withoutRoom = time.Minute
)

// A test has one connection for each server that it borrows. The first answer has the
// administrator's configuration. Then the test may ask for users. Its last request says that it
// ended; a connection that ends without it had a test that crashed.
type (
	request struct {
		User *envtest.User `json:",omitempty"`
		// Ended is set in the last request; a failed test leaves a server that is not used again.
		Ended, Failed bool `json:",omitempty"`
	}
	answer struct {
		Host          string `json:",omitempty"`
		CA, Cert, Key []byte `json:",omitempty"`
		Error         string `json:",omitempty"`
	}
)

func answerWith(cfg *rest.Config, err error) answer {
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Host: cfg.Host, CA: cfg.CAData, Cert: cfg.CertData, Key: cfg.KeyData}
}

// config is that of an administrator or user, without limits to the rate of requests that matter.
func (a answer) config() *rest.Config {
	return &rest.Config{Host: a.Host, QPS: 500, Burst: 1000, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA, CertData: a.Cert, KeyData: a.Key}}
}

// Lend lends API servers to the tests of other processes over a Unix socket, until ctx ends. Then
// it stops them. So a run of many packages starts a few servers instead of some for each package.
func Lend(ctx context.Context, socket string) error {
	bin := Binaries()
	if bin == "" {
		return errors.New(noBinaries)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	l := &lender{bin: bin, room: make(chan struct{}, mostServers)}
	var tests sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if err != nil {
			tests.Wait()
			stopped := l.pool.stop()
			if ctx.Err() != nil {
				err = nil
			}
			return errors.Join(err, stopped)
		}
		tests.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer func() { _ = conn.Close() }()
			if err := l.serve(ctx, conn); err != nil {
				fmt.Fprintln(os.Stderr, "lend an API server:", err)
			}
		})
	}
}

type lender struct {
	bin  string
	pool pool
	room chan struct{}
}

// serve lends one server to one test.
func (l *lender) serve(ctx context.Context, conn net.Conn) error {
	select {
	case l.room <- struct{}{}:
		defer func() { <-l.room }()
	case <-time.After(withoutRoom):
	case <-ctx.Done():
		return nil
	}
	out := json.NewEncoder(conn)
	s, err := l.pool.take(l.bin)
	if err != nil {
		return errors.Join(err, out.Encode(answer{Error: err.Error()}))
	}
	reusable, ended := false, false
	err = out.Encode(answerWith(s.cfg, nil))
	for in := json.NewDecoder(conn); err == nil && !ended; {
		var r request
		switch err = in.Decode(&r); {
		case err != nil: // the test crashed, or this process ends
		case r.Ended:
			reusable, ended = !r.Failed, true
		case r.User != nil:
			err = out.Encode(answerWith(s.addUser(*r.User)))
		}
	}
	reason, err := l.pool.giveBack(s, reusable)
	if ended {
		err = errors.Join(err, out.Encode(answer{}))
	}
	return errors.Join(reason, err)
}

// borrow returns the configuration of a server of the lender. The lender has it back with the end
// of the test.
func borrow(t testing.TB, socket string) *rest.Config {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("no lender of API servers: %v; unset %s, or start it as test/run.sh does", err, LenderSocket)
	}
	b := &borrowed{out: json.NewEncoder(conn), in: json.NewDecoder(conn)}
	admin, err := b.receive()
	if err != nil {
		t.Fatalf("borrow an API server: %v", err)
	}
	cfg, l := leased(admin, b.addUser)
	t.Cleanup(func() {
		l.over.Store(true)
		b.Lock()
		defer b.Unlock()
		err := b.out.Encode(request{Ended: true, Failed: t.Failed()})
		if err == nil { // the next test finds it idle, rather than start one more
			_, err = b.receive()
		}
		if err != nil {
			t.Errorf("give the API server back: %v", err)
		}
		_ = conn.Close()
	})
	return cfg
}

type borrowed struct {
	sync.Mutex
	out *json.Encoder
	in  *json.Decoder
}

func (b *borrowed) receive() (*rest.Config, error) {
	var a answer
	if err := b.in.Decode(&a); err != nil {
		return nil, fmt.Errorf("the lender of API servers ended: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.config(), nil
}

func (b *borrowed) addUser(u envtest.User) (*rest.Config, error) {
	b.Lock()
	defer b.Unlock()
	if err := b.out.Encode(request{User: &u}); err != nil {
		return nil, err
	}
	return b.receive()
}
