package installcmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// hosts are directories: a remote shell of the test runs commands there, in place of /var/tmp.
type hosts struct{ dir, shell string }

// agentScript stands for the agent of the bundle. It stores how it was called, and the policy.
const agentScript = `#!/bin/sh
dir=$(dirname "$0")
echo "$@" > "$dir/called"
while [ $# -gt 0 ]; do
	if [ "$1" = --image-policy ]; then cp "$2" "$dir/policy"; fi
	shift
done
if [ -e "$dir/refuse" ]; then echo "registry.example/refit:1: Missing. Nothing was loaded or installed" >&2; exit 1; fi
`

func newHosts(t *testing.T, names ...string) hosts {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the commands are those of Linux hosts")
	}
	h := hosts{dir: t.TempDir()}
	h.shell = filepath.Join(h.dir, "shell")
	script := fmt.Sprintf("#!/bin/sh\nexec sh -c \"$(printf %%s \"$2\" | sed \"s|/var/tmp|%s/$1|g\")\"\n", h.dir)
	if err := os.WriteFile(h.shell, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.Mkdir(filepath.Join(h.dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h hosts) file(name string) string {
	b, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		return ""
	}
	return string(b)
}

// selfBundle has refit's image and the agent.
func selfBundle(t *testing.T) string {
	t.Helper()
	s := bundletest.Tiny()
	s.Images[0].Name, s.Images[0].Group = "registry.example/refit:1", bundle.GroupRefit
	s.Payloads = append(s.Payloads, bundletest.Payload{Name: bundle.PayloadRefitAgent, Content: []byte(agentScript)})
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, bundletest.Bytes(t, s), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func policyWith(t *testing.T, key string) string {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: " + imageproof.FileVersion + "\nkind: " + imageproof.FileKind + "\nrules:\n- images: '*'\n  cosign:\n    keys:\n    - file: release.pub\n"
	for name, content := range map[string]string{"policy.yaml": text, "release.pub": key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "policy.yaml")
}

// Hosts with the stick get the policy with its keys, others nothing of it. Nothing stays in the directory of
// all users, and what another user put there is not written into.
func TestThePolicyGoesToHostsThatLoadImages(t *testing.T) {
	t.Parallel()
	h := newHosts(t, "n1", "n2")
	key := bundletest.NewPublisher(t).PublicKey()
	f, err := bundlereader.OpenPath(selfBundle(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := []host{{"n1", "/dev/sd b"}, {"n2", ""}}
	policy, err := readImagePolicy(policyWith(t, key), list)
	if err != nil {
		t.Fatal(err)
	}
	trap := filepath.Join(h.dir, "trap")
	for _, name := range []string{"refit-agent.install", "refit-image-policy.install"} {
		if err := os.Symlink(trap, filepath.Join(h.dir, "n1", name)); err != nil {
			t.Fatal(err)
		}
	}
	o := installer{&inputs.Access{Err: io.Discard}}
	for _, at := range list {
		if err := o.installHost(t.Context(), f, h.shell, at, policy); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.file("n1/called"); !strings.HasPrefix(got, "install --from /dev/sd b --image-policy ") {
		t.Errorf("n1: %q", got)
	}
	if got := h.file("n2/called"); got != "install\n" {
		t.Errorf("n2: %q", got)
	}
	p, err := imageproof.ParseFile([]byte(h.file("n1/policy")), nil)
	if err != nil || p == nil || !strings.Contains(h.file("n1/policy"), "release.pub") {
		t.Errorf("%v: %s", err, h.file("n1/policy"))
	}
	if left, err := filepath.Glob(filepath.Join(h.dir, "n?", "*.install")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if h.file("trap") != "" {
		t.Error("a file of another user was written")
	}
}

// A host that refuses ends the installation before the next host and the cluster.
func TestAHostThatRefusesAnImageEndsTheInstallation(t *testing.T) {
	t.Parallel()
	h := newHosts(t, "n1", "n2")
	if err := os.WriteFile(filepath.Join(h.dir, "n1", "refuse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := installFlags{from: selfBundle(t), rsh: h.shell, ssh: []string{"n1:/dev/sdb", "n2:/dev/sdb"}, imagePolicy: policyWith(t, bundletest.NewPublisher(t).PublicKey()), timeout: 1e11}
	err := installer{&inputs.Access{Err: io.Discard}}.install(t.Context(), f)
	if err == nil || !strings.Contains(err.Error(), "host n1") || !strings.Contains(err.Error(), "Missing. Nothing was loaded or installed") {
		t.Errorf("got %v", err)
	}
	if h.file("n2/called") != "" {
		t.Error("the next host was installed")
	}
}

// A policy that is not one, or that no host would use, is refused before the first host is asked.
func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	good := policyWith(t, bundletest.NewPublisher(t).PublicKey())
	for name, c := range map[string]struct {
		path string
		at   host
		says string
	}{
		"no stick":   {good, host{"n1", ""}, "--ssh HOST:DEVICE"},
		"no file":    {"/nowhere/policy.yaml", host{"n1", "/dev/sdb"}, "/nowhere/policy.yaml"},
		"no policy":  {selfBundle(t), host{"n1", "/dev/sdb"}, "--image-policy"},
		"a bad key":  {policyWith(t, "no PEM"), host{"n1", "/dev/sdb"}, "release.pub"},
		"other keys": {policyWith(t, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), host{"n1", "/dev/sdb"}, "release.pub"},
	} {
		if _, err := readImagePolicy(c.path, []host{c.at}); console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := readImagePolicy("", nil); p != nil || err != nil {
		t.Errorf("none: %v, %v", p, err)
	}
}
