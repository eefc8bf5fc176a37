package peerapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// logServer answers with a journal; keys that it serves are peers, and only reader reads the log.
func logServer(t *testing.T, reader *Identity, journal Journal) Peer {
	t.Helper()
	h := WithLogs(http.NotFoundHandler(), func(key string) bool { return key == reader.PublicKey() }, journal)
	own := newTestIdentity(t)
	s := httptest.NewUnstartedServer(h)
	s.TLS = own.ServerTLS(func(string) bool { return true })
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return Peer{Name: "n1", Address: s.Listener.Addr().String(), PublicKey: own.PublicKey()}
}

func newTestIdentity(t *testing.T) *Identity {
	t.Helper()
	key, _, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The log is for one key; another peer gets nothing of it.
func TestLogsAreForTheController(t *testing.T) {
	t.Parallel()
	controller, peer := newTestIdentity(t), newTestIdentity(t)
	var got LogQuery
	p := logServer(t, controller, func(_ context.Context, q LogQuery, w io.Writer) error {
		got = q
		_, err := io.WriteString(w, "a line\n")
		return err
	})
	want := LogQuery{Lines: 7, Since: time.Minute}
	body, err := NewClient(controller, p).Logs(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "a line\n" || got != want {
		t.Errorf("%v %q %+v", err, text, got)
	}
	if _, err := NewClient(peer, p).Logs(t.Context(), want); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("another node: %v", err)
	}
}

// A log that is followed comes line by line, and reading ends when the client leaves.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	controller := newTestIdentity(t)
	next, left := make(chan string), make(chan struct{})
	p := logServer(t, controller, func(ctx context.Context, _ LogQuery, w io.Writer) error {
		defer close(left)
		for {
			select {
			case line := <-next:
				if _, err := io.WriteString(w, line); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	go func() { next <- "first\n" }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := NewClient(controller, p).Logs(ctx, LogQuery{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	read := func() string {
		buf := make([]byte, 64)
		n, err := body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := read(); got != "first\n" {
		t.Errorf("%q", got)
	}
	next <- "second\n"
	if got := read(); got != "second\n" {
		t.Errorf("%q", got)
	}
	cancel()
	<-left
}

// Too many readers, a journal that cannot be read, and an agent without logs say so.
func TestLogsRefused(t *testing.T) {
	t.Parallel()
	controller := newTestIdentity(t)
	release := make(chan struct{})
	p := logServer(t, controller, func(_ context.Context, q LogQuery, w io.Writer) error {
		if q.Lines == 1 {
			return errors.New("journalctl: no such program")
		}
		_, err := io.WriteString(w, "x\n")
		<-release
		return err
	})
	if _, err := NewClient(controller, p).Logs(t.Context(), LogQuery{Lines: 1}); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("%v", err)
	}
	for range maxLogAnswers {
		body, err := NewClient(controller, p).Logs(t.Context(), LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = body.Close() })
	}
	if _, err := NewClient(controller, p).Logs(t.Context(), LogQuery{}); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("%v", err)
	}
	close(release)
	own := newTestIdentity(t)
	old := httptest.NewUnstartedServer(Handler(nil, Alive{}))
	old.TLS = own.ServerTLS(func(string) bool { return true })
	old.StartTLS()
	t.Cleanup(old.Close)
	if _, err := NewClient(controller, Peer{Address: old.Listener.Addr().String(), PublicKey: own.PublicKey()}).Logs(t.Context(), LogQuery{}); !errors.Is(err, ErrNotHere) {
		t.Errorf("an old agent: %v", err)
	}
}

func TestParseLogQuery(t *testing.T) {
	t.Parallel()
	q := LogQuery{Lines: 20, Since: 90 * time.Second, Follow: true}
	if got := ParseLogQuery(q.Values()); got != q {
		t.Errorf("%+v", got)
	}
	for _, other := range []string{"", "lines=x", "lines=-1", fmt.Sprint("lines=", MaxLogLines+1), "since=1h", "since=-5", "follow=yes"} {
		v, err := url.ParseQuery(other)
		if err != nil {
			t.Fatal(err)
		}
		if got := ParseLogQuery(v); got != (LogQuery{Lines: DefaultLogLines}) {
			t.Errorf("%q: %+v", other, got)
		}
	}
	if got := ParseLogQuery(url.Values{"since": {"99999999999"}}); got.Since <= 0 {
		t.Errorf("%+v", got)
	}
}
