package bundlecmd

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

type result struct {
	out, err string
	code     int
}

// refit runs a command line.
func refit(t *testing.T, args ...string) result {
	t.Helper()
	return refitWith(t, &inputs.Access{}, args...)
}

func refitWith(t *testing.T, a *inputs.Access, args ...string) result {
	t.Helper()
	root := &cobra.Command{Use: "refit", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(New(a), NewInventory(a), NewKeys())
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	r := result{out: out.String(), err: errOut.String(), code: console.ExitCode(err)}
	if err != nil {
		r.err += err.Error()
	}
	return r
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	r := refit(t, args...)
	if r.code != console.ExitOK {
		t.Fatalf("refit %s: exit %d: %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// site is a folder with keys, a layout of one image and a payload.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, "keys", "generate", "--out", filepath.Join(dir, "keys"))
	img, err := random.Image(5000, 2)
	if err != nil {
		t.Fatal(err)
	}
	p, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "registry.example/app:1"})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelet"), []byte("#!/bin/false"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	return dir
}

func TestMakeLookCheckSign(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	var v bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "b", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Digest != digest || v.Name != "kubernetes" || v.Version != "1.36.3" || len(v.Images) != 1 || len(v.Signatures) != 1 || v.Images[0].UnpackedSize < 10000 || v.APIVersion == "" {
		t.Errorf("inspect: %+v", v)
	}
	if diff := cmp.Diff([]payloadView{{Name: "kubelet", Version: "v1.36.3", Digest: v.Payloads[0].Digest, Size: 12, Mode: "0755"}}, v.Payloads); diff != "" {
		t.Error(diff)
	}
	if table := must(t, "bundle", "inspect", "b"); !strings.Contains(table, digest) || !strings.Contains(table, "registry.example/app:1") {
		t.Error(table)
	}
	must(t, "bundle", "verify", "b", "--pub", "keys/refit.pub")
	must(t, "bundle", "verify", "b", "--digest", digest)
	must(t, "keys", "generate", "--out", "other")
	if ids := strings.Fields(must(t, "bundle", "sign", "b", "--key", "other/refit.key")); len(ids) != 2 {
		t.Errorf("signed by %v", ids)
	}
	must(t, "bundle", "verify", "b", "--pub", "other/refit.pub", "--digest", digest)
	if got := strings.TrimSpace(must(t, "bundle", "write", "b", "stick")); got != digest {
		t.Errorf("write: %s", got)
	}
	var l listView
	if err := json.Unmarshal([]byte(must(t, "bundle", "list", ".", "-o", "json")), &l); err != nil || len(l.Bundles) != 2 || l.Bundles[0].Digest != digest {
		t.Errorf("list: %+v, %v", l, err)
	}
	must(t, "bundle", "create", "--output", "c", "--unsigned", "--version", "2.0.0", "bundle:b", "payload:extra=layout/index.json")
	var d diffView
	if err := json.Unmarshal([]byte(must(t, "bundle", "diff", "b", "c", "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	changes := map[string]string{}
	for _, c := range d.Changes {
		changes[c.Name] = c.Change
	}
	if diff := cmp.Diff(map[string]string{"registry.example/app:1": "same", "kubelet": "same", "extra": "added"}, changes); diff != "" || d.RemovedBytes != 0 || d.AddedBytes == 0 {
		t.Errorf("diff: %s %+v", diff, d)
	}
}

// Exit 6 and a sentence that names what was found and expected, or what
// is damaged and where.
func TestVerifyFailsWithSix(t *testing.T) {
	dir := site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout"))
	must(t, "keys", "generate", "--out", "other")
	good, err := os.ReadFile("b")
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoiled := bytes.Clone(good)
	spoiled[len(spoiled)-2000] ^= 1
	put("spoiled", spoiled)
	header := bytes.Clone(good)
	header[1600] ^= 1
	put("header", header)
	put("short", good[:len(good)-1024])
	put("long", append(bytes.Clone(good), 0))
	put("text", []byte("text"))
	zero := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"b", "--digest", zero}, 6, []string{"found bundle images 0.0.0 (" + digest, "expected " + zero}},
		{[]string{"b", "--pub", "other/refit.pub"}, 6, []string{"found bundle images", "signed by key", "expected a valid signature"}},
		{[]string{"spoiled", "--digest", digest}, 6, []string{"offset", "blob sha256:", "image registry.example/app:1"}},
		{[]string{"header", "--digest", digest}, 6, []string{"index.json", "offset"}},
		{[]string{"short", "--digest", digest}, 6, []string{"not copied completely"}},
		{[]string{"long", "--digest", digest}, 6, []string{"after the end"}},
		{[]string{"text", "--digest", digest}, 6, []string{"not a refit bundle"}},
		{[]string{"none", "--digest", digest}, 2, []string{"no such file"}},
		{[]string{"b"}, 2, []string{"--digest D or --pub KEY"}},
		{[]string{"b", "--digest", "latest"}, 2, []string{"sha256:"}},
		{[]string{"b", "--pub", "keys/refit.key"}, 2, []string{"PUBLIC KEY"}},
		{[]string{}, 2, []string{"accepts 1 arg"}},
	} {
		r := refit(t, append([]string{"bundle", "verify"}, c.args...)...)
		if r.code != c.code || r.out != "" {
			t.Errorf("verify %v: exit %d, want %d: %s", c.args, r.code, c.code, r.err)
		}
		for _, s := range c.says {
			if !strings.Contains(r.err, s) {
				t.Errorf("verify %v: %q does not say %q", c.args, r.err, s)
			}
		}
	}
}

func TestUsageErrors(t *testing.T) {
	site(t)
	for _, c := range []struct {
		line, says string
	}{
		{"bundle create --key keys/refit.key oci:layout", "--output FILE is missing"},
		{"bundle create --output b oci:layout", "--key KEY is missing"},
		{"bundle create --output b --key keys/refit.pub oci:layout", "PRIVATE KEY"},
		{"bundle create --output b --key none oci:layout", "no such file"},
		{"bundle create --output b --unsigned", "no source: name at least one"},
		{"bundle create --output b --unsigned --cluster-partial oci:layout", "belong to the source cluster:"},
		{"bundle create --output b --unsigned --group x oci:layout", "GROUP=PATTERN"},
		{"bundle create --output b --unsigned oci:layout:v9", "no image called"},
		{"bundle inspect keys/none", "no such file"},
		{"bundle inspect b -o xml", "-o xml"},
		{"bundle list none", "no such file"},
		{"bundle sign b", "--key KEY is missing"},
		{"bundle write kubelet", "accepts 2 arg"},
		{"keys generate", "--out DIR is missing"},
		{"keys generate --out keys", "never replaced"},
	} {
		if r := refit(t, strings.Fields(c.line)...); r.code != console.ExitUsage || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("%s: exit %d: %s", c.line, r.code, r.err)
		}
	}
	if _, err := os.Stat("b"); err == nil {
		t.Error("something was written")
	}
}

