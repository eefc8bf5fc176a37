//go:build linux

package registrytest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Debian is the registry of the Debian package docker-registry.
const Debian = "docker-registry"

// Server is a running registry.
type Server struct {
	// Addr is 127.0.0.1:PORT; image references begin with it, the protocol is
	// plain HTTP. It stays the same over Stop and Resume.
	Addr string

	t       testing.TB
	program string
	config  string
	// login: the registry asks for User and Password, or for tokens that their server gives.
	login  bool
	tokens *TokenServer
	dir    string // of the registry's content
	log    *output
	made   sync.Map // digest to what was pushed
	stop   func()
}

// The login of a registry of StartWithLogin.
const (
	User     = "refit"
	Password = "secret"
)

// loginFile is a htpasswd file with them.
const loginFile = User + ":$2b$04$1WSNZadTvHTAKzONb68uMeIE3F.OauobUmZMnmXt5ffyeOzCkhW9.\n"

// Start runs a registry until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(&Server{t: t, program: Debian})
}

// StartWithLogin is Start for a registry that answers no client without the login.
func StartWithLogin(t testing.TB) *Server {
	t.Helper()
	return start(&Server{t: t, program: Debian, login: true})
}

// StartWithTokens is Start for a registry of a program, Debian's or another distribution, that
// answers only with tokens of a server. This package pushes with the login User.
func StartWithTokens(t testing.TB, program string, tokens *TokenServer) *Server {
	t.Helper()
	return start(&Server{t: t, program: program, login: true, tokens: tokens})
}

func start(s *Server) *Server {
	t := s.t
	t.Helper()
	if _, err := exec.LookPath(s.program); err != nil {
		t.Skip("needs " + s.program + ": make deps installs it")
	}
	s.log = &output{}
	dir := t.TempDir()
	s.dir = filepath.Join(dir, "blobs")
	logins := filepath.Join(dir, "htpasswd")
	if err := os.WriteFile(logins, []byte(loginFile), 0o600); err != nil {
		t.Fatal(err)
	}
	// A free port may be taken by another test before the registry has it.
	for range 5 {
		s.Addr = freePort(t)
		s.config = filepath.Join(dir, "config.yml")
		text := fmt.Sprintf(configText, s.dir, s.Addr)
		switch {
		case s.tokens != nil:
			text += s.tokens.config(dir)
		case s.login:
			text += fmt.Sprintf("auth:\n  htpasswd: {realm: test, path: %s}\n", logins)
		}
		if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.run() {
			t.Cleanup(s.Stop)
			return s
		}
	}
	t.Fatalf("no registry came up: %s", s.log.tail())
	return nil
}

const configText = `version: 0.1
log: {level: error, accesslog: {disabled: false}}
storage:
  filesystem: {rootdirectory: %s}
  delete: {enabled: true}
  maintenance: {uploadpurging: {enabled: false}}
http: {addr: "%s"}
`

// Stop ends the registry; its content stays for Resume. A second Stop does nothing.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Resume starts a stopped registry again, at its address and with its images.
func (s *Server) Resume() {
	s.t.Helper()
	if s.stop == nil && !s.run() {
		s.t.Fatalf("the registry does not come up again: %s", s.log.tail())
	}
}

// run starts the program and reports whether it answers.
func (s *Server) run() bool {
	cmd := exec.Command(s.program, "serve", s.config)
	// REGISTRY_* would change the configuration. A registry is small: with fewer garbage collections it uses a
	// fifth less CPU time.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOGC=400", "OTEL_TRACES_EXPORTER=none"}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel's signal comes when the thread that started the program ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, so there always is an error
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatalf("start %s: %v", s.program, err)
	}
	s.stop = func() { _ = cmd.Process.Kill(); <-ended }
	if s.answers(ended) {
		return true
	}
	s.Stop()
	return false
}

// client of this package: every httptest.Server that ends closes the idle connections of the
// default one, and may break an answer that is just arriving.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ownQuestion starts the query of requests by which this package checks whether the registry
// answers.
const ownQuestion = "/v2/?up="

// answers waits until the registry answers; false if it ended. The registry's own log shows
// that it answered, and not a registry of another test that took the free port first.
func (s *Server) answers(ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	question := fmt.Sprint(ownQuestion, time.Now().UnixNano())
	asked := false
	for {
		asked = asked || s.asks(ctx, question)
		if asked && s.log.contains(question) {
			return true
		}
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// asks reports whether a server answers at the address.
func (s *Server) asks(ctx context.Context, question string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+question, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK || s.login && resp.StatusCode == http.StatusUnauthorized
}

// Request that the registry served.
type Request struct {
	Method, Path string
	Status       string
}

var accessLine = regexp.MustCompile(`"(GET|HEAD|PUT|POST|PATCH|DELETE) (\S+) HTTP/[0-9.]+" (\d{3}) `)

// Requests that were served since the last call, in order, without this package's own. The
// log is written after the answer, so Requests marks its end with a request of its own.
func (s *Server) Requests() []Request {
	s.t.Helper()
	mark := fmt.Sprintf("/v2/mark-%d/tags/list", time.Now().UnixNano())
	resp, err := client.Get("http://" + s.Addr + mark)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	deadline := time.Now().Add(time.Minute)
	for !s.log.contains(`"GET ` + mark) { // the access log's line, which is not the first with these words
		if time.Now().After(deadline) {
			s.t.Fatalf("the registry does not log its requests: %s", s.log.tail())
		}
		time.Sleep(5 * time.Millisecond)
	}
	var out []Request
	for _, m := range accessLine.FindAllSubmatch(s.log.take(), -1) {
		if path := string(m[2]); path != mark && path != "/v2/" && !strings.HasPrefix(path, ownQuestion) {
			out = append(out, Request{string(m[1]), path, string(m[3])})
		}
	}
	return out
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// output is the registry's output.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) contains(s string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.buf.Bytes(), []byte(s))
}

func (o *output) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := bytes.Clone(o.buf.Bytes())
	o.buf.Reset()
	return out
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.buf.Bytes()
	return string(b[max(0, len(b)-2000):])
}
