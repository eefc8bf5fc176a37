package ignition

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// A MachineConfig with all that is carried over.
const machineConfig = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-edge
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  kernelArguments: ["nosmt console=ttyS0", quiet]
  kernelType: default
  config:
    ignition: {version: 3.4.0}
    kernelArguments: {shouldExist: [quiet2]}
    passwd:
      users:
      - {name: core, sshAuthorizedKeys: ["ssh-ed25519 AAAA a"]}
    storage:
      files:
      - {path: /etc/plain, mode: 420, overwrite: true, contents: {source: "data:,hello%%20world%%0A"}}
      - {path: /etc/based, mode: 384, user: {name: chrony}, group: {id: 12}, contents: {source: "data:text/plain;charset=utf-8;base64,aGVsbG8K"}}
      - {path: /etc/zipped, contents: {compression: gzip, source: "data:;base64,%s"}}
      - {path: /etc/checked, contents: {source: "data:,x", verification: {hash: "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}}}
      - {path: /etc/empty}
    systemd:
      units:
      - {name: a.service, enabled: true, contents: "[Service]\n", dropins: [{name: 1.conf, contents: "[Unit]\n"}]}
      - {name: b.service, mask: true}
      - {name: c.service, enabled: false}
      - {name: d.service, dropins: [{name: 1.conf, contents: "x"}]}
`

func TestMachineConfig(t *testing.T) {
	got, err := Import(fmt.Appendf(nil, machineConfig, zipped("zip\n")))
	if err != nil {
		t.Fatal(err)
	}
	file := func(path string, mode uint32, owner, group, data string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: mode, Owner: owner, Group: group, Data: []byte(data)}
	}
	want := Imported{Name: "99-worker-edge", Role: "worker",
		Files: []model.ConfigFile{file("/etc/plain", 0o644, "root", "root", "hello world\n"), file("/etc/based", 0o600, "chrony", "12", "hello\n"),
			file("/etc/zipped", 0o644, "root", "root", "zip\n"), file("/etc/checked", 0o644, "root", "root", "x"), {Path: "/etc/empty", Mode: 0o644, Owner: "root", Group: "root"}},
		Units: []ImportedUnit{{Name: "a.service", State: "enabled", Contents: "[Service]\n", Dropins: []ImportedDropin{{"1.conf", "[Unit]\n"}}}, {Name: "b.service", State: "masked"},
			{Name: "c.service", State: "disabled"}, {Name: "d.service", Dropins: []ImportedDropin{{"1.conf", "x"}}}},
		KernelArguments: []string{"nosmt", "console=ttyS0", "quiet", "quiet2"}, SSHKeys: map[string][]string{"core": {"ssh-ed25519 AAAA a"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Import lists every key that it does not carry over, with the reason, and repeats no secret.
func TestNotImported(t *testing.T) {
	const secret = "hunter2"
	for name, c := range map[string]struct{ part, at, why string }{
		"fetched from elsewhere":       {`storage: {files: [{path: /etc/x, contents: {source: "https://u:hunter2@h.example/x?token=hunter2"}}]}`, "storage.files[0] /etc/x", "fetched from https://h.example:"},
		"appended":                     {`storage: {files: [{path: /etc/x, append: [{source: "data:,x"}]}]}`, "storage.files[0] /etc/x", "appends"},
		"another hash":                 {`storage: {files: [{path: /etc/x, contents: {source: "data:,x", verification: {hash: sha512-00}}}]}`, "storage.files[0] /etc/x", "not what its hash says"},
		"a compression that is none":   {`storage: {files: [{path: /etc/x, contents: {source: "data:,x", compression: gzip}}]}`, "storage.files[0] /etc/x", "says gzip"},
		"a private key":                {`storage: {files: [{path: /etc/x, contents: {source: "data:,-----BEGIN%20PRIVATE%20KEY-----hunter2"}}]}`, "storage.files[0] /etc/x", "private key"},
		"a password":                   {`passwd: {users: [{name: core, passwordHash: hunter2}]}`, "passwd.users[0].passwordHash", "secrets"},
		"kubeadm's path":               {`storage: {files: [{path: /etc/kubernetes/x}]}`, "storage.files[0] /etc/kubernetes/x", "kubeadm's"},
		"a user to be made":            {`passwd: {users: [{name: bob, uid: 5}]}`, "passwd.users[0].uid", "sysusers.d"},
		"a group":                      {`passwd: {groups: [{name: bob}]}`, "passwd.groups", "sysusers.d"},
		"disks":                        {`storage: {disks: [{device: /dev/sda}]}`, "storage.disks", "installed"},
		"a directory":                  {`storage: {directories: [{path: /etc/d}]}`, "storage.directories[0] /etc/d", "tmpfiles.d"},
		"a link":                       {`storage: {links: [{path: /etc/l, target: /x}]}`, "storage.links[0] /etc/l", "tmpfiles.d"},
		"an argument that must not be": {`kernelArguments: {shouldNotExist: [rhgb]}`, "kernelArguments.shouldNotExist", "rhgb"},
		"fips":                         {`kernelArguments: {shouldExist: [fips=1]}`, "kernelArguments.shouldExist", "installed"},
		"an unknown key":               {`luks2: {a: b}`, "luks2", "nothing like it"},
		"a key in a file":              {`storage: {files: [{path: /etc/x, colour: red}]}`, "storage.files[0].colour", "nothing like it"},
		"a text in place of a list":    {`storage: {files: hunter2}`, "storage.files", "should not be a string"},
		"where it is fetched from":     {`ignition: {version: 3.2.0, config: {merge: [{source: "https://x/?hunter2"}]}}`, "ignition.config", "first boot"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := c.part + "\n"
			if !strings.Contains(doc, "version:") {
				doc = "ignition: {version: 3.2.0}\n" + doc
			}
			got, err := Import([]byte(doc))
			if err != nil || len(got.NotImported) != 1 {
				t.Fatalf("%v %+v", err, got)
			}
			if l := got.NotImported[0]; l.Path != c.at || !strings.Contains(l.Why, c.why) {
				t.Errorf("%q: %q", l.Path, l.Why)
			}
			if strings.Contains(fmt.Sprint(got.NotImported), secret) {
				t.Error("a secret is repeated")
			}
		})
	}
}

func TestMachineConfigsOwnKeys(t *testing.T) {
	got, err := Import([]byte("kind: MachineConfig\nspec: {extensions: [usbguard], kernelType: realtime, osImageURL: r/x, fips: true, other: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, l := range got.NotImported {
		at = append(at, l.Path)
	}
	if diff := cmp.Diff([]string{"spec.extensions", "spec.fips", "spec.kernelType", "spec.osImageURL", "spec.other"}, at); diff != "" {
		t.Error(diff)
	}
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct{ doc, says string }{
		"neither":               {"kind: Pod", "neither"},
		"Ignition of version 2": {`{"ignition":{"version":"2.2.0"}}`, "version 2"},
		"no object":             {"[1]", "no YAML or JSON object"},
		"too much":              {strings.Repeat(" ", maxInput+1), "bytes"},
	} {
		if _, err := Import([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Import([]byte("kind: Pod")); !errors.Is(err, ErrUnknownConfig) {
		t.Error(err)
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(machineConfig))
	f.Add([]byte(`{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":1}]},"passwd":[]}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Import(data) })
}
