package firstboot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/source/firstboot"
)

// stub of a cluster that was born with version 2, with what its users added.
const stub = `{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://api-int.c1.example:22623/config/worker","verification":{}}]},
 "security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QUJD","verification":{}}]}},"timeouts":{"httpTotal":30},"proxy":{}},
 "networkd":{"units":[{"name":"10-bond.network","contents":"[Match]\nName=bond0\n","dropins":[{"name":"x.conf","contents":"[Link]\n"}]}]},
 "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b"]},{"name":"core","sshAuthorizedKeys":["b","c"]}],"groups":[{"name":"ops","gid":1200}]},
 "storage":{"disks":[{"device":"/dev/sdb","wipeTable":true,"partitions":[{"label":"var-lib-containers","number":1,"size":409600,"start":2048,"typeGuid":"4D21B016-B534-45C2-A9FB-5C16E091FD2D"},{"label":"rest"}]}],
  "filesystems":[{"name":"var","path":"/var/lib/containers","mount":{"device":"/dev/disk/by-partlabel/var-lib-containers","format":"xfs","wipeFilesystem":true}},{"name":"etc","path":"/etc"}],
  "raid":[{"name":"md0","level":"raid1","devices":["/dev/sdc","/dev/sdd"]}],
  "files":[{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,1","verification":{}},"user":{"id":0}},
   {"filesystem":"root","path":"/etc/a","mode":384,"contents":{"source":"data:,2"}},
   {"filesystem":"etc","path":"/b","append":true,"contents":{"source":"data:,x"}},
   {"filesystem":"var","path":"/keep","contents":{"source":"data:,k"},"overwrite":false}],
  "directories":[{"filesystem":"root","path":"/opt/x","mode":493}],"links":[{"filesystem":"root","path":"/l","target":"/t","hard":true}]},
 "systemd":{"units":[{"name":"a.service","enable":true,"contents":"[Install]\nWantedBy=multi-user.target\n"},{"name":"b.service","enabled":false,"dropins":[{"name":"10.conf","contents":"1"},{"name":"10.conf","contents":"2"}]},{"name":"c.service","mask":true}]}}`

func decode(t testing.TB, data []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

// A11 (the conversion): every custom part is there afterwards.
func TestA11ConversionKeepsCustomParts(t *testing.T) {
	t.Parallel()
	out, from, err := firstboot.Upgrade([]byte(stub))
	if err != nil || from != "2.2.0" {
		t.Fatal(err, from)
	}
	want := `{"ignition":{"version":"3.0.0","config":{"merge":[{"source":"https://api-int.c1.example:22623/config/worker"}]},
 "security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QUJD"}]}},"timeouts":{"httpTotal":30}},
 "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b","c"]}],"groups":[{"name":"ops","gid":1200}]},
 "storage":{"disks":[{"device":"/dev/sdb","wipeTable":true,"partitions":[{"label":"var-lib-containers","number":1,"sizeMiB":200,"startMiB":1,"typeGuid":"4D21B016-B534-45C2-A9FB-5C16E091FD2D"},{"label":"rest"}]}],
  "filesystems":[{"path":"/var/lib/containers","device":"/dev/disk/by-partlabel/var-lib-containers","format":"xfs","wipeFilesystem":true}],
  "raid":[{"name":"md0","level":"raid1","devices":["/dev/sdc","/dev/sdd"]}],
  "files":[{"path":"/etc/a","mode":384,"contents":{"source":"data:,2"},"overwrite":true},
   {"path":"/etc/b","append":[{"source":"data:,x"}]},
   {"path":"/var/lib/containers/keep","contents":{"source":"data:,k"},"overwrite":false},
   {"path":"/etc/systemd/network/10-bond.network","mode":420,"overwrite":true,"contents":{"source":"data:,%5BMatch%5D%0AName=bond0%0A"}},
   {"path":"/etc/systemd/network/10-bond.network.d/x.conf","mode":420,"overwrite":true,"contents":{"source":"data:,%5BLink%5D%0A"}}],
  "directories":[{"path":"/opt/x","mode":493}],"links":[{"path":"/l","target":"/t","hard":true}]},
 "systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\n"},{"name":"b.service","enabled":false,"dropins":[{"name":"10.conf","contents":"2"}]},{"name":"c.service","mask":true}]}}`
	if diff := cmp.Diff(decode(t, []byte(want)), decode(t, out)); diff != "" {
		t.Errorf("(-want +got): %s", diff)
	}
	validate(t, out)
	if again, from, err := firstboot.Upgrade(out); err != nil || from != "3.0.0" || !bytes.Equal(again, out) {
		t.Errorf("what is of version 3 stays as it is: %v %s", err, from)
	}
}

// validate asks ignition itself, where it is installed (Debian: ignition).
func validate(t *testing.T, config []byte) {
	t.Helper()
	bin, err := exec.LookPath("ignition-validate")
	if err != nil {
		t.Log("ignition-validate is not installed: what is made is not shown to it")
		return
	}
	file := filepath.Join(t.TempDir(), "config.ign")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, file).CombinedOutput(); err != nil {
		t.Errorf("ignition refuses it: %v\n%s\n%s", err, out, config)
	}
}

