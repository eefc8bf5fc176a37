//go:build linux

package imagecmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func runBuild(args ...string) (out, says string, err error) {
	var o, e bytes.Buffer
	c := New(&inputs.Access{Out: &o, Err: &e})
	c.SetArgs(append([]string{"build"}, args...))
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.Execute()
	return strings.TrimSpace(o.String()), e.String(), err
}

func writeInput(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const someConfig = `apiVersion: refit.dev/v1alpha1
kind: NodeConfig
metadata: {name: edge}
spec:
  kernelArguments: [quiet]
  files:
  - {path: /etc/motd, mode: 0644, contents: {configMap: {name: motd, key: text}}}
  - {path: /var/lib/x, contents: {inline: "x"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: motd}
data: {text: "hello"}
`

// The same digest from a registry into a registry and into a layout; the base is
// copied only where it must cross from one to the other.
func TestBuild(t *testing.T) {
	reg := registrytest.Start(t)
	base := reg.Push("os/base", registrytest.Image{Version: "9", Layers: []string{"kernel"}}, "9")
	file := writeInput(t, someConfig)
	digest, says, err := runBuild("--base", "docker://"+reg.Ref("os/base:9"), "--config", file, "--output", "docker://"+reg.Ref("os/edge:1"))
	if err != nil || reg.Resolve("os/edge", "1") != digest {
		t.Fatal(err, digest)
	}
	for _, want := range []string{"/etc/motd: image /etc /etc/motd", "/var/lib/x: agent", "kernel arguments: image kargs.d"} {
		if !strings.Contains(says, want) {
			t.Errorf("it does not say %q: %s", want, says)
		}
	}
	dir := filepath.Join(t.TempDir(), "layout")
	out, _, err := runBuild("--base", "docker://"+reg.Ref("os/base@"+base), "--config", file, "--output", "oci:"+dir+":os.example/edge:1", "-o", "json")
	var b Built
	if err != nil || json.Unmarshal([]byte(out), &b) != nil {
		t.Fatal(err, out)
	}
	if b.Copied == 0 || b.Added == 0 || len(b.Placed) != 3 || !strings.HasSuffix(b.Base, "@"+base) {
		t.Errorf("%+v", b)
	}
	if roots, err := oci.OpenLayout(dir, "os.example/edge:1"); err != nil || roots[0].Desc.Digest.String() != b.Digest {
		t.Error(err)
	}
	again, _, err := runBuild("--base", "oci:"+dir+":os.example/edge:1", "--config", file, "--output", "oci:"+dir+":os.example/edge:2")
	twice, _, err2 := runBuild("--base", "oci:"+dir+":os.example/edge:1", "--config", file, "--output", "oci:"+filepath.Join(t.TempDir(), "l")+":os.example/edge:2")
	if err != nil || err2 != nil || again != twice || !strings.HasPrefix(again, "sha256:") {
		t.Error(err, err2, again, twice)
	}
}

func TestRefuses(t *testing.T) {
	good := writeInput(t, someConfig)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing said":                  {nil, console.ExitUsage, "are needed"},
		"a base of an unknown kind":     {[]string{"--base", "x:y", "--config", good, "--output", "oci:z:1"}, console.ExitUsage, "--base x:y is not known"},
		"a conflict":                    {[]string{"--base", "oci:x:1", "--config", good, "--config", writeInput(t, strings.Replace(someConfig, "name: edge", "name: other", 1)), "--output", "oci:z:1"}, console.ExitBlocked, "NodeConfigs edge and other both want file /etc/motd"},
		"packages":                      {[]string{"--base", "oci:x:1", "--config", writeInput(t, "kind: NodeConfig\nmetadata: {name: a}\nspec: {packages: [vim]}\n"), "--output", "oci:z:1"}, console.ExitBlocked, "need a build that runs commands"},
		"an unknown key":                {[]string{"--base", "oci:x:1", "--config", writeInput(t, "kind: NodeConfig\nspec: {fils: []}\n"), "--output", "oci:z:1"}, console.ExitUsage, "fils"},
		"another kind":                  {[]string{"--base", "oci:x:1", "--config", writeInput(t, "kind: Pod\n"), "--output", "oci:z:1"}, console.ExitUsage, "refit config import"},
		"a ConfigMap that is not given": {[]string{"--base", "oci:x:1", "--config", writeInput(t, strings.Split(someConfig, "---")[0]), "--output", "oci:z:1"}, console.ExitBlocked, "no ConfigMap motd"},
		"an odd format":                 {[]string{"-o", "xml"}, console.ExitUsage, "xml"},
	} {
		_, _, err := runBuild(c.args...)
		if console.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d %v", name, console.ExitCode(err), err)
		}
	}
}
