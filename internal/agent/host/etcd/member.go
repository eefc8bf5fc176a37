package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"os"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials are the files by which a member's API is reached.
type Credentials struct{ CA, Cert, Key string }

// Member is the API of one member. Nothing is written through it.
type Member struct {
	// URL of its client API, for example https://127.0.0.1:2379.
	URL         string
	Credentials Credentials
}

// maxMessage is larger than any block of a snapshot.
const maxMessage = 8 << 20

func (m Member) dial(address string) (*grpc.ClientConn, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("etcd at %s: this is no address", address)
	}
	creds := insecure.NewCredentials()
	if u.Scheme == "https" {
		if creds, err = m.Credentials.tls(); err != nil {
			return nil, err
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", address, err)
	}
	return conn, nil
}

func (c Credentials) tls() (credentials.TransportCredentials, error) {
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("etcd's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("etcd's CA %s holds no certificate", c.CA)
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		// The error would not show the key, but it is not worth the doubt.
		return nil, fmt.Errorf("etcd's client certificate %s cannot be used with its key", c.Cert)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

// callMember makes one call with an empty request.
func (m Member) callMember(ctx context.Context, address, method string) ([]field, error) {
	conn, err := m.dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	in, out := []byte{}, []byte{}
	if err := conn.Invoke(ctx, method, &in, &out); err != nil {
		return nil, fmt.Errorf("etcd at %s does not answer", address) // gRPC's words change from call to call
	}
	return fields(out)
}

// Size of the member's database, in bytes.
func (m Member) Size(ctx context.Context) (int64, error) {
	fs, err := m.callMember(ctx, m.URL, "/etcdserverpb.Maintenance/Status")
	if err != nil {
		return 0, err
	}
	for _, f := range fs {
		if f.num == 3 {
			return int64(f.value), nil
		}
	}
	return 0, nil
}

// peer is a member of the cluster.
type peer struct {
	id      uint64
	name    string
	urls    []string
	learner bool
}

func (m Member) peers(ctx context.Context) (self uint64, out []peer, err error) {
	fs, err := m.callMember(ctx, m.URL, "/etcdserverpb.Cluster/MemberList")
	if err != nil {
		return 0, nil, err
	}
	for _, f := range fs {
		inner, err := fields(f.bytes)
		if err != nil {
			return 0, nil, err
		}
		switch f.num {
		case 1:
			for _, g := range inner {
				if g.num == 2 {
					self = g.value
				}
			}
		case 2:
			out = append(out, peerOf(inner))
		}
	}
	return self, out, nil
}

func peerOf(fs []field) peer {
	var p peer
	for _, g := range fs {
		switch g.num {
		case 1:
			p.id = g.value
		case 2:
			p.name = string(g.bytes)
		case 4:
			p.urls = append(p.urls, string(g.bytes))
		case 5:
			p.learner = g.value != 0
		}
	}
	return p
}

// Members is how many members the cluster has, without those that only learn.
func (m Member) Members(ctx context.Context) (int, error) {
	_, all, err := m.peers(ctx)
	n := 0
	for _, p := range all {
		if !p.learner {
			n++
		}
	}
	return n, err
}

// Unsafe says why this member must not be restarted now: the others would have
// no quorum, or, of two, the other is not well and would not come back to one.
func (m Member) Unsafe(ctx context.Context) ([]string, error) {
	self, all, err := m.peers(ctx)
	if err != nil {
		return nil, err
	}
	voters, well := 0, 0
	var problems []string
	for _, p := range all {
		if p.learner {
			problems = append(problems, "etcd member "+p.name+" is only learning: it has not taken over everything yet")
			continue
		}
		voters++
		if p.id == self {
			continue
		}
		if why := m.sick(ctx, p); why != "" {
			problems = append(problems, why)
		} else {
			well++
		}
	}
	sort.Strings(problems)
	quorum := voters/2 + 1
	switch {
	case voters <= 2 && well == voters-1, voters > 2 && well >= quorum:
		return nil, nil
	}
	return append([]string{fmt.Sprintf("of %d etcd members %d others are well, and %d must be before this one is restarted", voters, well, min(quorum, voters-1))}, problems...), nil
}

// sick says why a member is not well.
func (m Member) sick(ctx context.Context, p peer) string {
	name := p.name
	if name == "" {
		return "an etcd member has been added and has never been started"
	}
	var last error
	for _, u := range p.urls {
		fs, err := m.callMember(ctx, u, "/etcdserverpb.Maintenance/Status")
		if err != nil {
			last = err
			continue
		}
		var errs []string
		leader := false
		for _, f := range fs {
			leader = leader || f.num == 4 && f.value != 0
			if f.num == 8 {
				errs = append(errs, string(f.bytes))
			}
		}
		switch {
		case len(errs) > 0:
			return "etcd member " + name + " says: " + text.Truncate(strings.Join(errs, "; "), longestReason)
		case !leader:
			return "etcd member " + name + " knows no leader"
		}
		return ""
	}
	if last == nil {
		last = errors.New("it has no address")
	}
	return "etcd member " + name + ": " + last.Error()
}

// Snapshot writes the member's whole state and compares it with the hash that
// etcd puts at its end. What was written must not be used after an error.
func (m Member) Snapshot(ctx context.Context, w io.Writer) error {
	conn, err := m.dial(m.URL)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.Maintenance/Snapshot")
	if err != nil {
		return errors.New("etcd gives no snapshot: it does not answer")
	}
	in := []byte{}
	if err := errors.Join(s.SendMsg(&in), s.CloseSend()); err != nil {
		return errors.New("etcd gives no snapshot: it does not answer")
	}
	c := checked{w: w, h: sha256.New()}
	for {
		var out []byte
		err := s.RecvMsg(&out)
		if errors.Is(err, io.EOF) {
			return c.end()
		}
		if err != nil {
			return errors.New("etcd's snapshot was cut off")
		}
		fs, err := fields(out)
		if err != nil {
			return err
		}
		for _, f := range fs {
			if f.num != 3 {
				continue
			}
			if err := c.write(f.bytes); err != nil {
				return err
			}
		}
	}
}

// checked hashes all but the last bytes, which are the hash.
type checked struct {
	w    io.Writer
	h    hash.Hash
	last []byte
	size int64
}

func (c *checked) write(b []byte) error {
	if _, err := c.w.Write(b); err != nil {
		return fmt.Errorf("etcd's snapshot: %w", err)
	}
	c.size += int64(len(b))
	c.last = append(c.last, b...)
	if n := len(c.last) - sha256.Size; n > 0 {
		c.h.Write(c.last[:n])
		c.last = append([]byte(nil), c.last[n:]...)
	}
	return nil
}

// end compares. A database has whole blocks of 512 bytes.
func (c *checked) end() error {
	if c.size%512 != sha256.Size || !bytes.Equal(c.h.Sum(nil), c.last) {
		return errors.New("etcd's snapshot is not what its hash says: it was cut off or altered on the way")
	}
	return nil
}
