package peerapi

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A peer must read at a minimum rate, not counting the waits of our own limit.
func TestAPeerMustRead(t *testing.T) {
	for name, c := range map[string]struct {
		rate, limit int // bytes a second that the peer reads and we send; 0 is none
		gone        time.Duration
	}{
		"fast":                            {1 << 20, 0, 0},
		"just fast enough":                {minRate * 2, 0, 0},
		"our own limit is not the peer's": {1 << 20, minRate / 2, 0},
		"nothing at all":                  {0, 0, slack},
		"half of what it must: the slack doubles": {minRate / 2, 0, 3 * slack},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				limit := &Limit{}
				limit.Set(int64(c.limit))
				conn := newLimited(&paced{Conn: a, credit: slack}, limit)
				left := make(chan struct{})
				defer func() { <-left }()
				defer b.Close()
				go func() {
					defer close(left)
					buf := make([]byte, 1<<10)
					for c.rate > 0 {
						if _, err := io.ReadFull(b, buf); err != nil {
							return
						}
						time.Sleep(time.Duration(len(buf)) * time.Second / time.Duration(c.rate))
					}
				}()
				began := time.Now()
				_, err := conn.Write(make([]byte, 1<<20))
				took := time.Since(began)
				switch {
				case c.gone == 0 && err != nil:
					t.Fatalf("let go after %s: %v", took, err)
				case c.gone > 0 && (!errors.Is(err, os.ErrDeadlineExceeded) || took > c.gone):
					t.Fatalf("after %s: %v, want it gone within %s", took, err, c.gone)
				}
			})
		})
	}
}

// A deadline of the server's holds too.
func TestTheServersDeadlineHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := &paced{Conn: a, credit: slack}
		began := time.Now()
		if err := c.SetWriteDeadline(began.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
	})
}

// Who goes when there is one connection too many.
func TestTooMany(t *testing.T) {
	list := func(owners string) (out []*guarded) {
		for _, o := range owners {
			out = append(out, &guarded{key: string(o)})
		}
		return out
	}
	for name, c := range map[string]struct {
		owners string // the oldest first; the last one is new
		goes   int
	}{
		"there is room":                               {"aabbc", -1},
		"one too many of one owner: its oldest":       {"baaaa", 1},
		"too many in all: the oldest of who has most": {"cbbbaad", 1},
	} {
		all := list(c.owners)
		got := tooMany(all, 3, 6, all[len(all)-1].key, func(c *guarded) string { return c.key })
		if c.goes < 0 && got != nil || c.goes >= 0 && got != all[c.goes] {
			t.Errorf("%s: wrong connection", name)
		}
	}
}

// Slots of one key leave others theirs, and nothing is left of a key that is gone.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(2, 3)
		a1, a2 := s.tryAcquire("a"), s.tryAcquire("a")
		if a1 == nil || a2 == nil || s.tryAcquire("a") != nil {
			t.Fatal("a key has two")
		}
		got := make(chan func())
		go func() { got <- s.acquire(t.Context(), "a") }()
		synctest.Wait()
		b := s.tryAcquire("b")
		if b == nil {
			t.Fatal("a waiting key took the share of another")
		}
		if s.tryAcquire("c") != nil {
			t.Fatal("there are three in all")
		}
		a1()
		a3 := <-got
		for _, release := range []func(){a2, a3, b} {
			release()
		}
		if len(s.own) != 0 || len(s.all) != 0 {
			t.Fatalf("%d keys and %d shares are left", len(s.own), len(s.all))
		}
	})
}
