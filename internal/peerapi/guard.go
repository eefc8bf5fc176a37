package peerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limits of a server for one peer, for one address, and for all together. An honest peer
// fetches two chunks and reads one news stream for each bundle.
const (
	slotsPerKey   = 4
	streamsPerKey = 8
	connsPerKey   = 16
	maxConns      = 1024
	// Connections whose peer has not shown its key yet.
	handshakesPerAddress = 32
	maxHandshakes        = 256
)

// Listen accepts peers on inner, within the limits above and the bandwidth limit. A
// connection over a limit closes the oldest one of the same key or address: a peer that
// reconnects gets in, and one that floods only harms itself.
func (id *Identity) Listen(inner net.Listener, limit *Limit, accepts func(publicKey string) bool) net.Listener {
	g := &guard{}
	conf := id.tlsConfig(accepts)
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, ok := hello.Conn.(*guarded)
		if !ok {
			return nil, nil
		}
		own := conf.Clone()
		own.GetConfigForClient = nil
		own.VerifyConnection = func(cs tls.ConnectionState) error {
			if err := conf.VerifyConnection(cs); err != nil {
				return err
			}
			g.authenticated(c, keyOf(cs.PeerCertificates))
			return nil
		}
		return own, nil
	}
	return tls.NewListener(guardListener{limit.Listener(pacedListener{inner}), g}, conf)
}

// keyOf is the key of a peer's certificate, "" for none.
func keyOf(certs []*x509.Certificate) string {
	if len(certs) == 0 {
		return ""
	}
	return string(certs[0].RawSubjectPublicKeyInfo)
}

// guard counts connections: first by address, then by key.
type guard struct {
	mu      sync.Mutex
	pending []*guarded // the oldest first
	open    []*guarded // the oldest first
}

type guarded struct {
	net.Conn
	guard     *guard
	address   string
	key       string
	closeOnce sync.Once
	closeErr  error
}

// Close closes the connection and forgets it.
func (c *guarded) Close() error {
	c.closeOnce.Do(func() {
		c.guard.remove(c)
		c.closeErr = c.Conn.Close()
	})
	return c.closeErr
}

type guardListener struct {
	net.Listener
	guard *guard
}

// Accept counts the connection.
func (l guardListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &guarded{Conn: inner, guard: l.guard, address: host(inner.RemoteAddr())}
	l.guard.addPending(c)
	return c, nil
}

func host(a net.Addr) string {
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}

func (g *guard) addPending(c *guarded) {
	g.mu.Lock()
	g.pending = append(g.pending, c)
	out := tooMany(g.pending, handshakesPerAddress, maxHandshakes, c.address, func(c *guarded) string { return c.address })
	g.mu.Unlock()
	if out != nil {
		_ = out.Close() // the other side sees it
	}
}

// authenticated moves a connection to those whose key is known.
func (g *guard) authenticated(c *guarded, key string) {
	g.mu.Lock()
	i := slices.Index(g.pending, c)
	if i < 0 { // closed meanwhile
		g.mu.Unlock()
		return
	}
	g.pending = slices.Delete(g.pending, i, i+1)
	c.key = key
	g.open = append(g.open, c)
	out := tooMany(g.open, connsPerKey, maxConns, key, func(c *guarded) string { return c.key })
	g.mu.Unlock()
	if out != nil {
		_ = out.Close() // the other side sees it
	}
}

func (g *guard) remove(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, list := range []*[]*guarded{&g.pending, &g.open} {
		if i := slices.Index(*list, c); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
}

// tooMany returns the connection to close, nil if there is room. It is the oldest of the
// owner that exceeds its limit, or of the owner with the most connections.
func tooMany(all []*guarded, most, inAll int, owner string, of func(*guarded) string) *guarded {
	count := map[string]int{}
	for _, c := range all {
		count[of(c)]++
	}
	if count[owner] <= most {
		if len(all) <= inAll {
			return nil
		}
		for o, n := range count {
			if n > count[owner] || n == count[owner] && o < owner {
				owner = o
			}
		}
	}
	return all[slices.IndexFunc(all, func(c *guarded) bool { return of(c) == owner })]
}

// A peer that reads more slowly than minRate for longer than slack loses its connection, and
// with it its slot.
const (
	minRate = 8 << 10 // bytes a second
	slack   = 10 * time.Second
)

// paced is a connection whose peer must read. Only the time that the peer takes counts, not
// the waits for the bandwidth limit.
type paced struct {
	net.Conn
	mu     sync.Mutex
	until  time.Time // the server's own deadline
	credit time.Duration
}

type pacedListener struct{ net.Listener }

// Accept gives a peer all of the slack.
func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &paced{Conn: c, credit: slack}, nil
}

// SetDeadline records the deadline for writing too.
func (c *paced) SetDeadline(t time.Time) error {
	c.setUntil(t)
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline applies in addition to the slack.
func (c *paced) SetWriteDeadline(t time.Time) error {
	c.setUntil(t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *paced) setUntil(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
}

func (c *paced) deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := time.Now().Add(c.credit)
	if !c.until.IsZero() && c.until.Before(d) {
		return c.until
	}
	return d
}

// charge subtracts the time of a write, and adds the time that its bytes allow.
func (c *paced) charge(took time.Duration, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit = min(slack, c.credit-took+time.Duration(n)*time.Second/minRate)
}

func (c *paced) Write(p []byte) (int, error) {
	done := 0
	for {
		part := p[done:min(len(p), done+piece)]
		if err := c.Conn.SetWriteDeadline(c.deadline()); err != nil {
			return done, err
		}
		start := time.Now()
		n, err := c.Conn.Write(part)
		c.charge(time.Since(start), n)
		done += n
		if err != nil || done >= len(p) {
			return done, err
		}
	}
}

// shares limits how much of something each key has at a time, and all keys together.
type shares struct {
	all    chan struct{}
	perKey int

	mu  sync.Mutex
	own map[string]*share
}

type share struct {
	slots chan struct{}
	users int // that have a slot or wait for one
}

func newShares(perKey, inAll int) *shares {
	return &shares{all: make(chan struct{}, inAll), perKey: perKey, own: map[string]*share{}}
}

func (s *shares) join(key string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.own[key]
	if o == nil {
		o = &share{slots: make(chan struct{}, s.perKey)}
		s.own[key] = o
	}
	o.users++
	return o
}

func (s *shares) leave(key string, o *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users--; o.users == 0 {
		delete(s.own, key)
	}
}

// acquire waits for a share, first among those of the same key, so that no key has many
// waiters before others. release is nil if the context ended first.
func (s *shares) acquire(ctx context.Context, key string) (release func()) {
	o := s.join(key)
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		s.leave(key, o)
		return nil
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-o.slots
		s.leave(key, o)
		return nil
	}
	return func() {
		<-s.all
		<-o.slots
		s.leave(key, o)
	}
}

// tryAcquire is acquire without waiting.
func (s *shares) tryAcquire(key string) (release func()) {
	o := s.join(key)
	select {
	case o.slots <- struct{}{}:
	default:
		s.leave(key, o)
		return nil
	}
	select {
	case s.all <- struct{}{}:
	default:
		<-o.slots
		s.leave(key, o)
		return nil
	}
	return func() {
		<-s.all
		<-o.slots
		s.leave(key, o)
	}
}

// peerKey is the key of the peer, "" in tests without TLS.
func peerKey(r *http.Request) string {
	if r.TLS == nil {
		return ""
	}
	return keyOf(r.TLS.PeerCertificates)
}
