package osimage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const dpkgStatus = `Package: openssl
Status: install ok installed
Version: 3.0.1-1
Description: x
 Version: 9

Package: vim
Status: deinstall ok config-files
Version: 9.1

Package: linux-image-6
Status: hold ok installed
Version: 6.1.2
`

const apkInstalled = "C:Q1x\nP:musl\nV:1.2.5-r0\nA:x86_64\nF:lib\nR:ld.so\n\nP:busybox\nV:1.36.1-r2\n"

// What each family of systems writes down.
func TestReadPackages(t *testing.T) {
	for name, c := range map[string]struct{ got, want string }{
		"rpm and the Job's list":  {ReadPackages("openssl 3.0.1-1.fc41\nkernel 6.2\nkernel 6.1\ngpg-pubkey x-1\n\nodd\n").Text(), "kernel 6.1\nkernel 6.2\nopenssl 3.0.1-1.fc41\n"},
		"dpkg: what is installed": {ReadDpkg(dpkgStatus).Text(), "linux-image-6 6.1.2\nopenssl 3.0.1-1\n"},
		"apk":                     {ReadApk(apkInstalled).Text(), "busybox 1.36.1-r2\nmusl 1.2.5-r0\n"},
		"nothing":                 {ReadPackages("").Text(), ""},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What differs, in words.
func TestPackageChanges(t *testing.T) {
	old := ReadPackages("openssl 3.0.1\nvim 9.1\nkernel 6.1\nkernel 6.2\nsame 1\n")
	now := ReadPackages("openssl 3.0.2\nchrony 4.5\nkernel 6.2\nkernel 6.3\nsame 1\n")
	got := now.Changes(old)
	want := []string{"chrony 4.5 is new", "kernel 6.1, 6.2 -> 6.2, 6.3", "openssl 3.0.1 -> 3.0.2", "vim 9.1 is gone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for changes, says := range map[int]string{0: "no package changed", 1: "1 package changed: chrony 4.5 is new", 2: "2 packages changed: chrony 4.5 is new, kernel 6.1, 6.2 -> 6.2, 6.3"} {
		if s := SummarizeChanges(got[:changes]); s != says {
			t.Errorf("%q, want %q", s, says)
		}
	}
	if s := SummarizeChanges(strings.Split("abcdefg", "")); s != "7 packages changed: a, b, c, d, e and 2 more" {
		t.Error(s)
	}
}

// What is written is read again as the same, and differs from itself in nothing.
func TestPackagesAreTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringMatching(`[a-c]{1,2} [0-9]\.[0-9]`)).Draw(t, "lines")
		p := ReadPackages(strings.Join(lines, "\n"))
		again := ReadPackages(p.Text())
		if diff := cmp.Diff(p, again); diff != "" || len(again.Changes(p)) != 0 {
			t.Fatal(diff, again.Changes(p))
		}
		if n := len(p.Changes(Packages{})); n != len(p) {
			t.Fatalf("%d of %d are new", n, len(p))
		}
	})
}
