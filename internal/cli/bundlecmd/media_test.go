package bundlecmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

// extImage makes an ext4 image of a directory.
func extImage(t *testing.T, dir, image string) {
	t.Helper()
	path, err := exec.LookPath("mke2fs")
	if err != nil {
		path = "/usr/sbin/mke2fs"
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("mke2fs is not installed: make deps")
	}
	if out, err := exec.Command(path, "-t", "ext4", "-q", "-F", "-L", "STICK", "-d", dir, image, "8M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
}

func TestBundlesInFileSystems(t *testing.T) {
	dir := site(t)
	if err := os.MkdirAll("files/updates", 0o755); err != nil {
		t.Fatal(err)
	}
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "files/updates/release", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	extImage(t, "files", "one.img")
	if out := must(t, "bundle", "inspect", "one.img"); !strings.Contains(out, digest) {
		t.Errorf("inspect: %s", out)
	}
	must(t, "bundle", "verify", "one.img", "--digest", digest)
	must(t, "bundle", "verify", "one.img#updates/release", "--pub", "keys/refit.pub")
	must(t, "bundle", "extract", "one.img", "kubelet", "--output", "extracted")
	if got, err := os.ReadFile("extracted"); err != nil || string(got) != "#!/bin/false" {
		t.Errorf("extract: %q %v", got, err)
	}
	must(t, "bundle", "write", "one.img", "copy")
	want, err := os.ReadFile("files/updates/release")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("copy"); err != nil || string(got) != string(want) {
		t.Errorf("write: %d bytes, want %d: %v", len(got), len(want), err)
	}
	for _, src := range []string{"one.img", "one.img#updates/release"} {
		if r := refit(t, "bundle", "write", src, filepath.Join(dir, "one.img")); r.code != console.ExitUsage || !strings.Contains(r.err, "same file or device") {
			t.Errorf("write onto itself: exit %d: %s", r.code, r.err)
		}
	}
	second := strings.TrimSpace(must(t, "bundle", "create", "--output", "files/second", "--unsigned", "--version", "2.0.0", "bundle:one.img"))
	extImage(t, "files", "two.img")
	if r := refit(t, "bundle", "verify", "two.img", "--digest", digest); r.code != console.ExitUsage || !strings.Contains(r.err, "two.img#second (") || !strings.Contains(r.err, second) {
		t.Errorf("several: exit %d: %s", r.code, r.err)
	}
	must(t, "bundle", "diff", "two.img#second", "one.img")
	checkList(t, "two.img", map[string]string{"two.img#second": second, "two.img#updates/release": digest})
	checkList(t, ".", map[string]string{"copy": digest, "one.img#updates/release": digest, "two.img#second": second, "two.img#updates/release": digest})
	if err := os.RemoveAll("files/updates"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove("files/second"); err != nil {
		t.Fatal(err)
	}
	extImage(t, "files", "none.img")
	for _, command := range []string{"inspect", "list"} {
		if r := refit(t, "bundle", command, "none.img"); r.code != console.ExitVerification || !strings.Contains(r.err, `no bundle in the file system ext4 "STICK"`) {
			t.Errorf("%s of none: exit %d: %s", command, r.code, r.err)
		}
	}
}

// checkList checks the files and digests that `refit bundle list` prints.
func checkList(t *testing.T, path string, want map[string]string) {
	t.Helper()
	var l listView
	if err := json.Unmarshal([]byte(must(t, "bundle", "list", path, "-o", "json")), &l); err != nil {
		t.Fatal(err)
	}
	for _, b := range l.Bundles {
		if want[b.File] != b.Digest || b.Error != "" {
			t.Errorf("list %s: %+v", path, b)
		}
	}
	if len(l.Bundles) != len(want) {
		t.Errorf("list %s: %d bundles, want %d", path, len(l.Bundles), len(want))
	}
}

// A device with data of others is erased only after a yes, or with --yes.
func TestWriteAsksBeforeItErases(t *testing.T) {
	dir := site(t)
	if os.Getuid() != 0 {
		t.Skip("needs root to make a loop device")
	}
	must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet")
	if err := os.Mkdir("photos", 0o755); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "stick.img")
	extImage(t, "photos", image)
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	defer func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", dev, err, out)
		}
	}()
	for range 2 {
		r := refit(t, "bundle", "write", "b", dev)
		if r.code != console.ExitUsage || !strings.Contains(r.err, "asks before it erases "+dev+" (8.0 MiB): ext4 \"STICK\", 1 entry, and there is no terminal: use --yes") {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
	}
	must(t, "bundle", "write", "--yes", "b", dev)
	must(t, "bundle", "write", "b", dev) // a bundle is written over without a question
}

// A file system other than a known one is refused, and so is a contact without one.
func TestWriteMakesReadableMedia(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	for _, kind := range []string{"fat32", "exfat"} {
		if out := must(t, "bundle", "write", "--filesystem", kind, "--contact", "Site desk", "b", kind+".img"); strings.TrimSpace(out) != digest {
			t.Errorf("%s: %s", kind, out)
		}
		must(t, "bundle", "verify", kind+".img", "--digest", digest)
	}
	for _, args := range [][]string{{"--filesystem", "ntfs"}, {"--filesystem", "exFAT"}, {"--contact", "Site desk"}} {
		if r := refit(t, append([]string{"bundle", "write", "b", "other.img"}, args...)...); r.code != console.ExitUsage || !strings.Contains(r.err, "fat32 or exfat") {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
	if _, err := os.Stat("other.img"); err == nil {
		t.Error("a refused command wrote something")
	}
}
