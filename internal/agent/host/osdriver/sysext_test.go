package osdriver

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// open gives a tree as an image would.
func open(headers ...tar.Header) OpenExtension {
	return func(context.Context, Source) (io.ReadCloser, error) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			text := ""
			if h.Typeflag == tar.TypeReg {
				text, h.Linkname = h.Linkname, ""
				h.Size = int64(len(text))
			}
			h.Uid, h.Gid = os.Getuid(), os.Getgid()
			if err := w.WriteHeader(&h); err != nil {
				return nil, err
			}
			if _, err := io.WriteString(w, text); err != nil {
				return nil, err
			}
		}
		return io.NopCloser(&b), w.Close()
	}
}

func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: text, Mode: 0o755}
}

var anyOS = file("usr/lib/extension-release.d/extension-release.tool", "ID=_any\n")

func target() Target {
	return Target{Image: "q/tool@sha256:x", Digest: "sha256:x"}
}

// It ends with 0 and merged nothing: that is not called done, and what is staged stays
// staged (2.15).
func TestNothingMerged(t *testing.T) {
	s := &Script{Answers: map[string]Answer{"systemd-sysext status": {Out: `[{"hierarchy":"/usr","extensions":"none"}]`}, "systemd-sysext refresh": {}, "systemctl": {}}}
	d := NewSysext(s.Host(t, map[string]string{"usr/lib/os-release": "ID=x\n"}), open(anyOS))
	if err := d.Stage(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Activate(t.Context(), Target{}); err == nil || !strings.Contains(err.Error(), "did not merge") {
		t.Fatal(err)
	}
	st, err := d.Status(t.Context())
	if err != nil || st.NextIsBooted() || !target().IsImageOf(st.Staged) {
		t.Fatalf("%+v %v", st, err)
	}
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		of, is string
		fits   bool
	}{
		"any OS":                              {"ID=_any", "ID=debian\nVERSION_ID=12", true},
		"this OS and version":                 {"ID=debian\nVERSION_ID=\"12\"", "ID=debian\nVERSION_ID='12'", true},
		"another version":                     {"ID=debian\nVERSION_ID=11", "ID=debian\nVERSION_ID=12", false},
		"another OS":                          {"ID=fedora\nVERSION_ID=12", "ID=debian\nVERSION_ID=12", false},
		"the level, of any version":           {"ID=debian\nSYSEXT_LEVEL=2\nVERSION_ID=11", "ID=debian\nVERSION_ID=12\nSYSEXT_LEVEL=2", true},
		"a level that the host does not have": {"ID=debian\nSYSEXT_LEVEL=2", "ID=debian\nVERSION_ID=12", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewSysext((&Script{}).Host(t, map[string]string{"usr/lib/os-release": c.is}), open(file("usr/lib/extension-release.d/extension-release.tool", c.of)))
			if err := d.Stage(t.Context(), target()); (err == nil) != c.fits {
				t.Fatal(err)
			}
		})
	}
}

// An image that is no extension, or that writes outside of its directory, leaves no files.
func TestRefused(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"no release file":   {file("usr/a", "x")},
		"two release files": {anyOS, file("usr/lib/extension-release.d/extension-release.other", "ID=_any")},
		"a name outside":    {anyOS, file("../../outside", "x")},
		"behind a link":     {anyOS, {Typeflag: tar.TypeSymlink, Name: "usr/out", Linkname: "/tmp"}, file("usr/out/outside", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			h := (&Script{}).Host(t, map[string]string{"usr/lib/os-release": "ID=x"})
			d := NewSysext(h, open(headers...))
			if err := d.Stage(t.Context(), target()); err == nil {
				t.Fatal("it is taken")
			}
			if _, err := os.Stat(d.tree("sha256:x")); err == nil {
				t.Fatal("a version is there")
			}
			if found, _ := filepath.Glob(filepath.Join(h.Root, "var/lib/refit", "*outside*")); len(found) > 0 {
				t.Fatal(found)
			}
		})
	}
}

// Kernel arguments are none of what can be laid over /usr.
func TestNoArguments(t *testing.T) {
	target := target()
	target.Kargs = []string{"a"}
	if err := NewSysext((&Script{}).Host(t, nil), open(anyOS)).Stage(t.Context(), target); err == nil {
		t.Fatal("they are taken")
	}
}

// On a host with SELinux the files of an extension have the labels of where they are laid over, not
// those of the directory in which they are.
func TestExtensionLabels(t *testing.T) {
	const contexts = "etc/selinux/targeted/contexts/files/file_contexts"
	h := (&Script{}).Host(t, map[string]string{"usr/lib/os-release": "ID=x", "sys/fs/selinux/enforce": "1", contexts: "/var(/.*)? u:r:var_t\n/usr(/.*)? u:r:usr_t\n/usr/bin(/.*)? u:r:bin_t\n/usr/bin/.* -l u:r:link_t\n"})
	if err := unix.Setxattr(filepath.Join(h.Root, "usr"), "security.selinux", []byte("u:r:x\x00"), 0); err != nil {
		t.Skip("labels cannot be set here: ", err)
	}
	d := NewSysext(h, open(anyOS, file("usr/bin/tool", "x"), tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/link", Linkname: "/etc/passwd"}))
	if err := d.Stage(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"usr": "usr_t", "usr/bin": "bin_t", "usr/bin/tool": "bin_t", "usr/bin/link": "link_t", "usr/lib/extension-release.d/extension-release.tool": "usr_t", stamps + "/tool": "usr_t"} {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(filepath.Join(d.tree("sha256:x"), name), "security.selinux", b)
		if err != nil || string(b[:n]) != "u:r:"+want+"\x00" {
			t.Errorf("%s: %q %v", name, b[:max(0, n)], err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.Root, contexts), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := target()
	other.Digest = "sha256:y"
	if err := d.Stage(t.Context(), other); err == nil || !strings.Contains(err.Error(), "SELinux") {
		t.Fatal("an extension without labels is taken:", err)
	}
}
