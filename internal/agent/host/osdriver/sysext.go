package osdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Places below the host's root.
const (
	// Store has one folder for every version, named by its digest.
	Store = "/var/lib/refit/extensions"
	// links is where systemd looks.
	links = "/var/lib/extensions"
	// stamps are in the tree of every version, by the name of the extension.
	stamps = "usr/share/refit/extensions"
	// releases begins the file that says for which OS an extension is.
	releases = "usr/lib/extension-release.d/extension-release."
	// previous names, in the store, the version for a rollback; next the staged one. A
	// name is a digest without its algorithm.
	previous, next = "previous", "next"
)

// OpenExtension reads an image as the tree of its files, as a tar.
type OpenExtension func(ctx context.Context, s Source) (io.ReadCloser, error)

// SysextDriver is a host with systemd-sysext.
type SysextDriver struct {
	host Host
	open OpenExtension
}

// NewSysext makes the driver.
func NewSysext(h Host, open OpenExtension) *SysextDriver { return &SysextDriver{h, open} }

// Name is sysext.
func (d *SysextDriver) Name() string { return Sysext }

func (d *SysextDriver) path(parts ...string) string {
	return filepath.Join(append([]string{d.host.Root, "/"}, parts...)...)
}

// hierarchy is one line of `systemd-sysext status --json=short`.
type hierarchy struct {
	Hierarchy string `json:"hierarchy"`
	// Extensions is the word none, or the names.
	Extensions json.RawMessage `json:"extensions"`
}

// MergedExtensions returns the extensions that are merged into /usr, from systemd's output.
func MergedExtensions(b []byte) ([]string, error) {
	var all []hierarchy
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("answer of systemd-sysext status: %w", err)
	}
	for _, h := range all {
		if h.Hierarchy != "/usr" {
			continue
		}
		var names []string
		if json.Unmarshal(h.Extensions, &names) == nil {
			return names, nil
		}
		var word string
		if err := json.Unmarshal(h.Extensions, &word); err != nil || word != "none" {
			return nil, fmt.Errorf("answer of systemd-sysext status: extensions %.60s", h.Extensions)
		}
	}
	return nil, nil
}

// Status reads the host: what is merged now is what is booted.
func (d *SysextDriver) Status(ctx context.Context) (Status, error) {
	s := Status{Driver: Sysext, Booted: &Deployment{ID: "none"}}
	out, err := d.host.Runner.Run(ctx, nil, "systemd-sysext", "status", "--json=short")
	if err != nil {
		return s, err
	}
	merged, err := MergedExtensions(out)
	if err != nil {
		return s, err
	}
	for _, name := range merged {
		b, err := os.ReadFile(d.path(stamps, name))
		if errors.Is(err, fs.ErrNotExist) {
			s.Drift = append(s.Drift, Drift{Kind: DriftForeign, Detail: "the extension " + name + " is merged, and is not from an image that refit put there"})
			continue
		}
		if err != nil {
			return s, fmt.Errorf("extension %s: %w", name, err)
		}
		s.Booted = version(strings.TrimSpace(string(b)))
	}
	s.Next = s.Booted
	if s.Staged, err = d.named(next); err != nil || s.Staged != nil {
		s.Next = s.Staged
	}
	if err == nil {
		s.Rollback, err = d.named(previous)
	}
	if err == nil {
		s.Running, err = d.host.Running()
	}
	return s, err
}

func version(digest string) *Deployment {
	return &Deployment{ID: digest, Digest: digest}
}

// none is what the previous version is called when there was none.
const none = "none"

// named reads which version is the next or the previous one, nil if there is none.
func (d *SysextDriver) named(what string) (*Deployment, error) {
	b, err := os.ReadFile(d.path(Store, what))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("extension images: %w", err)
	}
	digest := strings.TrimSpace(string(b))
	if digest == none {
		return &Deployment{ID: none}, nil
	}
	return version(digest), nil
}

func (d *SysextDriver) setNamed(what, digest string) error {
	if err := os.MkdirAll(d.path(Store), 0o755); err != nil {
		return fmt.Errorf("extension images: %w", err)
	}
	if digest == "" {
		digest = none
	}
	return fsutil.WriteFile(d.path(Store, what), []byte(digest+"\n"), 0o644)
}

func (d *SysextDriver) tree(digest string) string {
	return d.path(Store, strings.TrimPrefix(digest, "sha256:"))
}

// Stage unpacks the image next to the other versions. The running system does not see it.
func (d *SysextDriver) Stage(ctx context.Context, t Target) error {
	if len(t.Kargs) > 0 {
		return fmt.Errorf("%w: kernel arguments are wanted, and an image that is laid over /usr has none", ErrUnsupported)
	}
	if _, err := os.Stat(d.tree(t.Digest)); errors.Is(err, fs.ErrNotExist) {
		if err := d.unpack(ctx, t); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("extension images: %w", err)
	}
	failpoint.Here(failpoint.OSImported)
	return d.setNamed(next, t.Digest)
}