// R1.39: what cannot be carried over is named, and nothing is made.
func TestWhatCannotBeConvertedIsNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ config, want string }{
		"a key that nobody knows":            {`{"ignition":{"version":"2.2.0"},"custom":{"a":1}}`, ".custom: it has no counterpart"},
		"one deep within":                    {`{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a","color":"red"}]}}`, "systemd.units[0].color"},
		"a user that is created the old way": {`{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"a","create":{"uid":3}}]}}`, "passwd.users[0].create"},
		"half a MiB":                         {`{"ignition":{"version":"2.2.0"},"storage":{"disks":[{"device":"/d","partitions":[{"size":1000}]}]}}`, "no whole number of MiB"},
		"a file on something unmounted":      {`{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"d","mount":{"device":"/d","format":"ext4"}}],"files":[{"filesystem":"d","path":"/x"}]}}`, "mounted nowhere"},
		"a file on nothing":                  {`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"d","path":"/x"}]}}`, "there is no file system d"},
		"a proxy":                            {`{"ignition":{"version":"2.2.0","proxy":{"httpProxy":"x"}}}`, "ignition.proxy"},
		"another version":                    {`{"ignition":{"version":"1.0.0"}}`, "is not known"},
		"a list where an object belongs":     {`{"ignition":{"version":"2.2.0"},"storage":[1]}`, "storage: it is no object"},
		"an object where a list belongs":     {`{"ignition":{"version":"2.2.0"},"storage":{"files":{"a":1}}}`, "storage.files: it is no list"},
		"a network unit without a name":      {`{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"../x","contents":"y"}]}}`, "no name of a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := firstboot.Upgrade([]byte(tc.config))
			if err == nil || !strings.Contains(err.Error(), tc.want) || out != nil {
				t.Errorf("%v, want %q; %s", err, tc.want, out)
			}
		})
	}
	for _, other := range []string{"#cloud-config\n", "", "{}", `{"ignition":{}}`, "null", strings.Repeat("x", firstboot.Largest+1)} {
		if _, _, err := firstboot.Upgrade([]byte(other)); !errors.Is(err, firstboot.ErrNotIgnition) {
			t.Errorf("%.20q: %v", other, err)
		}
	}
}

// R1.42, R1.43.
func TestAuthority(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nnew\n-----END CERTIFICATE-----\n"
	out, err := firstboot.ReplaceAuthority([]byte(stub), pem)
	if err != nil {
		t.Fatal(err)
	}
	before, after := decode(t, []byte(stub)).(map[string]any), decode(t, out).(map[string]any)
	delete(before, "ignition")
	delete(after, "ignition")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error("something else was changed:", diff)
	}
	if again, err := firstboot.ReplaceAuthority(out, pem); err != nil || !bytes.Equal(again, out) {
		t.Error("the same authority changes nothing:", err)
	}
	for name, config := range map[string]string{
		"two":                     `{"ignition":{"version":"3.1.0","security":{"tls":{"certificateAuthorities":[{"source":"a"},{"source":"b"}]}}}}`,
		"none":                    `{"ignition":{"version":"3.1.0"}}`,
		"one that cannot be read": `{"ignition":{"version":"3.1.0","security":{"tls":{"certificateAuthorities":["x"]}}}}`,
		"no Ignition":             `{}`,
	} {
		if _, err := firstboot.ReplaceAuthority([]byte(config), pem); err == nil {
			t.Errorf("%s is rewritten", name)
		}
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
	out, err := firstboot.Pointer("https://10.0.0.1:7950/join/abc", pem)
	if err != nil || !strings.Contains(string(out), `"merge":[{"source":"https://10.0.0.1:7950/join/abc"}]`) {
		t.Fatal(err, string(out))
	}
	validate(t, out)
	if same, err := firstboot.ReplaceAuthority(out, pem); err != nil || !bytes.Equal(same, out) {
		t.Error("the authority is where it is looked for:", err)
	}
}

// R1.82: what stands on the console.
func TestMessage(t *testing.T) {
	t.Parallel()
	for _, spec := range []int{2, 3} {
		out, err := firstboot.Message(spec, "This boot image (2.2) is too old: ask for 9.6 & newer")
		if err != nil || !strings.Contains(string(out), "/etc/issue.d/99-refit-boot-image.issue") || !strings.Contains(string(out), "too%20old") {
			t.Error(err, string(out))
		}
		if v, err := firstboot.Version(out); err != nil || !strings.HasPrefix(v, fmt.Sprint(spec)) {
			t.Error(v, err)
		}
		if spec == 3 {
			validate(t, out)
		}
	}
	if _, err := firstboot.Message(1, "x"); err == nil {
		t.Error("version 1 is none")
	}
}

// Fuzz: no path, unit or partition of the old configuration is missing in the
// new one, or nothing is made.
func FuzzUpgrade(f *testing.F) {
	f.Add([]byte(stub))
	f.Add([]byte(`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","append":true,"contents":{"source":"data:,"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, from, err := firstboot.Upgrade(data)
		if err != nil || strings.HasPrefix(from, "3") {
			return
		}
		had, have := map[string]bool{}, map[string]bool{}
		names(decode(t, data), had)
		names(decode(t, out), have)
		for n := range had {
			if !have[n] {
				t.Errorf("%q is lost: %s -> %s", n, data, out)
			}
		}
		if v, err := firstboot.Version(out); err != nil || v != firstboot.Target {
			t.Errorf("%s %v", v, err)
		}
	})
}

// names of units and users, labels of partitions, devices, targets.
func names(v any, out map[string]bool) {
	switch x := v.(type) {
	case map[string]any:
		for k, y := range x {
			if s, ok := y.(string); ok && s != "" && (k == "label" || k == "device" || k == "target" || k == "passwordHash") {
				out[k+"="+s] = true
			}
			names(y, out)
		}
	case []any:
		for _, y := range x {
			names(y, out)
		}
	}
}
