package peertransfer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// listenerFixture is a door whose address a test changes, and what it said last.
type listenerFixture struct {
	mu       sync.Mutex
	address  string
	reported chan error
	changed  chan struct{}
}

func openListener(t *testing.T, address string) *listenerFixture {
	t.Helper()
	w := &listenerFixture{address: address, reported: make(chan error, 64), changed: make(chan struct{}, 1)}
	d := &Listener{Changed: w.changed,
		Address: func() (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.address, nil
		},
		Serve: func(ctx context.Context, l net.Listener) {
			stop := context.AfterFunc(ctx, func() { _ = l.Close() })
			defer stop()
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		},
		Report: func(_ string, err error) { w.reported <- err }}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

func (w *listenerFixture) move(address string) {
	w.mu.Lock()
	w.address = address
	w.mu.Unlock()
	w.changed <- struct{}{}
}

func (w *listenerFixture) says(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.reported:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the door says nothing")
		return nil
	}
}

// free is an address of this machine on which no process listens.
func free(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A busy port names its holder, and is tried until it is free, or another is wanted.
func TestABusyPortNamesItsHolder(t *testing.T) {
	other, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	w := openListener(t, address)
	busy := (*BusyError)(nil)
	if err := w.says(t); !errors.As(err, &busy) || !strings.Contains(err.Error(), "peertransfer.te (process ") || !strings.Contains(err.Error(), address) {
		t.Fatalf("got %v", err)
	}
	at := free(t, "127.0.0.1")
	w.move(at)
	for err = w.says(t); err != nil; err = w.says(t) {
		if !errors.As(err, &busy) {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_ = other.Close()
}

// Only the address is bound, and it may change.
func TestTheServerListensAtOneAddress(t *testing.T) {
	first := free(t, "127.0.0.1")
	w := openListener(t, first)
	if err := w.says(t); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(first)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.2", port)); err == nil {
		_ = c.Close()
		t.Error("it answers at another address of this machine")
	}
	second := free(t, "127.0.0.3")
	w.move(second)
	if err := w.says(t); err != nil {
		t.Fatal(err)
	}
	for address, open := range map[string]bool{first: false, second: true} {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != open {
			t.Errorf("%s: %v, want open %v", address, err, open)
		}
	}
	w.move("192.0.2.7:1")
	if err := w.says(t); err == nil || !strings.Contains(err.Error(), "listen in /etc/refit/agent.yaml") {
		t.Errorf("an address that is not here: %v", err)
	}
}
