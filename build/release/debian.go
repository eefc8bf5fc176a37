package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// debianPackage packs the agent for Debian and its relatives. The package only brings the
// program: whether and how it runs on a host is decided by `refit-agent install`.
func (r *release) debianPackage(p platform) error {
	if p.os != "linux" {
		return nil
	}
	root, err := os.MkdirTemp(r.output, ".deb-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	control := fmt.Sprintf(`Package: refit-agent
Version: %s
Architecture: %s
Maintainer: The refit authors <refit@refit.dev>
Section: admin
Priority: optional
Description: host service of refit, which updates Kubernetes nodes in place
 The agent loads, pins and serves the images of a signed bundle, and runs the
 steps of an update. After the installation of this package, run
 refit-agent install.
`, r.version, p.arch)
	for _, f := range []struct {
		name, from, text string
		mode             os.FileMode
	}{
		{"DEBIAN/control", "", control, 0o644},
		{"usr/bin/refit-agent", filepath.Join(r.binaries, p.dir(), "refit-agent"), "", 0o755},
		{"usr/share/doc/refit-agent/copyright", "LICENSE", "", 0o644},
	} {
		text := []byte(f.text)
		if f.from != "" {
			if text, err = os.ReadFile(f.from); err != nil {
				return err
			}
		}
		file := filepath.Join(root, f.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, f.mode); err != nil {
			return err
		}
	}
	// dpkg-deb sets the dates of all members to SOURCE_DATE_EPOCH: https://man7.org/linux/man-pages/man1/dpkg-deb.1.html
	out := filepath.Join(r.output, fmt.Sprintf("refit-agent_%s_%s.deb", r.version, p.arch))
	cmd := exec.Command("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, out)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix()))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, text)
	}
	return nil
}
