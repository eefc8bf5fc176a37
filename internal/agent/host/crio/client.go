package crio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// Names of our files: last in their directories, so that they are read last.
const (
	mirrorFile  = "zz-refit-load.conf"
	installFile = "zz-refit-install.conf"
	pinsFile    = "zz-refit-pinned.conf"
)

// Places are directories and files of the runtime's configuration; the zero
// value is a node's own.
type Places struct {
	Root string
	// Install is another mirror than the agent's: both may load at a time, and each
	// takes away its own.
	Install bool
}

func (p Places) join(path string) string { return filepath.Join("/", p.Root, path) }

// Mirror is the file that tells the runtime of our mirror. It is there while
// images are loaded.
func (p Places) Mirror() string {
	file := mirrorFile
	if p.Install {
		file = installFile
	}
	return p.join("/etc/containers/registries.conf.d/" + file)
}

// Client speaks to one CRI-O.
type Client struct {
	socket string
	places Places
	cri    *cri.Client
	log    *slog.Logger
	// reload has the runtime read its configuration; tests have none to signal.
	reload func() error
	take   time.Duration

	// mu guards the files; mirror is set between Prepare and its end.
	mu     sync.Mutex
	mirror *mirror
}

// Open prepares a client; the runtime may be unavailable at that time.
func Open(socket string, places Places, log *slog.Logger) (*Client, error) {
	c, err := cri.Open(socket)
	if err != nil {
		return nil, err
	}
	out := &Client{socket: strings.TrimPrefix(socket, "unix://"), places: places, cri: c, log: log, take: takeTime}
	out.reload = out.hangUp
	return out, nil
}

// Close ends the connections.
func (c *Client) Close() error { return c.cri.Close() }

// CRI is the same runtime seen as the kubelet sees it.
func (c *Client) CRI() *cri.Client { return c.cri }

// Root is a directory of the store; its file system needs the room for images.
// What the runtime says of the room itself is not of use: CRI-O counts a part.
func (c *Client) Root(ctx context.Context) (string, error) { return c.cri.ImageRoot(ctx) }

// Version is the runtime's name and version.
func (c *Client) Version(ctx context.Context) (string, string, error) { return c.cri.Version(ctx) }

// process is CRI-O's process, 0 if who listens is another program.
func (c *Client) process() (int, error) {
	pid, err := listener(c.socket)
	if err != nil {
		return 0, fmt.Errorf("who listens at %s: %w", c.socket, err)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(name)) != "crio" {
		return 0, err
	}
	return pid, nil
}

// hangUp sends CRI-O the signal on which it reads its configuration again. No
// other program gets it: it ends those that do not expect it.
func (c *Client) hangUp() error {
	pid, err := c.process()
	if err != nil || pid == 0 {
		return err
	}
	return hangUp(pid)
}

// watchEvery is how often it is looked whether images went; CRI tells of no
// image that goes.
const watchEvery = 10 * time.Second

// seen is what Watch compares.
type seen struct {
	pid    int
	away   bool
	pinned []string // names of pinned images
}

// Watch calls changed when a pinned image went or lost its pin, and when the
// runtime came back after a restart, until the context ends.
func (c *Client) Watch(ctx context.Context, changed func()) {
	var last seen
	for t := time.NewTicker(watchEvery); ; {
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		now := c.inspectRuntime(ctx)
		if !now.away && now.lost(last) {
			changed()
		}
		last = now
	}
}

func (c *Client) inspectRuntime(ctx context.Context) seen {
	all, err := c.cri.Images(ctx)
	if err != nil {
		return seen{away: true}
	}
	var s seen
	if s.pid, err = listener(c.socket); err != nil {
		return seen{away: true}
	}
	for _, i := range all {
		if i.Pinned {
			s.pinned = append(s.pinned, slices.Concat(i.Tags, i.Digests)...)
		}
	}
	return s
}

// lost: something that was there is not, or another process answers.
func (s seen) lost(last seen) bool {
	return last.away || last.pid != 0 && s.pid != last.pid ||
		slices.ContainsFunc(last.pinned, func(n string) bool { return !slices.Contains(s.pinned, n) })
}

// Clean removes a mirror's file that a load which was cut off has left behind,
// and has the runtime forget it.
func (c *Client) Clean() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clean()
}

func (c *Client) clean() error {
	if c.mirror != nil {
		return nil
	}
	err := os.Remove(c.places.Mirror())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing what a load that was cut off left: %w", err)
	}
	return c.reload()
}
