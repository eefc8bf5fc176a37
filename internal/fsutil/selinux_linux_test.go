package fsutil_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/fsutil"
)

// policy is a small one in the form of file_contexts(5).
var policy = map[string]string{
	"file_contexts": `# comment
/.*	u:r:default_t
/	-d	u:r:root_t
/etc(/.*)?	u:r:etc_t
/usr(/.*)?	u:r:usr_t
/usr/(.*/)?bin(/.*)?	u:r:bin_t
/usr/bin/kubelet.*	--	u:r:kubelet_t
/usr/lib/systemd/system(/.*)?	u:r:unit_t
/etc/resolv\.conf.*	--	u:r:net_t
/etc/shadow[-.]*	--	u:r:shadow_t
/etc/passwd	--	u:r:exact_t
/etc/pass.*	u:r:pattern_t
/dev/[^/]*	-c	u:r:device_t
/run/.*	<<none>>
/tmp/a|/tmp/b	u:r:either_t
`,
	"file_contexts.local":     "/usr/local/own(/.*)?	u:r:own_t\n",
	"file_contexts.subs_dist": "/lib /usr/lib\n/var/usrlocal /usr/local\n/run /var/run\n/run/lock /var/lock\n",
	"file_contexts.subs":      "/srv/programs /usr/bin\n# no line\n",
}

func readFrom(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		return []byte(text), nil
	}
}

