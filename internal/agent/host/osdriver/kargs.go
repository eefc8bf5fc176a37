package osdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
)

// KargsDir is where an image says which kernel arguments it brings, below its root.
const KargsDir = "usr/lib/bootc/kargs.d"

// Running are the kernel's arguments as the boot loader gave them, without those
// that name the deployment.
func (h Host) Running() ([]string, error) {
	b, err := os.ReadFile(filepath.Join(h.Root, "/proc/cmdline"))
	if err != nil {
		return nil, fmt.Errorf("the kernel's arguments: %w", err)
	}
	return Machine(SplitKargs(string(b))), nil
}

// Machine leaves out the arguments that a boot loader entry has of its own.
func Machine(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "ostree=") || strings.HasPrefix(a, "init=/ostree/") || strings.HasPrefix(a, "BOOT_IMAGE=") || strings.HasPrefix(a, "initrd=")
	})
}

// SplitKargs splits a command line at blanks that are not quoted, as the kernel
// does.
func SplitKargs(line string) []string {
	var out []string
	var cur strings.Builder
	quoted := false
	for _, r := range strings.TrimSpace(line) {
		switch {
		case r == '"':
			quoted = !quoted
			cur.WriteRune(r)
		case !quoted && (r == ' ' || r == '\t' || r == '\n'):
			if cur.Len() > 0 {
				out = append(out, cur.String())
				cur.Reset()
			}
		default:
			cur.WriteRune(r)
		}
	}
	if cur.Len() > 0 {
		out = append(out, cur.String())
	}
	return out
}

// Change returns the arguments of the next deployment from those of the previous one. It removes
// exactly the dropped ones and appends the wanted ones that are missing. All others stay, in their
// order.
func Change(have, drop, want []string) []string {
	out := slices.DeleteFunc(slices.Clone(have), func(a string) bool { return slices.Contains(drop, a) && !slices.Contains(want, a) })
	for _, a := range want {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// DiffKargs returns which wanted arguments are missing from the running ones, and which dropped
// ones are left.
func (t Target) DiffKargs(running []string) (missing, left []string) {
	for _, a := range t.Kargs {
		if !slices.Contains(running, a) {
			missing = append(missing, a)
		}
	}
	for _, a := range t.Drop {
		if slices.Contains(running, a) && !slices.Contains(t.Kargs, a) {
			left = append(left, a)
		}
	}
	return missing, left
}

// ImageKargs are the arguments that an image brings. root is where its files are;
// ok is false if it has no such folder: then those of the image before stay.
func ImageKargs(root string) (args []string, ok bool, err error) {
	dir := filepath.Join(root, KargsDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("kernel arguments of the image: %w", err)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".toml" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, true, fmt.Errorf("kernel arguments of the image: %w", err)
		}
		more, err := ParseKargs(b, arch())
		if err != nil {
			return nil, true, fmt.Errorf("kernel arguments of the image, %s: %w", filepath.Join("/", KargsDir, e.Name()), err)
		}
		args = append(args, more...)
	}
	return args, true, nil
}

// arch is this machine in the words of such files.
func arch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	case "ppc64le":
		return "powerpc64"
	}
	return runtime.GOARCH
}

// FollowImage makes the arguments of the next deployment when the image changes:
// what the old image brought and the new one does not goes, what is new is added.
// An image without the folder takes nothing back.
func FollowImage(have []string, oldRoot, newRoot string) ([]string, error) {
	was, _, err := ImageKargs(oldRoot)
	if err != nil {
		was = nil // the image that runs is as it is: what it added stays
	}
	is, ok, err := ImageKargs(newRoot)
	if err != nil {
		return nil, err
	}
	if !ok {
		return Change(have, nil, was), nil
	}
	return Change(have, was, is), nil
}
