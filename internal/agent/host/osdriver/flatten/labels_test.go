package flatten

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	switchedOn = "SELINUX=enforcing\nSELINUXTYPE=mine\n"
	contexts   = "/.* u:r:default_t\n/ -d u:r:root_t\n/etc(/.*)? u:r:etc_t\n/etc/hosts -- u:r:hosts_t\n/usr(/.*)? u:r:usr_t\n/usr/bin/.* -- u:r:bin_t\n/usr/bin/.* -l u:r:link_t\n/mnt -d u:r:mnt_t\n"
)

func labelled(config, contexts string) []tar.Header {
	return []tar.Header{f("etc/selinux/config", config), f("etc/selinux/mine/contexts/files/file_contexts", contexts), f("etc/hosts", "x"), d("usr"), f("usr/bin/tool", "x"), hard("usr/bin/same", "usr/bin/tool"),
		{Typeflag: tar.TypeSymlink, Name: "usr/bin/link", Linkname: "tool"}, f("usr/lib/modules/1/vmlinuz", "x")}
}

func labelsOf(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if v := h.PAXRecords[labelRecord]; v != "" {
			out[h.Name] = v
		}
	}
}

// Files have the labels of the image's own policy, by their names in the running OS; folders that no
// layer has get theirs too, and so has the root.
func TestLabels(t *testing.T) {
	// A higher layer replaces the policy, and what it says counts.
	root := image(t, labelled(switchedOn, "/.* u:r:old_t\n"), []tar.Header{f("etc/selinux/mine/contexts/files/file_contexts", contexts)})
	tree, err := Tree(t.Context(), root, "linux/amd64", Enforced)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	got := labelsOf(t, tree)
	want := map[string]string{"./": "root_t", "usr/": "usr_t", "usr/etc/": "etc_t", "usr/etc/hosts": "hosts_t", "usr/etc/selinux/": "etc_t", "usr/etc/selinux/config": "etc_t", "usr/etc/selinux/mine/": "etc_t",
		"usr/etc/selinux/mine/contexts/": "etc_t", "usr/etc/selinux/mine/contexts/files/": "etc_t", "usr/etc/selinux/mine/contexts/files/file_contexts": "etc_t", "usr/bin/": "usr_t", "usr/bin/tool": "bin_t", "usr/bin/link": "link_t",
		"usr/lib/": "usr_t", "usr/lib/modules/": "usr_t", "usr/lib/modules/1/": "usr_t", "usr/lib/modules/1/vmlinuz": "usr_t", "proc/": "mnt_t"}
	for _, n := range []string{"dev/", "run/", "sys/", "tmp/", "var/", "sysroot/", "boot/", "ostree"} {
		want[n] = "default_t"
	}
	for n, l := range want {
		want[n] = "u:r:" + l + "\x00"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// An image without a policy, or with one that is switched off, has no labels; a host that enforces
// one refuses it.
func TestWithoutPolicy(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"none":            {f("usr/lib/modules/1/vmlinuz", "x")},
		"switched off":    labelled("SELINUX=disabled\nSELINUXTYPE=mine\n", contexts),
		"no contexts":     {f("etc/selinux/config", switchedOn), f("usr/lib/modules/1/vmlinuz", "x")},
		"of another name": labelled("SELINUX=enforcing\nSELINUXTYPE=targeted\n", contexts),
	} {
		root := image(t, headers)
		if _, err := Tree(t.Context(), root, "linux/amd64", Enforced); !errors.Is(err, ErrNoPolicy) {
			t.Errorf("%s, on a host that enforces: %v", name, err)
		}
		if name == "no contexts" || name == "of another name" {
			continue
		}
		tree, err := Tree(t.Context(), root, "linux/amd64", Whole)
		if err != nil {
			t.Fatal(name, err)
		}
		if got := labelsOf(t, tree); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		tree.Close()
	}
	if _, err := Tree(t.Context(), image(t, labelled(switchedOn, "torn\n")), "linux/amd64", Whole); err == nil {
		t.Error("a policy that cannot be read is taken")
	}
	tree, err := Tree(t.Context(), image(t, labelled(switchedOn, "torn\n")), "linux/amd64", Extension)
	if err != nil {
		t.Fatal("an extension has no policy of its own:", err)
	}
	defer tree.Close()
	if got := labelsOf(t, tree); len(got) != 0 {
		t.Error(got)
	}
}