func TestContexts(t *testing.T) {
	c, err := fsutil.ReadContexts(readFrom(policy))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		path string
		kind fs.FileMode
		want string
	}{
		{"/", fs.ModeDir, "root_t"}, {"/etc", fs.ModeDir, "etc_t"}, {"/etc/x", 0, "etc_t"}, {"/etcetera", 0, "default_t"},
		{"/usr/bin/kubelet", 0, "kubelet_t"}, {"/usr/bin/kubelet", fs.ModeDir, "bin_t"}, {"/usr/bin/kubelet", fs.ModeSymlink, "bin_t"}, {"usr/bin/kubelet", 0, "kubelet_t"},
		{"/etc/resolv.conf", 0, "net_t"}, {"/etc/resolvXconf", 0, "etc_t"}, {"/etc/shadow-", 0, "shadow_t"},
		{"/etc/passwd", 0, "exact_t"}, {"/etc/passwd", fs.ModeDir, "pattern_t"}, {"/etc/passwd-", 0, "pattern_t"},
		{"/dev/null", fs.ModeDevice | fs.ModeCharDevice, "device_t"}, {"/dev/sda", fs.ModeDevice, "default_t"},
		{"/lib/systemd/system/a.service", 0, "unit_t"}, {"/libexec", 0, "default_t"}, {"/var/usrlocal/bin/x", 0, "bin_t"}, {"/var/usrlocal/own", fs.ModeDir, "own_t"},
		{"/srv/programs/kubelet", 0, "kubelet_t"}, {"/run/lock/x", 0, "default_t"}, {"/tmp/a", 0, "either_t"}, {"/tmp/b", 0, "either_t"}, {"/tmp/ab", 0, "default_t"},
		{"/etc/a\nb", 0, "etc_t"},
	} {
		got, err := c.Label(x.path, x.kind)
		if want := "u:r:" + x.want; err != nil || got != want {
			t.Errorf("%q %v: %q, not %q (%v)", x.path, x.kind, got, want, err)
		}
	}
	for name, text := range map[string]string{"one word": "/etc\n", "four words": "/etc -- u:r:x y\n", "another kind of file": "/etc -x u:r:x\n"} {
		if _, err := fsutil.ReadContexts(readFrom(map[string]string{"file_contexts": text})); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	if _, err := fsutil.ReadContexts(readFrom(nil)); err == nil {
		t.Error("a policy without file_contexts is read")
	}
	strange, err := fsutil.ReadContexts(readFrom(map[string]string{"file_contexts": "/etc/(?!x).*	u:r:x\n/usr u:r:usr_t\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strange.Label("/etc/y", 0); err == nil {
		t.Error("a pattern that cannot be read gives a label")
	}
	if got, err := strange.Label("/usr", fs.ModeDir); err != nil || got != "u:r:usr_t" {
		t.Error("it spoils labels that do not need it", got, err)
	}
}

func TestNoLabel(t *testing.T) {
	c, err := fsutil.ReadContexts(readFrom(map[string]string{"file_contexts": "/.* u:r:x\n/run/.* <<none>>\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Label("/run/x", 0); got != "" || err != nil {
		t.Fatal(got, err)
	}
}

func TestPolicyName(t *testing.T) {
	for text, want := range map[string]string{"SELINUX=enforcing\n# SELINUXTYPE=old\nSELINUXTYPE=mls \n": "mls", "SELINUX=enforcing\n": "targeted", "SELINUXTYPE=../../x": "x"} {
		if got := fsutil.PolicyName([]byte(text), nil); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := fsutil.PolicyName(nil, fs.ErrNotExist); got != "targeted" {
		t.Error(got)
	}
}

// needsPackage skips a test for want of a package. It fails where make deps can install one, so that
// the test is not skipped for ever.
func needsPackage(t *testing.T, what string) {
	t.Helper()
	if !testing.Short() && (os.Geteuid() == 0 || os.Getenv("CI") != "") {
		t.Fatal(what + ": make deps installs it")
	}
	t.Skip(what + ": make deps installs it, as root")
}

// The labels of a real policy are those of matchpathcon, for paths that its own patterns suggest and
// for those that refit writes. Debian has both in selinux-policy-default and selinux-utils;
// REFIT_SELINUX_CONTEXTS names a file_contexts elsewhere.
func TestRealPolicy(t *testing.T) {
	program, err := exec.LookPath("matchpathcon")
	if err != nil {
		needsPackage(t, "no matchpathcon (Debian: selinux-utils)")
	}
	file := os.Getenv("REFIT_SELINUX_CONTEXTS")
	for _, name := range []string{"targeted", "default"} {
		at := filepath.Join("/etc/selinux", name, "contexts/files/file_contexts")
		if _, err := os.Stat(at); file == "" && err == nil {
			file = at
		}
	}
	if file == "" {
		needsPackage(t, "no policy (Debian: selinux-policy-default)")
	}
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(file), name)) }
	c, err := fsutil.ReadContexts(read)
	if err != nil {
		t.Fatal(err)
	}
	text, err := read("file_contexts")
	if err != nil {
		t.Fatal(err)
	}
	paths := suggest(string(text))
	if !testing.Verbose() { // all of them take a minute
		paths = every(paths, len(paths)/500+1)
	}
	written := pathsInSource(t)
	for _, known := range []string{"/etc/containerd/config.toml", "/etc/refit/agent.yaml", "/usr/local/bin/refit-agent", "/var/lib/refit/os.json"} {
		if !slices.Contains(written, known) {
			t.Errorf("%s is not among the %d paths in the source", known, len(written))
		}
	}
	paths = append(paths, written...)
	for kind, mode := range map[string]fs.FileMode{"file": 0, "dir": fs.ModeDir, "lnk_file": fs.ModeSymlink} {
		out, err := exec.Command(program, append([]string{"-n", "-f", file, "-m", kind}, paths...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) != len(paths) {
			t.Fatalf("%d answers for %d paths", len(lines), len(paths))
		}
		wrong, start := 0, time.Now()
		for i, path := range paths {
			got, err := c.Label(path, mode)
			if got == "" {
				got = "<<none>>"
			}
			if err != nil || got != lines[i] {
				if wrong++; wrong < 20 {
					t.Errorf("%s (%s): %s, and matchpathcon says %s (%v)", path, kind, got, lines[i], err)
				}
			}
		}
		t.Logf("%d paths as %s: %d differ, in %s", len(paths), kind, wrong, time.Since(start))
	}
}

// pathsInSource are the paths of hosts that programs and tests name: every file that refit writes, and
// that its tests write, is in a directory that one of them names.
func pathsInSource(t *testing.T) []string {
	t.Helper()
	quoted := regexp.MustCompile("[\"`]/?((?:bin|boot|etc|home|lib|opt|root|run|sbin|srv|usr|var)/[A-Za-z0-9_./@:+-]+)[\"`=]")
	seen := map[string]bool{}
	for _, dir := range []string{"cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(name string, e fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" {
				return err
			}
			text, err := os.ReadFile(name)
			for _, m := range quoted.FindAllSubmatch(text, -1) {
				if p := "/" + string(m[1]); filepath.Clean(p) == p {
					seen[p] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// every nth path.
func every(paths []string, n int) (out []string) {
	for i := 0; i < len(paths); i += n {
		out = append(out, paths[i])
	}
	return out
}

// suggest makes paths of the patterns of a policy, and adds those that refit writes.
func suggest(contexts string) []string {
	paths := []string{"/", "/etc/systemd/system/refit-agent.service", "/etc/systemd/system/kubelet.service.d/20-refit-preflight.conf", "/usr/local/bin/refit-agent", "/var/lib/refit/os.json",
		"/var/lib/refit/extensions/ab/usr/bin/tool", "/usr/bin/kubelet", "/usr/bin/containerd", "/usr/bin/crio", "/usr/local/bin/k3s", "/etc/kubernetes/manifests/etcd.yaml", "/etc/containerd/config.toml",
		"/etc/sysctl.d/90-refit.conf", "/etc/NetworkManager/system-connections/a.nmconnection", "/etc/ssh/sshd_config", "/etc/resolv.conf", "/etc/hosts", "/etc/shadow", "/opt/cni/bin/bridge", "/etc/cni/net.d/10.conf",
		"/usr/lib/modules/6.1/vmlinuz", "/usr/lib/modules/6.1/initramfs.img", "/usr/lib/systemd/systemd", "/usr/sbin/init", "/run/refit/x", "/var/tmp/refit-agent.install", "/lib/systemd/system/x.service", "/bin/sh", "/sbin/ip"}
	plain := strings.NewReplacer(`(/.*)?`, "/x", `.*`, "x", `[^/]*`, "y", `[^/]+`, "y", `(/.+)?`, "/z", `.+`, "z", `(.*/)?`, "deep/", `[0-9]+`, "1", `[0-9]*`, "1", `[0-9]`, "1", `.?`, "", `\`, "", `?`, "")
	ordinary := regexp.MustCompile(`^/[\w./@:+ -]+$`)
	seen := map[string]bool{}
	for line := range strings.SplitSeq(contexts, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		p := plain.Replace(f[0])
		for _, p := range []string{p, filepath.Dir(p), p + "/below", p + ".old"} {
			if ordinary.MatchString(p) && !seen[p] && filepath.Clean(p) == p {
				seen[p] = true
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// selinuxRoot is a host with SELinux.
func selinuxRoot(t *testing.T, enforce string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"sys/fs/selinux/enforce": enforce, "etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=mine\n"}
	for name, text := range policy {
		files["etc/selinux/mine/contexts/files/"+name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	probe := filepath.Join(root, "probe")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(probe, "security.selinux", []byte("u:r:x\x00"), 0); err != nil {
		t.Skip("labels cannot be set here: ", err)
	}
	return root
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := unix.Lgetxattr(path, "security.selinux", b)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

// A program that replaces another has its label before it has its name: containers start by that
// of the runtime's program.
func TestReplaceLabels(t *testing.T) {
	root := selinuxRoot(t, "1")
	fsutil.LabelFiles(root)
	t.Cleanup(func() { fsutil.LabelFiles("/") })
	bin := filepath.Join(root, "usr/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	text := []byte("program")
	digest, err := fsutil.DigestOf(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := fsutil.Replace(filepath.Join(root, "bin/kubelet"), bytes.NewReader(text), digest, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fsutil.WriteFile(filepath.Join(root, "etc/resolv.conf"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := labelOf(t, filepath.Join(bin, "kubelet")), labelOf(t, filepath.Join(root, "etc/resolv.conf")); a != "u:r:kubelet_t\x00" || b != "u:r:net_t\x00" {
		t.Fatalf("%q %q", a, b)
	}
	if err := os.Remove(filepath.Join(root, "sys/fs/selinux/enforce")); err != nil {
		t.Fatal(err)
	}
	if err := fsutil.Replace(filepath.Join(bin, "plain"), bytes.NewReader(text), digest, 0o755); err != nil || !strings.Contains(labelOf(t, filepath.Join(bin, "plain")), "no data") {
		t.Fatal("a kernel without SELinux:", err, labelOf(t, filepath.Join(bin, "plain")))
	}
}

// An enforcing host whose policy cannot be read is left as it is; a permissive one takes files
// without labels.
func TestUnreadablePolicy(t *testing.T) {
	for enforce, refused := range map[string]bool{"1": true, "0": false} {
		root := selinuxRoot(t, enforce)
		if err := os.WriteFile(filepath.Join(root, "etc/selinux/mine/contexts/files/file_contexts"), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fsutil.LabelAt(root, unix.AT_FDCWD, filepath.Join(root, "probe"), "/etc/x", 0); (err != nil) != refused {
			t.Errorf("enforce %s: %v", enforce, err)
		}
	}
}

// A policy that a package of the host replaced is read again.
func TestReplacedPolicy(t *testing.T) {
	root := selinuxRoot(t, "1")
	for _, kind := range []string{"first_t", "second_t"} {
		if err := os.WriteFile(filepath.Join(root, "etc/selinux/mine/contexts/files/file_contexts"), []byte("/.* u:r:"+kind+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, enforcing, err := fsutil.HostContexts(root)
		if err != nil || !enforcing {
			t.Fatal(err, enforcing)
		}
		if got, err := c.Label("/etc/x", 0); err != nil || got != "u:r:"+kind {
			t.Fatal(got, err)
		}
	}
}