// unpack writes the tree into a folder that gets its name when it is whole.
func (d *SysextDriver) unpack(ctx context.Context, t Target) error {
	part := d.tree(t.Digest) + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("extension images: %w", err)
	}
	in, err := d.open(ctx, t.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := extract(in, part); err != nil {
		return fmt.Errorf("extension image %s: %w", t.Image, err)
	}
	name, err := nameOf(part)
	if err == nil {
		err = d.fits(filepath.Join(part, releases+name))
	}
	if err != nil {
		return fmt.Errorf("%w: extension image %s: %w", ErrUnsupported, t.Image, err)
	}
	if err := os.MkdirAll(filepath.Join(part, stamps), 0o755); err != nil {
		return fmt.Errorf("extension image %s: %w", t.Image, err)
	}
	if err := fsutil.WriteFile(filepath.Join(part, stamps, name), []byte(t.Digest+"\n"), 0o644); err != nil {
		return err
	}
	if err := d.label(part); err != nil {
		return fmt.Errorf("extension image %s: %w", t.Image, err)
	}
	if err := fsutil.SyncFS(part); err != nil {
		return err
	}
	if err := os.Rename(part, d.tree(t.Digest)); err != nil {
		return fmt.Errorf("extension image %s: %w", t.Image, err)
	}
	return fsutil.SyncDir(d.path(Store))
}

// label gives all files of a tree the SELinux labels of the place that it is laid over. With those
// of the directory in which it is unpacked the host could not start its programs.
func (d *SysextDriver) label(tree string) error {
	if c, _, err := fsutil.HostContexts(d.host.Root); c == nil && err == nil {
		return nil
	}
	err := filepath.WalkDir(tree, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return fsutil.LabelAt(d.host.Root, unix.AT_FDCWD, at, strings.TrimPrefix(at, tree), e.Type())
	})
	if err != nil {
		return fmt.Errorf("SELinux labels: %w", err)
	}
	return nil
}

// nameOf is what the extension in a tree is called: systemd wants its release file
// to have the name under which it is found.
func nameOf(tree string) (string, error) {
	found, err := filepath.Glob(filepath.Join(tree, releases+"*"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("it is no extension for systemd-sysext: it has %d files usr/lib/extension-release.d/extension-release.NAME, and must have one", len(found))
	}
	return strings.TrimPrefix(filepath.Base(found[0]), "extension-release."), nil
}

// Discard forgets what was staged.
func (d *SysextDriver) Discard(context.Context) error { return d.forget(next) }

func (d *SysextDriver) forget(what string) error {
	if err := os.Remove(d.path(Store, what)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("extension images: %w", err)
	}
	return fsutil.SyncDir(d.path(Store))
}

// Rollback stages the version that was merged before.
func (d *SysextDriver) Rollback(context.Context) error {
	p, err := d.named(previous)
	switch {
	case err != nil:
		return err
	case p == nil:
		return ErrNoRollback
	}
	return d.setNamed(next, p.Digest)
}

// Activate lays the staged version over /usr.
func (d *SysextDriver) Activate(ctx context.Context, _ Target) (Activation, error) {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil {
		return Live, err
	}
	if s.Booted.ID != s.Staged.ID {
		if err := d.setNamed(previous, s.Booted.Digest); err != nil {
			return "", err
		}
	}
	if err := d.link(s.Staged.Digest); err != nil {
		return "", err
	}
	failpoint.Here(failpoint.OSLinked)
	for _, argv := range [][]string{{"systemd-sysext", "refresh"}, {"systemctl", "enable", "systemd-sysext.service"}} { // now, and after a restart
		if _, err := d.host.Runner.Run(ctx, nil, argv...); err != nil {
			return "", err
		}
	}
	want := s.Staged.ID
	if s, err = d.Status(ctx); err != nil {
		return "", err
	}
	if s.Booted.ID != want {
		return "", fmt.Errorf("systemd-sysext ended with 0 and did not merge %s; `SYSTEMD_LOG_LEVEL=debug systemd-sysext refresh` says why", want)
	}
	return Live, d.forget(next)
}

// link makes a version the one that systemd finds, and no other of ours.
func (d *SysextDriver) link(digest string) error {
	if err := os.MkdirAll(d.path(links), 0o755); err != nil {
		return fmt.Errorf("extensions: %w", err)
	}
	keep := ""
	if digest != "" {
		name, err := nameOf(d.tree(digest))
		if err != nil {
			return err
		}
		keep = name
		tmp := d.path(links, "."+name+".new")
		if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("extensions: %w", err)
		}
		if err := os.Symlink(filepath.Join(Store, strings.TrimPrefix(digest, "sha256:")), tmp); err != nil {
			return fmt.Errorf("extensions: %w", err)
		}
		if err := os.Rename(tmp, d.path(links, name)); err != nil {
			return fmt.Errorf("extension %s: %w", name, err)
		}
	}
	return d.unlinkOthers(keep)
}

// unlinkOthers takes away links of ours to other extensions; what is not ours stays.
func (d *SysextDriver) unlinkOthers(keep string) error {
	all, err := os.ReadDir(d.path(links))
	if err != nil {
		return fmt.Errorf("extensions: %w", err)
	}
	for _, e := range all {
		to, err := os.Readlink(d.path(links, e.Name()))
		if err != nil || e.Name() == keep || !strings.HasPrefix(to, Store+"/") {
			continue
		}
		if err := os.Remove(d.path(links, e.Name())); err != nil {
			return fmt.Errorf("extension %s: %w", e.Name(), err)
		}
	}
	return fsutil.SyncDir(d.path(links))
}

// Failure is empty: nothing happens at shutdown.
func (d *SysextDriver) Failure(context.Context) string { return "" }
