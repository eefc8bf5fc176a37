package peerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxHeader is the most bytes that are read as a header: the metadata and the
// chunk table of a bundle of a terabyte stay below it.
const MaxHeader = 64 << 20

// ErrTooLong says that a peer sent more than it was asked for.
var ErrTooLong = errors.New("the peer sends more than was asked for")

// Peer is whom to ask.
type Peer struct {
	Name string
	// Address is host:port.
	Address string
	// PublicKey is base64 of PKIX DER; the client accepts no other server.
	PublicKey string
}

// Client asks one peer. Safe for concurrent use.
type Client struct {
	peer Peer
	http *http.Client
}

// NewClient makes a client; nothing is dialled before the first question.
func NewClient(id *Identity, p Peer) *Client { return NewLimited(id, p, nil) }

// NewLimited makes a client that keeps within a limit; nil is none.
func NewLimited(id *Identity, p Peer, limit *Limit) *Client {
	tlsConf := id.tlsConfig(func(pub string) bool { return pub == p.PublicKey })
	return &Client{peer: p, http: &http.Client{Transport: &http.Transport{
		DialContext:           limit.dial((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext),
		TLSClientConfig:       tlsConf,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: time.Minute, // a peer sends to others before, and not faster than it may

		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 4,
		DisableCompression:  true,
	}}}
}

// Peer is whom this client asks.
func (c *Client) Peer() Peer { return c.peer }

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Alive asks whether the agent is there; the answer comes from the holder of
// the key.
func (c *Client) Alive(ctx context.Context) (Alive, error) {
	var a Alive
	b, err := c.get(ctx, "/v1/alive", 4<<10)
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
	return c.get(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/header", MaxHeader)
}

// Have fetches the bitmap of chunks that the peer has; chunks is how many the
// bundle has.
func (c *Client) Have(ctx context.Context, digest string, chunks int) ([]byte, error) {
	return c.get(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/have", int64(chunks+7)/8)
}

// Chunk fetches chunk n, which has size bytes. The caller compares it.
func (c *Client) Chunk(ctx context.Context, digest string, n int, size int64) ([]byte, error) {
	data, _, err := c.Take(ctx, digest, n, size)
	return data, err
}

// Take is Chunk for clients of many chunks: next is a chunk that the peer has offered
// to no other node, -1 if it offers none.
func (c *Client) Take(ctx context.Context, digest string, n int, size int64) (data []byte, next int, err error) {
	resp, err := c.ask(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/chunks/"+strconv.Itoa(n))
	if err != nil {
		return nil, -1, err
	}
	defer resp.Body.Close()
	if next, err = strconv.Atoi(resp.Header.Get(nextHeader)); err != nil {
		next = -1
	}
	data, err = c.read(resp, size)
	return data, next, err
}

func (c *Client) where(err error) error {
	return fmt.Errorf("peer %s at %s: %w", c.peer.Name, c.peer.Address, err)
}

// ask sends a question; the caller closes the answer's body.
func (c *Client) ask(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.peer.Address+path, nil)
	if err != nil {
		return nil, c.where(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.where(err)
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
	_ = resp.Body.Close() // the error above says more
	return nil, c.where(err)
}

func (c *Client) get(ctx context.Context, path string, most int64) ([]byte, error) {
	resp, err := c.ask(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return c.read(resp, most)
}

func (c *Client) read(resp *http.Response, most int64) ([]byte, error) {
	if resp.ContentLength > most {
		return nil, c.where(ErrTooLong)
	}
	return readAtMost(resp, most, c.where)
}

func readAtMost(resp *http.Response, most int64, where func(error) error) ([]byte, error) {
	size := most
	if resp.ContentLength >= 0 {
		size = resp.ContentLength
	} else if size > 1<<20 {
		size = 1 << 20
	}
	buf := make([]byte, 0, size+1)
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
