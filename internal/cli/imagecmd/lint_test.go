//go:build linux

package imagecmd

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func runLint(args ...string) (out string, code int, err error) {
	var o, e bytes.Buffer
	c := New(&inputs.Access{Out: &o, Err: &e})
	c.SetArgs(append([]string{"lint"}, args...))
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.Execute()
	return o.String(), console.ExitCode(err), err
}

// osFiles are those of an image that nodes can boot.
func osFiles() map[string]string {
	return map[string]string{"usr/lib/modules/6.12.1/vmlinuz": "kernel", "usr/lib/modules/6.12.1/initramfs.img": "initramfs", "usr/lib/systemd/systemd": "elf",
		"usr/bin/kubelet": "elf", "usr/bin/crio": "elf", "usr/local/bin/refit-agent": "elf", "usr/lib/systemd/system/kubelet.service": "u", "usr/lib/systemd/system/crio.service": "u", "etc/systemd/system/refit-agent.service": "u"}
}

func TestLint(t *testing.T) {
	reg := registrytest.Start(t)
	labels := map[string]string{osimage.LabelBootc: "1", osimage.LabelKubelet: "v1.36.3"}
	good := reg.Push("os/edge", registrytest.Image{Labels: labels, Files: osFiles(), Platforms: []string{"linux/amd64", "linux/arm64"}}, "9")
	files := osFiles()
	delete(files, "usr/bin/crio")
	delete(files, "usr/lib/systemd/system/kubelet.service")
	reg.Push("os/bad", registrytest.Image{Labels: labels, Files: files}, "9")
	reg.Push("app", registrytest.Image{Version: "1"}, "1")

	out, code, err := runLint(reg.Ref("os/edge:9"), "--platform", "linux/arm64", "--kubernetes", "v1.36.3", "--strict")
	if code != console.ExitOK || !strings.Contains(out, "nodes can boot it") || !strings.Contains(out, "kernel 6.12.1, kubelet usr/bin/kubelet v1.36.3, runtime usr/bin/crio, agent usr/local/bin/refit-agent; read ") {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	out, code, _ = runLint("docker://"+reg.Ref("os/bad:9"), "--platform", "linux/amd64,linux/arm64", "-o", "json")
	var v Linted
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != console.ExitBlocked {
		t.Fatal(code, err, out)
	}
	var got []string
	for _, f := range v.Images[0].Findings {
		got = append(got, f.Reason)
	}
	if want := []string{osimage.ReasonArchitecture, osimage.ReasonRuntime, osimage.ReasonUnit}; strings.Join(got, " ") != strings.Join(want, " ") || v.Refused != 2 || v.Warnings != 1 || v.Read == 0 || v.Kind != "OSLint" {
		t.Errorf("%q %+v", got, v)
	}
	if out, code, _ = runLint(reg.Ref("os/bad:9")); code != console.ExitBlocked || !strings.Contains(out, "refused "+osimage.ReasonRuntime+" (linux/amd64): ") || !strings.Contains(out, "Fix: ") {
		t.Errorf("%d\n%s", code, out)
	}

	// A layout of refit image build, and a bundle with it and with another image.
	layout := filepath.Join(t.TempDir(), "layout")
	if _, _, err := runBuild("--base", "docker://"+reg.Ref("os/edge@"+good), "--config", writeInput(t, someConfig), "--output", "oci:"+layout+":os.example/edge:1"); err != nil {
		t.Fatal(err)
	}
	if out, code, err = runLint("oci:" + layout); code != console.ExitOK || !strings.Contains(out, "os.example/edge:1@") {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	file := filepath.Join(t.TempDir(), "site.bundle")
	opts := bundlewriter.Options{Name: "site", Version: "1.0.0", Sources: []string{"oci:" + layout, "docker://" + reg.Ref("app:1")}}
	if _, err := bundlewriter.Create(t.Context(), file, opts, nil); err != nil {
		t.Fatal(err)
	}
	if out, code, err = runLint(file); code != console.ExitOK || !strings.Contains(out, "os.example/edge:1@") || strings.Contains(out, "app:1") {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	if out, code, err = runLint(file, "--image", reg.Ref("app:1")); code != console.ExitBlocked || !strings.Contains(out, osimage.ReasonKernel) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	policy := writeInput(t, `{"default":[{"type":"reject"}]}`)
	if out, code, err = runLint("oci:"+layout, "--policy", policy, "--boot-free", "1Ki", "--sysroot-free", "1Gi"); code != console.ExitBlocked || !strings.Contains(out, osimage.ReasonSignaturePolicy) || strings.Contains(out, osimage.ReasonRoom) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	if out, code, err = runLint("oci:"+layout, "--selinux"); code != console.ExitOK || !strings.Contains(out, "warning "+osimage.ReasonSELinux) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	if out, code, err = runLint("oci:"+layout, "--selinux", "--driver", "ostree"); code != console.ExitBlocked || !strings.Contains(out, "refused "+osimage.ReasonSELinux) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a registry without it":  {[]string{reg.Ref("os/none:1")}, "os/none"},
		"no layout":              {[]string{"oci:" + t.TempDir()}, "is not an OCI image layout"},
		"a file of another kind": {[]string{policy}, "bundle"},
		"an unknown driver":      {[]string{"oci:x", "--driver", "apt"}, "--driver apt is not known"},
		"no number":              {[]string{"oci:x", "--boot-free", "much"}, "--boot-free much"},
		"an image of a layout":   {[]string{"oci:" + layout, "--image", "x"}, "--image is for a bundle"},
		"an image that is not":   {[]string{file, "--image", "x"}, "has no image x"},
		"a bad policy":           {[]string{"oci:" + layout, "--policy", writeInput(t, "{}")}, "--policy"},
	} {
		if out, code, err := runLint(c.args...); err == nil || code != console.ExitUsage && code != console.ExitVerification || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d %v\n%s", name, code, err, out)
		}
	}
}
