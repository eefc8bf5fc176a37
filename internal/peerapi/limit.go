package peerapi

import (
	"context"
	"net"
	"sync"
	"time"
)

// Limit is how many bytes a second a node may send to its peers, and as many it may receive
// from them and from registries. The zero value and nil are no limit. It may change at any time, and applies to
// open connections too. Safe for concurrent use.
type Limit struct {
	mu             sync.Mutex
	rate           int64
	sent, received bucket
}

// bucket is the time at which the bytes that have passed so far are within the rate.
type bucket struct{ paid time.Time }

// piece is how many bytes are written between two waits: with a low limit a whole chunk
// would be a long silence and then a burst.
const piece = 32 << 10

// burst is how much unused time may be used later.
const burst = 100 * time.Millisecond

// Set changes the limit, in bytes a second; 0 or less is none.
func (l *Limit) Set(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = max(bytesPerSecond, 0)
}

// Rate is the limit in bytes a second, 0 for none.
func (l *Limit) Rate() int64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate
}

// charge adds n bytes to a bucket and returns how long to wait for them.
func (l *Limit) charge(b *bucket, n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate <= 0 {
		return 0
	}
	if least := now.Add(-burst); b.paid.Before(least) {
		b.paid = least
	}
	b.paid = b.paid.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	return b.paid.Sub(now)
}

// Listener limits what is sent and received over the accepted connections.
func (l *Limit) Listener(inner net.Listener) net.Listener {
	if l == nil {
		return inner
	}
	return &limitedListener{inner, l}
}

// Dial limits the connections that are made.
func (l *Limit) Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if l == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newLimited(c, l), nil
	}
}

type limitedListener struct {
	net.Listener
	limit *Limit
}

func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newLimited(c, l.limit), nil
}

// limited is a connection with a limit. Closing it ends every wait.
type limited struct {
	net.Conn
	limit  *Limit
	once   sync.Once
	closed chan struct{}
}

func newLimited(c net.Conn, l *Limit) *limited {
	return &limited{Conn: c, limit: l, closed: make(chan struct{})}
}

// NetConn is the connection that is limited.
func (c *limited) NetConn() net.Conn { return c.Conn }

func (c *limited) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Read waits afterwards: the receive window of the connection then slows the sender down.
func (c *limited) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.wait(c.limit.charge(&c.limit.received, n, time.Now()))
	}
	return n, err
}

func (c *limited) Write(p []byte) (int, error) {
	done := 0
	for {
		part := p[done:]
		if c.limit.Rate() > 0 {
			part = part[:min(len(part), piece)]
		}
		if !c.wait(c.limit.charge(&c.limit.sent, len(part), time.Now())) {
			return done, net.ErrClosed
		}
		n, err := c.Conn.Write(part)
		done += n
		if err != nil || done >= len(p) {
			return done, err
		}
	}
}

// wait is false if the connection was closed meanwhile.
func (c *limited) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.closed:
		return false
	}
}
