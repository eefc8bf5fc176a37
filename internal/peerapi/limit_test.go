package peerapi

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A node's share of the network: however many connections, what is sent together
// stays below it, and what is taken too.
func TestLimit(t *testing.T) {
	for name, c := range map[string]struct {
		rate        int64
		connections int
		bytes       int
		least, most time.Duration
	}{
		"no limit, no wait":              {0, 2, 1 << 20, 0, 0},
		"one connection at the rate":     {1 << 20, 1, 4 << 20, 3800 * time.Millisecond, 4100 * time.Millisecond},
		"four share it":                  {1 << 20, 4, 1 << 20, 3800 * time.Millisecond, 4100 * time.Millisecond},
		"a word is let through at once":  {1 << 20, 1, 100, 0, 0},
		"an idle while saves up no more": {1 << 20, 1, 1 << 20, 800 * time.Millisecond, 1100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Limit{}
				l.Set(c.rate)
				time.Sleep(time.Hour)
				began := time.Now()
				done := make(chan struct{})
				for range c.connections {
					a, b := net.Pipe()
					go func() {
						_, _ = newLimited(a, l).Write(make([]byte, c.bytes))
						_ = a.Close()
					}()
					go func() {
						if n, err := io.Copy(io.Discard, b); err != nil || n != int64(c.bytes) {
							t.Errorf("%d bytes came: %v", n, err)
						}
						done <- struct{}{}
					}()
				}
				for range c.connections {
					<-done
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %s, want %s to %s", took, c.least, c.most)
				}
			})
		})
	}
}

// The receiver limits what it receives, for any sender.
func TestLimitOfWhatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Limit{}
		l.Set(1 << 20)
		a, b := net.Pipe()
		began := time.Now()
		go func() {
			for range 64 {
				_, _ = a.Write(make([]byte, 64<<10))
			}
			_ = a.Close()
		}()
		if n, err := io.Copy(io.Discard, newLimited(b, l)); err != nil || n != 4<<20 {
			t.Fatalf("%d bytes came: %v", n, err)
		}
		if took := time.Since(began); took < 3800*time.Millisecond || took > 4100*time.Millisecond {
			t.Errorf("4 MiB at 1 MiB/s took %s", took)
		}
	})
}

// A connection that waits for its share can be closed.
func TestLimitedConnectionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Limit{}
		l.Set(1)
		a, b := net.Pipe()
		defer b.Close()
		c := newLimited(a, l)
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		began := time.Now()
		if _, err := c.Write(make([]byte, 1<<20)); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("it was closed after a second and returned after %s", took)
		}
	})
}
