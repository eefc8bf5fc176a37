package peerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"
)

// MaxHeader is the largest header that is read, in bytes: the metadata and the chunk table
// of a bundle of a terabyte are smaller.
const MaxHeader = 64 << 20

// ErrTooLong says that a peer sent more than was requested.
var ErrTooLong = errors.New("the peer sends more than was requested")

// Peer is another node.
type Peer struct {
	Name string
	// Address is host:port.
	Address string
	// PublicKey is base64 of PKIX DER; the client accepts no other server.
	PublicKey string
}

// Client sends requests to one peer. Safe for concurrent use.
type Client struct {
	peer Peer
	http *http.Client
}

// NewClient makes a client; it connects at the first request.
func NewClient(id *Identity, p Peer) *Client { return NewLimited(id, p, nil) }

// NewLimited makes a client with a bandwidth limit; nil is none.
func NewLimited(id *Identity, p Peer, limit *Limit) *Client {
	tlsConf := id.tlsConfig(func(pub string) bool { return pub == p.PublicKey })
	return &Client{peer: p, http: &http.Client{Transport: &http.Transport{
		DialContext:           limit.Dial((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext),
		TLSClientConfig:       tlsConf,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: time.Minute, // the peer may serve others first, within its limit

		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 4,
		DisableCompression:  true,
	}}}
}

// Peer is the peer of this client.
func (c *Client) Peer() Peer { return c.peer }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Alive asks whether the agent runs; only the holder of the key can answer.
func (c *Client) Alive(ctx context.Context) (Alive, error) {
	var a Alive
	b, err := c.getBytes(ctx, "/v1/alive", 4<<10)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("peer %s at %s: %w", c.peer.Name, c.peer.Address, err)
	}
	return a, nil
}

// Header fetches a bundle's header. The caller parses it and compares the
// digest. ErrNotHere if the peer does not have it.
func (c *Client) Header(ctx context.Context, digest string) ([]byte, error) {
	return c.getBytes(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/header", MaxHeader)
}

// Have fetches the bitmap of chunks that the peer has; chunks is how many the
// bundle has.
func (c *Client) Have(ctx context.Context, digest string, chunks int) ([]byte, error) {
	return c.getBytes(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/have", int64(chunks+7)/8)
}

// Chunk fetches chunk n, which has size bytes. The caller compares it.
func (c *Client) Chunk(ctx context.Context, digest string, n int, size int64) ([]byte, error) {
	data, _, err := c.FetchChunk(ctx, digest, n, size, nil)
	return data, err
}

// FetchChunk is Chunk for clients of many chunks. It uses buf if buf is large enough. next is
// a chunk that the peer has offered to no other node, -1 if it offers none.
func (c *Client) FetchChunk(ctx context.Context, digest string, n int, size int64, buf []byte) (data []byte, next int, err error) {
	var conn net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(g httptrace.GotConnInfo) { conn = g.Conn }})
	resp, err := c.request(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/chunks/"+strconv.Itoa(n))
	if err != nil {
		return nil, -1, err
	}
	defer resp.Body.Close()
	if resp.ContentLength > 3*wakeBytes {
		b := &wakingBody{ReadCloser: resp.Body, conn: conn, left: resp.ContentLength}
		wakeAfter(conn, wakeBytes)
		defer b.end()
		resp.Body = b
	}
	if next, err = strconv.Atoi(resp.Header.Get(nextHeader)); err != nil {
		next = -1
	}
	data, err = c.readBody(resp, size, buf)
	return data, next, err
}

// wakingBody is the body of a chunk whose reader wakes for every 64 KiB, and at the end for
// each byte again. Of the last bytes, some are in the buffers of TLS already.
type wakingBody struct {
	io.ReadCloser
	conn net.Conn
	left int64
}

func (b *wakingBody) Read(p []byte) (int, error) {
	if b.conn != nil && b.left <= 2*wakeBytes {
		b.end()
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

func (b *wakingBody) end() {
	if b.conn != nil {
		wakeAfter(b.conn, 1)
		b.conn = nil
	}
}

func (c *Client) wrapError(err error) error {
	return fmt.Errorf("peer %s at %s: %w", c.peer.Name, c.peer.Address, err)
}

// request sends a request; the caller closes the body of the response.
func (c *Client) request(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.peer.Address+path, nil)
	if err != nil {
		return nil, c.wrapError(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.wrapError(err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp, nil
	case http.StatusNotFound:
		err = ErrNotHere
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 256))
		err = fmt.Errorf("answered %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	_ = resp.Body.Close() // the error above is more useful
	return nil, c.wrapError(err)
}

func (c *Client) getBytes(ctx context.Context, path string, most int64) ([]byte, error) {
	resp, err := c.request(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return c.readBody(resp, most, nil)
}

func (c *Client) readBody(resp *http.Response, most int64, buf []byte) ([]byte, error) {
	if resp.ContentLength > most {
		return nil, c.wrapError(ErrTooLong)
	}
	return readAtMost(resp, most, buf, c.wrapError)
}

func readAtMost(resp *http.Response, most int64, buf []byte, where func(error) error) ([]byte, error) {
	size := most
	if resp.ContentLength >= 0 {
		size = resp.ContentLength
	} else if size > 1<<20 {
		size = 1 << 20
	}
	if buf = buf[:0]; int64(cap(buf)) <= size {
		buf = make([]byte, 0, size+1)
	}
	r := io.LimitReader(resp.Body, most+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > most {
			return nil, where(ErrTooLong)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, where(err)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}