func TestKeysArePrivate(t *testing.T) {
	dir := site(t)
	st, err := os.Stat(filepath.Join(dir, "keys", "refit.key"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("secret key: %v, %v", st.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "keys", "refit.pub")); err != nil || !strings.HasPrefix(string(b), "-----BEGIN PUBLIC KEY-----") {
		t.Errorf("public key: %q, %v", b, err)
	}
}

func TestListNamesDamagedBundles(t *testing.T) {
	dir := site(t)
	file := bundletest.Bytes(t, bundletest.Tiny())
	for name, b := range map[string][]byte{"cut": file[:len(file)-512], "headless": append(bytes.Clone(file[:2000]), file[2001:]...), "text": []byte("x")} {
		if err := os.WriteFile(filepath.Join(dir, "layout", name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var l listView
	if err := json.Unmarshal([]byte(must(t, "bundle", "list", "layout", "-o", "yaml", "-o", "json")), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Bundles) != 2 || l.Bundles[0].Name != "tiny" || l.Bundles[0].Error == "" || l.Bundles[1].Digest != "" || l.Bundles[1].Error == "" {
		t.Errorf("list: %+v", l.Bundles)
	}
	if table := must(t, "bundle", "list", "layout"); !strings.Contains(table, "not copied completely") {
		t.Error(table)
	}
}

// A boot image that travelled in a bundle comes out as it went in, or not at all.
func TestExtract(t *testing.T) {
	site(t)
	disk := bytes.Repeat([]byte("sector 0 "), 3000)
	stream := fmt.Sprintf(`{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[{"architecture":"amd64","platform":"vsphere","version":"9.6","attributes":{"sha256":"%x"}}]}`, sha256.Sum256(disk))
	for name, data := range map[string][]byte{"disk.ova": disk, "stream.json": []byte(stream)} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "bundle", "create", "--output", "b", "--unsigned", "--version", "1.0.0", "boot-images:stream.json", "boot-image:disk.ova")
	must(t, "bundle", "extract", "b", "boot-image.vsphere.amd64", "--output", "out.ova")
	if got, err := os.ReadFile("out.ova"); err != nil || !bytes.Equal(got, disk) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if r := refit(t, "bundle", "extract", "b", "boot-image.vsphere.amd64", "--output", "out.ova"); r.code != console.ExitUsage || !strings.Contains(r.err, "exists already") {
		t.Errorf("it writes over a file: %d %s", r.code, r.err)
	}
	if r := refit(t, "bundle", "extract", "b", "kubelet", "--output", "k"); r.code != console.ExitUsage || !strings.Contains(r.err, "has no payload kubelet; it has: boot-image.vsphere.amd64, boot-images") {
		t.Errorf("%d %s", r.code, r.err)
	}
	bad, err := os.ReadFile("b")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(bad, []byte("sector 0"))
	bad[at] ^= 1
	if err := os.WriteFile("bad", bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := refit(t, "bundle", "extract", "bad", "boot-image.vsphere.amd64", "--output", "half.ova"); r.code != console.ExitVerification {
		t.Errorf("a damaged file: %d %s", r.code, r.err)
	}
	left, err := filepath.Glob(".*half*")
	if _, e := os.Stat("half.ova"); e == nil || err != nil || len(left) > 0 {
		t.Errorf("something is left behind: %v %v", left, err)
	}
}
