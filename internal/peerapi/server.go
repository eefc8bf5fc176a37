package peerapi

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// ErrNotHere says that this node does not have what was requested.
var ErrNotHere = errors.New("not here")

// Library is what peers of a node may read: approved bundles only.
type Library interface {
	// Header is the bundle's bytes up to and including its chunk table.
	// ErrNotHere if the bundle is not approved or not here.
	Header(digest string) ([]byte, error)
	// Have is the bitmap of the chunks that are here.
	Have(digest string) ([]byte, error)
	// Chunk reads chunk n and compares it with the chunk table, unless this process has
	// just done so. It uses buf if buf is large enough. A later call may get the result
	// as its buf.
	Chunk(digest string, n int, buf []byte) ([]byte, error)
}

// Alive is the answer to GET /v1/alive.
type Alive struct {
	Node    string `json:"node"`
	Version string `json:"version"`
}

// maxAtOnce bounds the memory that peers can make this node use: each chunk in
// flight is in memory once.
const maxAtOnce = 16

// sendTime is how long one answer may take before the peer's connection is closed.
const sendTime = 2 * time.Minute

// nextHeader names a chunk that the peer has offered to no other node.
const nextHeader = "Refit-Next"

// Handler serves a library.
//
//	GET /v1/alive
//	GET /v1/bundles/{hex}/header
//	GET /v1/bundles/{hex}/have
//	GET /v1/bundles/{hex}/news
//	GET /v1/bundles/{hex}/chunks/{n}
//
// A chunk's response has the header Refit-Next, if the library is a Notifier and has a chunk
// that was never sent: that chunk's number.
func Handler(lib Library, who Alive) http.Handler {
	slots, talks := newShares(slotsPerKey, maxAtOnce), newShares(streamsPerKey, maxConns)
	offered := &offers{}
	tell, tells := lib.(Notifier)
	var sent chunkBuffers
	answer := func(get func(r *http.Request, digest string) ([]byte, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			release := slots.acquire(r.Context(), peerKey(r))
			if release == nil {
				return // the peer has disconnected
			}
			defer release()
			digest := "sha256:" + r.PathValue("hex")
			body, err := get(r, digest)
			if err != nil {
				writeError(w, err)
				return
			}
			if n, err := strconv.Atoi(r.PathValue("n")); err == nil {
				defer sent.keep(body)
				if tells {
					setNext(w, offered.nextOffer(tell, digest, n))
				}
			}
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime))
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body) // the peer handles its own disconnect
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/alive", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(who)
	})
	mux.HandleFunc("GET /v1/bundles/{hex}/header", answer(func(_ *http.Request, d string) ([]byte, error) { return lib.Header(d) }))
	mux.HandleFunc("GET /v1/bundles/{hex}/have", answer(func(_ *http.Request, d string) ([]byte, error) { return lib.Have(d) }))
	mux.HandleFunc("GET /v1/bundles/{hex}/news", func(w http.ResponseWriter, r *http.Request) {
		release := talks.tryAcquire(peerKey(r))
		if release == nil {
			w.Header().Set("Connection", "close")
			http.Error(w, "too many news streams at a time", http.StatusTooManyRequests)
			return
		}
		defer release()
		serveNews(lib, w, r)
	})
	mux.HandleFunc("GET /v1/bundles/{hex}/chunks/{n}", answer(func(r *http.Request, d string) ([]byte, error) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return nil, ErrNotHere
		}
		return lib.Chunk(d, n, sent.take())
	}))
	return mux
}

func setNext(w http.ResponseWriter, n int) {
	if n >= 0 {
		w.Header().Set(nextHeader, strconv.Itoa(n))
	}
}

// chunkBuffers has the memory of chunks that were sent, for the next ones: to clear and
// collect new memory for each costs as much as to encrypt it.
type chunkBuffers struct{ pool sync.Pool }

func (c *chunkBuffers) take() []byte {
	if b, ok := c.pool.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

func (c *chunkBuffers) keep(b []byte) { c.pool.Put(&b) }

// OnlyPeers checks at every request that the other side is still accepted: a connection
// outlives the list of peers that accepted it.
func OnlyPeers(h http.Handler, accepts func(publicKey string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || !acceptable(r.TLS.PeerCertificates, accepts) {
			w.Header().Set("Connection", "close")
			http.Error(w, "not a peer", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func acceptable(certs []*x509.Certificate, accepts func(publicKey string) bool) bool {
	if len(certs) == 0 {
		return false
	}
	pub, err := EncodePublicKey(certs[0].PublicKey)
	return err == nil && accepts(pub)
}

func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrNotHere) {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// NewServer is a server with limits that a peer cannot evade. The caller listens with
// Identity.Listen.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		// Connections of unknown clients would fill the log.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}
