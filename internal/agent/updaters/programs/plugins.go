package programs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Bounds of a payload of plugins: the tar itself claims its sizes.
const (
	maxPlugins = 64
	maxPlugin  = 64 << 20
)

// plugin is one file of the payload.
type plugin struct{ name, digest string }

// pluginTars caches the contents of payloads, by digest.
type pluginTars struct {
	mu    sync.Mutex
	known map[string][]plugin
}

// list returns the plugins in a payload, sorted by name.
func (c *pluginTars) list(p updaters.Payload) ([]plugin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.known[p.Digest]; ok {
		return l, nil
	}
	var out []plugin
	err := eachPlugin(p, func(name string, data []byte) error {
		if err := checkELF(bytes.NewReader(data)); err != nil {
			return fmt.Errorf("%s of payload %s: %w", name, PayloadPlugins, err)
		}
		out = append(out, plugin{name, model.DigestOf(data)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	if c.known == nil {
		c.known = map[string][]plugin{}
	}
	c.known[p.Digest] = out
	return out, nil
}

// pluginName returns the name of a plain file in the tar's top directory; ok is false for
// any other entry.
func pluginName(h *tar.Header) (string, bool) {
	name := path.Clean(h.Name)
	return name, h.Typeflag == tar.TypeReg && !strings.Contains(name, "/") && !strings.HasPrefix(name, ".") && h.Size <= maxPlugin
}

func payloadError(format string, args ...any) error {
	return fmt.Errorf("%w: payload %s %s", errPermanent, PayloadPlugins, fmt.Sprintf(format, args...))
}

// eachPlugin reads the files of a payload, and compares its bytes with its digest.
func eachPlugin(p updaters.Payload, do func(name string, data []byte) error) error {
	f, err := os.Open(p.Path)
	if err != nil {
		return fmt.Errorf("payload %s: %w", PayloadPlugins, err)
	}
	defer f.Close()
	h := sha256.New()
	raw := bufio.NewReader(io.TeeReader(f, h))
	var r io.Reader = raw
	if magic, err := raw.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return payloadError("cannot be decompressed: %v", err)
		}
		r = z
	}
	if err := eachEntry(tar.NewReader(r), do); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return fmt.Errorf("payload %s: %w", PayloadPlugins, err)
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != p.Digest {
		return fmt.Errorf("payload %s has digest %s, %s was expected", PayloadPlugins, got, p.Digest)
	}
	return nil
}

func eachEntry(t *tar.Reader, do func(name string, data []byte) error) error {
	for n := 0; ; {
		head, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return payloadError("is not a tar archive: %v", err)
		}
		if head.Typeflag == tar.TypeDir && path.Clean(head.Name) == "." {
			continue
		}
		name, ok := pluginName(head)
		if n++; !ok || n > maxPlugins {
			return payloadError("has %q; it may have up to %d plain files of up to %d bytes in one directory", head.Name, maxPlugins, maxPlugin)
		}
		data, err := io.ReadAll(io.LimitReader(t, maxPlugin))
		if err != nil {
			return payloadError("is truncated: %v", err)
		}
		if err := do(name, data); err != nil {
			return err
		}
	}
}

// wrongPlugins are the payload's files that differ on the node. Other files in the directory
// are not refit's.
func (u *Updater) wrongPlugins(t updaters.Task) ([]plugin, error) {
	if u.host.PluginDir() == "" {
		return nil, payloadError("has no place on this node, whose distribution brings its own plugins")
	}
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return nil, err
	}
	all, err := u.tars.list(p)
	if err != nil {
		return nil, err
	}
	return u.differingPlugins(all), nil
}

func (u *Updater) differingPlugins(all []plugin) []plugin {
	var out []plugin
	for _, p := range all {
		if have, err := u.digests.DigestOf(filepath.Join(u.host.PluginDir(), p.name)); err != nil || have != p.digest {
			out = append(out, p)
		}
	}
	return out
}

// pluginBackupDir is the directory of the backups of plugins.
const pluginBackupDir = "cni"

func (u *Updater) replacePlugins(t updaters.Task) error {
	wrong, err := u.wrongPlugins(t)
	if err != nil || len(wrong) == 0 {
		return err
	}
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return err
	}
	for _, w := range wrong {
		if err := updaters.BackUp(t, filepath.Join(pluginBackupDir, w.name), filepath.Join(u.host.PluginDir(), w.name)); err != nil {
			return err
		}
	}
	return eachPlugin(p, func(name string, data []byte) error {
		// Compare each file before it is written: the whole payload is compared only at the end.
		if !slices.Contains(wrong, plugin{name, model.DigestOf(data)}) {
			return nil
		}
		if err := (nodefiles.FS{}).Write(filepath.Join(u.host.PluginDir(), name), data, 0o755, os.Getuid(), os.Getgid()); err != nil {
			return err
		}
		failpoint.Here(failpoint.PluginsReplaced)
		return nil
	})
}

// restorePlugins restores the backups, and removes plugins that were not there before.
func (u *Updater) restorePlugins(t updaters.Task) error {
	if u.host.PluginDir() == "" {
		return nil // none was replaced
	}
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return err
	}
	all, err := u.tars.list(p)
	if err != nil {
		return err
	}
	for _, w := range all {
		if _, err := updaters.Restore(t, filepath.Join(pluginBackupDir, w.name), filepath.Join(u.host.PluginDir(), w.name)); err != nil {
			return err
		}
	}
	return nil
}

// otherPlugins is the field's value if the node's plugins are not those of a known payload.
const otherPlugins = "others"

// pluginsField is the payload's digest if the node has all of it, some other
// text if it has other plugins, "" if it has none.
func (u *Updater) pluginsField(held model.PinSetPayload, find func(bundle, name string) (updaters.Payload, error)) string {
	entries, err := os.ReadDir(u.host.PluginDir())
	if err != nil || len(entries) == 0 {
		return ""
	}
	p, err := find(held.Bundle, held.Name)
	if err != nil || p.Digest != held.Digest {
		return otherPlugins
	}
	all, err := u.tars.list(p)
	if err != nil || len(u.differingPlugins(all)) > 0 {
		return otherPlugins
	}
	return p.Digest
}

// checkMachine refuses a program for another architecture.
func checkMachine(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkELF(f)
}

// checkELF passes a file that is not ELF: it may be a script.
func checkELF(r io.ReaderAt) error {
	p, err := fsutil.ReadProgram(r)
	if err == nil && p.Architecture != runtime.GOARCH {
		return fmt.Errorf("%w: it is for the architecture %s, this node is %s", errPermanent, cmp.Or(p.Architecture, "of an unknown machine"), runtime.GOARCH)
	}
	return nil
}
