package simhost

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/oci"
)

// The labels in a commit of the libostree driver are those that libostree gives the same tree by
// `ostree commit --selinux-policy`: those of the image's own policy. /etc has them by its name in the
// running OS; libostree labels it once more when it deploys.
func TestCommitLabels(t *testing.T) {
	Needs(t)
	const dir = "etc/selinux/sim/"
	contexts := "/.* u:r:default_t\n/ -d u:r:root_t\n/boot(/.*)? u:r:boot_t\n/dev(/.*)? u:r:device_t\n/mnt -d u:r:mnt_t\n/etc(/.*)? u:r:etc_t\n/etc/default -- u:r:own_t\n/usr(/.*)? u:r:usr_t\n/usr/(.*/)?bin(/.*)? u:r:bin_t\n/bin -l u:r:bin_t\n/usr/bin/tool.* -- u:r:tool_t\n/usr/lib/modules(/.*)? u:r:modules_t\n/var(/.*)? u:r:var_t\n/tmp <<none>>\n"
	img := Image(t, Base("1").With(Files{"usr/bin/tool": "x", "usr/bin/other": "x", "usr/bin/link": "-> tool",
		"etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=sim\n", dir + "contexts/files/file_contexts": contexts, dir + "policy/policy.33": "the kernel reads it, not we"}))
	layout := filepath.Join(t.TempDir(), "image")
	Layout(t, img, layout)
	root, err := oci.OpenSingle(layout)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := flatten.Tree(t.Context(), root, Platform, flatten.Enforced)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	repo, policy := filepath.Join(t.TempDir(), "repo"), filepath.Join(t.TempDir(), "policy")
	ostree := func(args ...string) string {
		t.Helper()
		c := exec.Command("ostree", append([]string{"--repo=" + repo}, args...)...)
		if args[len(args)-1] == "--tree=tar=-" {
			c.Stdin = tree
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("ostree %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if err := os.Mkdir(policy, 0o755); err != nil {
		t.Fatal(err)
	}
	ostree("init", "--mode=bare")
	ostree("commit", "--branch=ours", "--bootable", "--tar-autocreate-parents", "--tree=tar=-")
	ostree("checkout", "--subpath=/usr/etc", "ours", filepath.Join(policy, "etc"))
	ostree("commit", "--branch=theirs", "--tree=ref=ours", "--selinux-policy="+policy)
	listing := func(branch string) map[string]string {
		out := map[string]string{}
		for _, l := range strings.Split(ostree("ls", "-R", "-X", branch), "\n") {
			m := xattrLine.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			if label := labelIn.FindStringSubmatch(m[1]); label != nil && !strings.HasPrefix(m[2], "/usr/etc") {
				out[m[2]] = label[1]
			}
		}
		return out
	}
	ours, theirs := listing("ours"), listing("theirs")
	if ours["/usr/bin/tool"] != "u:r:tool_t" || ours["/"] != "u:r:root_t" || ours["/proc"] != "u:r:mnt_t" || ours["/tmp"] != "" {
		t.Fatal(ours)
	}
	for path, label := range theirs {
		if ours[path] != label {
			t.Errorf("%s: %q, libostree says %q", path, ours[path], label)
		}
		delete(ours, path)
	}
	if len(ours) > 0 || len(theirs) < 15 {
		t.Errorf("libostree has no label for %v, and labels for %d files", ours, len(theirs))
	}
	if _, err := os.Stat(filepath.Join(policy, "etc/selinux/config")); err != nil {
		t.Fatal(err)
	}
}

// xattrLine is a file with its extended attributes, as `ostree ls -X` prints them.
var (
	xattrLine = regexp.MustCompile(`(\{.*\}|\[.*\]) (/\S*)`)
	labelIn   = regexp.MustCompile(`b'(u:r:\w+)'`)
)
