package nodefiles

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that a configuration brings, and the directories that it needs, have the labels of the
// host's policy. Without that they get the label of the directory above, which is wrong for some.
func TestLabels(t *testing.T) {
	f := FS{Root: t.TempDir()}
	for name, text := range map[string]string{"sys/fs/selinux/enforce": "1\n", "etc/selinux/config": "SELINUXTYPE=mine\n",
		"etc/selinux/mine/contexts/files/file_contexts": "/etc(/.*)? u:r:etc_t\n/etc/cni(/.*)? u:r:cni_t\n/etc/cni/net.d/[^/]* -- u:r:net_t\n/usr/local/bin(/.*)? u:r:bin_t\n", "etc/selinux/mine/contexts/files/file_contexts.subs_dist": "/var/usrlocal /usr/local\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(f.Root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(filepath.Join(f.Root, "etc"), "security.selinux", []byte("u:r:old_t\x00"), 0); err != nil {
		t.Skip("labels cannot be set here: ", err)
	}
	if err := os.MkdirAll(filepath.Join(f.Root, "var/usrlocal"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.Root, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../var/usrlocal", filepath.Join(f.Root, "usr/local")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/etc/cni/net.d/10.conf", "/usr/local/bin/tool"} {
		if err := f.Write(path, []byte("x"), 0o755, os.Getuid(), os.Getgid()); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"etc": "u:r:old_t", "etc/cni": "u:r:cni_t", "etc/cni/net.d": "u:r:cni_t", "etc/cni/net.d/10.conf": "u:r:net_t", "var/usrlocal/bin": "u:r:bin_t", "var/usrlocal/bin/tool": "u:r:bin_t"} {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(filepath.Join(f.Root, path), "security.selinux", b)
		if err != nil || string(b[:n]) != want+"\x00" {
			t.Errorf("%s: %q %v", path, b[:max(0, n)], err)
		}
	}
}
