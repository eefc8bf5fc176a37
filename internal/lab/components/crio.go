package components

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// crioModule is CRI-O's module; it has the C program pinns too.
const crioModule = "github.com/cri-o/cri-o"

// crioPackages are the Debian packages to build and run CRI-O, in addition to
// [DebianPackages].
var crioPackages = []Package{
	{"conmon", "/usr/bin/conmon"},
	{"skopeo", "/usr/bin/skopeo"},
	{"gcc", "/usr/bin/gcc"},
	{"libc6-dev", "/usr/include/stdlib.h"},
	{"pkg-config", "/usr/bin/pkg-config"},
	{"libseccomp-dev", "/usr/include/seccomp.h"},
}

func crioSet() set {
	return set{name: "crio-" + crioVersion, module: "crio", ldflags: "-s -w", cgo: true,
		// OpenPGP in Go, and none of the storage that needs other libraries.
		tags: "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper containers_image_ostree_stub seccomp",
		binaries: []binary{
			{name: "crio", pkg: crioModule + "/cmd/crio"},
			{name: "pinns", pkg: crioModule, c: []string{"pinns/src/pinns.c", "pinns/src/sysctl.c"}},
		}}
}

// wrapperSet is the lab's own runc, see wrapper/runc.
func wrapperSet() set {
	return set{name: "wrapper", sources: "wrapper", ldflags: "-s -w", binaries: []binary{{name: "runc", pkg: "./runc"}}}
}

// CRIO is CRI-O for nodes, built.
type CRIO struct {
	Dir     string // crio, pinns
	Wrapper string // the runc that it is to start
}

// ForCRIO builds, or finds built, CRI-O with what belongs to it.
func ForCRIO(ctx context.Context, progress Progress) (*CRIO, error) {
	if names := missing(crioPackages); len(names) > 0 {
		return nil, fmt.Errorf("missing Debian packages for CRI-O: %[1]s; install them: apt-get install -y --no-install-recommends %[1]s", strings.Join(names, " "))
	}
	dir, err := build(ctx, crioSet(), progress)
	if err != nil {
		return nil, err
	}
	wrapper, err := build(ctx, wrapperSet(), progress)
	return &CRIO{Dir: dir, Wrapper: filepath.Join(wrapper, "runc")}, err
}

// compileC is the command that compiles C files of a module that work requires.
func compileC(ctx context.Context, work string, b binary, out string) (*exec.Cmd, error) {
	dir, err := moduleDir(ctx, work, b.pkg)
	if err != nil {
		return nil, err
	}
	argv := []string{"-O2", "-o", out}
	for _, f := range b.c {
		argv = append(argv, filepath.Join(dir, f))
	}
	return exec.CommandContext(ctx, "gcc", argv...), nil
}
