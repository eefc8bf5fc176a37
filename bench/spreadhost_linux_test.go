package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// spreadHost is set in the processes that are hosts of TestSpread: what to be.
const spreadHost = "REFIT_BENCH_SPREAD_HOST"

func TestMain(m *testing.M) {
	for name, be := range map[string]func(string) error{spreadHost: runHost, loadAgent: runAgent, hashPass: runHashPass} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		if err := be(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hostRole is the configuration of a host at its start.
type hostRole struct {
	Number int    `json:"number"`
	Dir    string `json:"dir"`
	// Bundle is a file with the bundle; only Origin keeps its chunks, the others
	// have its header alone.
	Bundle  string `json:"bundle"`
	Origin  bool   `json:"origin"`
	BadPeer bool   `json:"badPeer"`
	// Bandwidth is the share that the controller would set, in bytes a second.
	Bandwidth int64 `json:"bandwidth"`
}

// hostMessage is a line that a host prints.
type hostMessage struct {
	PublicKey string      `json:"publicKey,omitempty"`
	Listens   bool        `json:"listens,omitempty"`
	Done      *hostResult `json:"done,omitempty"`
}

// hostResult is what a host reports at its end.
type hostResult struct {
	Seconds  float64  `json:"seconds"`
	CPU      float64  `json:"cpuSeconds"`
	System   float64  `json:"cpuSecondsInKernel"`
	RSS      int64    `json:"peakRSSMiB"`
	Bytes    int64    `json:"bytesKept"`
	BadPeers []string `json:"badPeers,omitempty"`
	Whole    bool     `json:"whole"`
}

func hostName(k int) string { return fmt.Sprint("host-", k) }

func hostAddress(k int) string {
	return net.JoinHostPort(kernel.HostAddress(k), strconv.Itoa(model.PortPeers))
}

// badPeer is a library that changes a byte of every chunk that it sends.
type badPeer struct{ peertransfer.Shelves }

func (l badPeer) Chunk(digest string, n int, buf []byte) ([]byte, error) {
	b, err := l.Shelves.Chunk(digest, n, buf)
	if err == nil {
		b[len(b)/2] ^= 1
	}
	return b, err
}

// runHost is one node: the agent's own library, server, clients and transfer. It reads its
// peers, then the command to start, from standard input.
func runHost(text string) error {
	var role hostRole
	if err := json.Unmarshal([]byte(text), &role); err != nil {
		return err
	}
	id, err := peerapi.LoadIdentity(filepath.Join(role.Dir, "key.pem"), statefile.Ignore)
	if err != nil {
		return err
	}
	lib, shelf, err := openShelf(role)
	if err != nil {
		return err
	}
	say := json.NewEncoder(os.Stdout)
	hear := bufio.NewScanner(os.Stdin)
	hear.Buffer(nil, 1<<20)
	_ = say.Encode(hostMessage{PublicKey: id.PublicKey()})
	var peers []v1alpha1.Peer
	hear.Scan()
	if err := json.Unmarshal(hear.Bytes(), &peers); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	l, err := net.Listen("tcp", hostAddress(role.Number))
	if err != nil {
		return err
	}
	serve := peerapi.Library(peertransfer.Shelves{Library: lib})
	if role.BadPeer {
		serve = badPeer{peertransfer.Shelves{Library: lib}}
	}
	limit := &peerapi.Limit{}
	limit.Set(role.Bandwidth)
	known := func(key string) bool {
		return slices.ContainsFunc(peers, func(p v1alpha1.Peer) bool { return p.PublicKey == key })
	}
	go func() {
		_ = peertransfer.Serve(context.Background(), l, serve, peerapi.Alive{Node: hostName(role.Number)}, id, known, limit)
	}()
	_ = say.Encode(hostMessage{Listens: true})
	hear.Scan()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for hear.Scan() { // another share, while it copies
			if n, err := strconv.ParseInt(hear.Text(), 10, 64); err == nil {
				limit.Set(n)
			}
		}
	}()
	t, err := fetchAll(role, shelf, id, peers, limit)
	if err != nil {
		return err
	}
	_ = say.Encode(hostMessage{Done: t})
	<-ended // serves until its standard input is closed
	return nil
}

func openShelf(role hostRole) (*bundlestore.Library, *bundlestore.Shelf, error) {
	lib := bundlestore.OpenLibrary(role.Dir, slog.Default(), statefile.Ignore)
	f, err := bundlereader.OpenPath(role.Bundle)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	shelf, err := lib.Add(f.Header())
	if err != nil {
		return nil, nil, err
	}
	lib.Serve([]string{shelf.Digest()})
	if role.Origin {
		err = bundlestore.Copy(context.Background(), f, shelf, allChunks(shelf.Bundle()), func(int64) {})
	}
	return lib, shelf, err
}

func allChunks(h *bundle.Header) (out []int) {
	for n := range h.Chunks.Len() {
		out = append(out, n)
	}
	return out
}

func fetchAll(role hostRole, shelf *bundlestore.Shelf, id *peerapi.Identity, peers []v1alpha1.Peer, limit *peerapi.Limit) (*hostResult, error) {
	clients := peertransfer.Peers{Limit: limit}
	var from []peertransfer.Peer
	for _, c := range clients.Clients(id, peers, hostName(role.Number)) {
		from = append(from, c)
	}
	var mu sync.Mutex
	out := &hostResult{}
	began := time.Now()
	err := peertransfer.Fetch(context.Background(), shelf, allChunks(shelf.Bundle()), from, peertransfer.Settings{
		Log:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		ChunkTime: peertransfer.ChunkTime(limit, shelf.Bundle().Metadata.ChunkSize),
		OnChunk: func(_ peerapi.Peer, _ int, n int64) {
			mu.Lock()
			defer mu.Unlock()
			out.Bytes += n
		},
		OnBadChunk: func(p peerapi.Peer, _ int) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(out.BadPeers, p.Name) {
				out.BadPeers = append(out.BadPeers, p.Name)
			}
		}})
	out.Seconds = time.Since(began).Seconds()
	out.Whole = err == nil
	for i := range shelf.Bundle().Metadata.Blobs {
		out.Whole = out.Whole && shelf.HasBlob(i)
	}
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process it does not fail
	out.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	out.System = time.Duration(u.Stime.Nano()).Seconds()
	out.RSS = u.Maxrss >> 10
	return out, err
}
