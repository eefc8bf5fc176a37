package programs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
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
	"github.com/refit-dev/refit/internal/model"
)

// Bounds of a payload of plugins: a tar says of itself how large it is.
const (
	maxPlugins = 64
	maxPlugin  = 64 << 20
)

// plugin is one file of the payload.
type plugin struct{ name, digest string }

// tars remembers what is in a payload; it is named by its digest.
type tars struct {
	mu    sync.Mutex
	known map[string][]plugin
}

// list is what a payload holds, by name.
func (c *tars) list(p updaters.Payload) ([]plugin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.known[p.Digest]; ok {
		return l, nil
	}
	var out []plugin
	err := each(p, func(name string, data []byte) error {
		if err := rightProgram(bytes.NewReader(data)); err != nil {
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

// pluginName: a file in the tar's top directory, or in none.
func pluginName(h *tar.Header) (string, bool) {
	name := path.Clean(h.Name)
	return name, h.Typeflag == tar.TypeReg && !strings.Contains(name, "/") && !strings.HasPrefix(name, ".") && h.Size <= maxPlugin
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: payload %s %s", errWrong, PayloadPlugins, fmt.Sprintf(format, args...))
}

// each reads the files of a payload, whose bytes are compared with its digest.
func each(p updaters.Payload, do func(name string, data []byte) error) error {
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
			return bad("cannot be decompressed: %v", err)
		}
		r = z
	}
	if err := entries(tar.NewReader(r), do); err != nil {
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

func entries(t *tar.Reader, do func(name string, data []byte) error) error {
	for n := 0; ; {
		head, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bad("is no tar: %v", err)
		}
		if head.Typeflag == tar.TypeDir && path.Clean(head.Name) == "." {
			continue
		}
		name, ok := pluginName(head)
		if n++; !ok || n > maxPlugins {
			return bad("holds %q; it may hold up to %d plain files of up to %d bytes in one directory", head.Name, maxPlugins, maxPlugin)
		}
		data, err := io.ReadAll(io.LimitReader(t, maxPlugin))
		if err != nil {
			return bad("is cut short: %v", err)
		}
		if err := do(name, data); err != nil {
			return err
		}
	}
}

// wrongPlugins are the files of the payload that are not so on the node. Others
// in the directory are not ours.
func (u *Updater) wrongPlugins(t updaters.Task) ([]plugin, error) {
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return nil, err
	}
	all, err := u.tars.list(p)
	if err != nil {
		return nil, err
	}
	return u.differing(all), nil
}

func (u *Updater) differing(all []plugin) []plugin {
	var out []plugin
	for _, p := range all {
		if have, err := u.digests.Of(filepath.Join(u.host.PluginDir(), p.name)); err != nil || have != p.digest {
			out = append(out, p)
		}
	}
	return out
}

// keptAs is the name by which what was there is kept.
const keptAs = "cni"

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
		if err := updaters.Keep(t, filepath.Join(keptAs, w.name), filepath.Join(u.host.PluginDir(), w.name)); err != nil {
			return err
		}
	}
	return each(p, func(name string, data []byte) error {
		// Each file is compared before it is written: the whole is only afterwards.
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

// restorePlugins puts back what was kept, and takes away what was not there.
func (u *Updater) restorePlugins(t updaters.Task) error {
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return err
	}
	all, err := u.tars.list(p)
	if err != nil {
		return err
	}
	for _, w := range all {
		if _, err := updaters.Restore(t, filepath.Join(keptAs, w.name), filepath.Join(u.host.PluginDir(), w.name)); err != nil {
			return err
		}
	}
	return nil
}

// otherPlugins is the field's value if the node has plugins that are not those of
// a payload it knows.
const otherPlugins = "others"

// pluginsField is the payload's digest if the node has all of it, some other
// text if it has other plugins, "" if it has none.
func (u *Updater) pluginsField(held model.HeldPayload, find func(bundle, name string) (updaters.Payload, error)) string {
	entries, err := os.ReadDir(u.host.PluginDir())
	if err != nil || len(entries) == 0 {
		return ""
	}
	p, err := find(held.Bundle, held.Name)
	if err != nil || p.Digest != held.Digest {
		return otherPlugins
	}
	all, err := u.tars.list(p)
	if err != nil || len(u.differing(all)) > 0 {
		return otherPlugins
	}
	return p.Digest
}

// rightMachine refuses a program for another machine.
func rightMachine(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return rightProgram(f)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV, "386": elf.EM_386}

// rightProgram: what is no ELF file may be a script, and is let through.
func rightProgram(r io.ReaderAt) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil //nolint:nilerr // no ELF file
	}
	if want, ok := machines[runtime.GOARCH]; ok && f.Machine != want {
		return fmt.Errorf("%w: it is for the machine %s, this node is %s", errWrong, f.Machine, runtime.GOARCH)
	}
	return nil
}
