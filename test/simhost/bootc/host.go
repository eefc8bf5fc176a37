package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/oci"
)

// image is where an image comes from.
type image struct{ transport, name string }

// deployment is one line of libostree's list.
type deployment struct {
	osname, checksum, serial string
	isBooted, isStaged       bool
	digest                   string
	image                    image
	layered                  bool
}

func (d *deployment) id() string { return d.checksum + "." + d.serial }

// host is the list, in the order in which it boots.
type host struct{ list []deployment }

func ostree(args ...string) (string, error) {
	out, err := exec.Command("ostree", args...).Output()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as Output makes it
		return "", fmt.Errorf("ostree %s: %s", args[0], exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

var line = regexp.MustCompile(`^([* ]) (\S+) ([0-9a-f]{64})\.(\d+)(?: \((\w+)\))?`)

func read() (*host, error) {
	out, err := exec.Command("ostree", "admin", "status").Output()
	if err != nil {
		return nil, err
	}
	h := &host{}
	for _, l := range strings.Split(string(out), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		d := deployment{osname: m[2], checksum: m[3], serial: m[4], isBooted: m[1] == "*", isStaged: m[5] == "staged"}
		d.digest = strings.Trim(first1(ostree("show", "--repo="+repo, "--print-metadata-key=ostree.manifest-digest", d.checksum)), "'")
		d.image.transport, d.image.name, _ = strings.Cut(strings.Trim(first1(ostree("show", "--repo="+repo, "--print-metadata-key=lookalike.image", d.checksum)), "'"), " ")
		origin, _ := os.ReadFile(filepath.Join("/ostree/deploy", d.osname, "deploy", d.id()+".origin"))
		d.layered = strings.Contains(string(origin), "[packages]")
		h.list = append(h.list, d)
	}
	if h.booted() == nil {
		return h, nil
	}
	return h, nil
}

func first1(s string, _ error) string { return s }

func (h *host) find(is func(deployment) bool) *deployment {
	if i := slices.IndexFunc(h.list, is); i >= 0 {
		return &h.list[i]
	}
	return nil
}

func (h *host) booted() *deployment { return h.find(func(d deployment) bool { return d.isBooted }) }
func (h *host) staged() *deployment { return h.find(func(d deployment) bool { return d.isStaged }) }
func (h *host) rollback() *deployment {
	return h.find(func(d deployment) bool { return !d.isBooted && !d.isStaged })
}

// queued: an older deployment is before the booted one.
func (h *host) queued() bool {
	return len(h.list) > 0 && !h.list[0].isBooted && !h.list[0].isStaged
}

// spec is the image that `switch` compares with.
func (h *host) spec() *image {
	d := h.staged()
	if d == nil {
		d = h.booted()
	}
	if d == nil || d.image.name == "" {
		return nil
	}
	return &d.image
}

func open(ctx context.Context, i image) (oci.Root, error) {
	switch i.transport {
	case "registry":
		r, err := oci.NewRegistries()
		if err != nil {
			return oci.Root{}, err
		}
		return r.Open(ctx, i.name)
	case "oci":
		return oci.OpenSingle(i.name)
	}
	return oci.Root{}, fmt.Errorf("transport %q is not played", i.transport)
}

func resolve(ctx context.Context, i image) (string, error) {
	r, err := open(ctx, i)
	return r.Desc.Digest.String(), err
}

// stage imports an image and stages it, with the arguments that it brings.
func (h *host) stage(ctx context.Context, i image, lock bool) error {
	root, err := open(ctx, i)
	if err != nil {
		return err
	}
	digest := root.Desc.Digest.String()
	tree, err := flatten.Tree(ctx, root, "linux/amd64", flatten.Whole)
	if err != nil {
		return err
	}
	defer tree.Close()
	branch := "lookalike/" + strings.TrimPrefix(digest, "sha256:")
	c := exec.CommandContext(ctx, "ostree", "commit", "--repo="+repo, "--branch="+branch, "--bootable", "--tree=tar=-", "--tar-autocreate-parents",
		"--add-metadata-string=ostree.manifest-digest="+digest, "--add-metadata-string=lookalike.image="+i.transport+" "+i.name)
	c.Stdin = tree
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ostree commit: %w: %s", err, out)
	}
	kargs, err := h.kargs(branch)
	if err != nil {
		return err
	}
	argv := []string{"admin", "deploy", "--stage", "--os=" + h.booted().osname, "--karg-none"}
	for _, a := range kargs {
		argv = append(argv, "--karg-append="+a)
	}
	if _, err := ostree(append(argv, branch)...); err != nil {
		return err
	}
	if err := pullBound(branch); err != nil {
		return err
	}
	if lock {
		return os.WriteFile(locked, nil, 0o600)
	}
	if err := os.Remove(locked); err != nil && !os.IsNotExist(err) {
		return err
	}
	fmt.Println("Queued for next boot:", i.name)
	return nil
}

// pullBound pulls the images that an image binds. bootc does it after it has staged; there is no
// registry here.
func pullBound(branch string) error {
	bound, err := ostree("ls", "--repo="+repo, "--nul-filenames-only", branch, "/usr/lib/bootc/bound-images.d")
	if err != nil || strings.Count(bound, "\x00") < 2 {
		return nil //nolint:nilerr // it binds none
	}
	return fmt.Errorf("Pulling bound images: Fetching bound image: dial tcp: connection refused") //nolint:staticcheck // as bootc has it
}

// kargs are those of the booted deployment, less what its image brought and the new
// one does not, and what is new in that.
func (h *host) kargs(rev string) ([]string, error) {
	dir, err := os.MkdirTemp("", "kargs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "usr/lib/bootc")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return nil, err
	}
	// An image without the folder is none of our failures.
	_, _ = ostree("checkout", "--repo="+repo, "--user-mode", "--subpath=/usr/lib/bootc/kargs.d", rev, filepath.Join(to, "kargs.d"))
	files, err := filepath.Glob("/boot/loader/entries/*.conf")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		e, err := entryOf(f)
		if err != nil {
			return nil, err
		}
		if e.deployment == h.booted().id() {
			return osdriver.FollowImage(osdriver.Machine(osdriver.SplitKargs(e.options)), "/", dir)
		}
	}
	return nil, fmt.Errorf("the booted deployment has no entry")
}

// entry is one file of the boot loader.
type entry struct {
	version             int
	options, deployment string
}

func entryOf(file string) (e entry, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "version "); ok {
			e.version, err = strconv.Atoi(v)
		}
		if v, ok := strings.CutPrefix(l, "options "); ok {
			e.options = v
		}
	}
	for _, a := range strings.Fields(e.options) {
		if link, ok := strings.CutPrefix(a, "ostree="); ok {
			to, err := os.Readlink(link)
			if err != nil {
				return e, err
			}
			e.deployment = filepath.Base(to)
		}
	}
	return e, err
}
