package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/oci"
)

// Programs that this needs, by their paths: a node that starts has no search path.
const (
	ostree = "/usr/bin/ostree"
	chattr = "/usr/bin/chattr"
)

// StockBranch is the branch of what a disk was installed with.
const StockBranch = "stock"

// OSTreeDisk is a sysroot.
type OSTreeDisk struct {
	// Dir has ostree/ and boot/. OSName is the stateroot.
	Dir, OSName string
}

// PreflightOSTree says what is missing on this machine.
func PreflightOSTree() error {
	for _, p := range []string{ostree, chattr} {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%w: install the Debian packages ostree and e2fsprogs (make deps does)", err)
		}
	}
	return nil
}

// Install deploys the image of a layout with the machine's own kernel arguments.
// What an installation that was cut off has left is taken away first.
func (d OSTreeDisk) Install(ctx context.Context, layout string, kargs []string) error {
	if err := d.Remove(); err != nil {
		return err
	}
	if err := os.Mkdir(d.Dir, 0o755); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"admin", "init-fs", "--modern", d.Dir},
		{"admin", "os-init", d.OSName, "--sysroot=" + d.Dir},
		{"config", "--repo=" + d.repo(), "set", "sysroot.bootloader", "none"},
	} {
		if err := runProgram(exec.CommandContext(ctx, ostree, argv...)); err != nil {
			return err
		}
	}
	if err := d.commit(ctx, layout); err != nil {
		return err
	}
	argv := []string{"admin", "deploy", "--sysroot=" + d.Dir, "--os=" + d.OSName}
	for _, a := range kargs {
		argv = append(argv, "--karg-append="+a)
	}
	return runProgram(exec.CommandContext(ctx, ostree, append(argv, StockBranch)...))
}

func (d OSTreeDisk) repo() string { return filepath.Join(d.Dir, "ostree/repo") }

// Stateroot is where the deployments and /var are.
func (d OSTreeDisk) Stateroot() string { return filepath.Join(d.Dir, "ostree/deploy", d.OSName) }

// commit imports the image. The commit carries its digest, and the words by which a
// host with bootc knows it.
func (d OSTreeDisk) commit(ctx context.Context, layout string) error {
	root, err := oci.OpenSingle(layout)
	if err != nil {
		return err
	}
	tree, err := flatten.Tree(ctx, root, "linux/"+runtime.GOARCH, flatten.Whole)
	if err != nil {
		return err
	}
	defer tree.Close()
	digest := root.Desc.Digest.String()
	c := exec.CommandContext(ctx, ostree, "commit", "--repo="+d.repo(), "--branch="+StockBranch, "--bootable", "--tree=tar=-", "--tar-autocreate-parents",
		"--add-metadata-string=ostree.manifest-digest="+digest, "--add-metadata-string=lookalike.image=registry stock.example/os@"+digest)
	c.Stdin = tree
	return runProgram(c)
}

// Remove takes the disk away. Deployments are folders that cannot be changed.
func (d OSTreeDisk) Remove() error {
	deployments, err := filepath.Glob(d.Stateroot() + "/deploy/*")
	if err != nil {
		return err
	}
	for _, one := range deployments {
		_ = exec.Command(chattr, "-i", one).Run() // other files never were immutable
	}
	return os.RemoveAll(d.Dir)
}

func runProgram(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, out)
	}
	return nil
}

// BootEntry is one entry of the boot loader.
type BootEntry struct {
	Version int
	// Options are the kernel's arguments.
	Options string
	// Deployment is its folder.
	Deployment string
}

// Entries are those of the boot loader, the one that boots first.
func (d OSTreeDisk) Entries() ([]BootEntry, error) {
	files, err := filepath.Glob(filepath.Join(d.Dir, "boot/loader/entries/*.conf"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("the machine cannot boot: its boot loader has no entries")
	}
	var out []BootEntry
	for _, f := range files {
		e, err := d.entry(f)
		if err != nil {
			return nil, fmt.Errorf("the machine cannot boot %s: %w", filepath.Base(f), err)
		}
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Version > out[j].Version })
	return out, nil
}

func (d OSTreeDisk) entry(file string) (e BootEntry, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "version "); ok {
			e.Version, err = strconv.Atoi(strings.TrimSpace(v))
		}
		if v, ok := strings.CutPrefix(l, "options "); ok {
			e.Options = v
		}
		if err != nil {
			return e, err
		}
	}
	for _, a := range strings.Fields(e.Options) {
		if link, ok := strings.CutPrefix(a, "ostree="); ok {
			e.Deployment, err = filepath.EvalSymlinks(filepath.Join(d.Dir, link))
			return e, err
		}
	}
	return e, fmt.Errorf("it names no deployment: %w", fs.ErrNotExist)
}
