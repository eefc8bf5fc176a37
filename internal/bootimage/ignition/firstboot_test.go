package ignition_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/bootimage/ignition"
)

// stub of a cluster that was installed with version 2, with its users' additions.
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
	out, from, err := ignition.Upgrade([]byte(stub))
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
	if again, from, err := ignition.Upgrade(out); err != nil || from != "3.0.0" || !bytes.Equal(again, out) {
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

// What cannot be carried over is named, and nothing is made.
func TestWhatCannotBeConvertedIsNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ config, want string }{
		"an unknown key":                     {`{"ignition":{"version":"2.2.0"},"custom":{"a":1}}`, ".custom: it has no counterpart"},
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
			out, _, err := ignition.Upgrade([]byte(tc.config))
			if err == nil || !strings.Contains(err.Error(), tc.want) || out != nil {
				t.Errorf("%v, want %q; %s", err, tc.want, out)
			}
		})
	}
	for _, other := range []string{"#cloud-config\n", "", "{}", `{"ignition":{}}`, "null", strings.Repeat("x", ignition.Largest+1)} {
		if _, _, err := ignition.Upgrade([]byte(other)); !errors.Is(err, ignition.ErrNotIgnition) {
			t.Errorf("%.20q: %v", other, err)
		}
	}
}
func TestAuthority(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nnew\n-----END CERTIFICATE-----\n"
	out, err := ignition.ReplaceAuthority([]byte(stub), pem)
	if err != nil {
		t.Fatal(err)
	}
	before, after := decode(t, []byte(stub)).(map[string]any), decode(t, out).(map[string]any)
	delete(before, "ignition")
	delete(after, "ignition")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error("something else was changed:", diff)
	}
	if again, err := ignition.ReplaceAuthority(out, pem); err != nil || !bytes.Equal(again, out) {
		t.Error("the same authority changes nothing:", err)
	}
	for name, config := range map[string]string{
		"two":                     `{"ignition":{"version":"3.1.0","security":{"tls":{"certificateAuthorities":[{"source":"a"},{"source":"b"}]}}}}`,
		"none":                    `{"ignition":{"version":"3.1.0"}}`,
		"one that cannot be read": `{"ignition":{"version":"3.1.0","security":{"tls":{"certificateAuthorities":["x"]}}}}`,
		"no Ignition":             `{}`,
	} {
		if _, err := ignition.ReplaceAuthority([]byte(config), pem); err == nil {
			t.Errorf("%s is rewritten", name)
		}
	}
}

// Of a configuration whose authority is replaced every other byte stays.
func TestAuthorityByteForByte(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nnew\n-----END CERTIFICATE-----\n"
	const source = "data:text/plain;charset=utf-8;base64,LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCm5ldwotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="
	for name, tc := range map[string]struct{ in, want string }{
		"OpenShift's own stub": {
			`{"ignition":{"config":{"merge":[{"source":"https://api-int.c:22623/config/worker"}]},"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,OLD"}]}},"version":"3.2.0"}}`,
			`{"ignition":{"config":{"merge":[{"source":"https://api-int.c:22623/config/worker"}]},"security":{"tls":{"certificateAuthorities":[{"source":"SOURCE"}]}},"version":"3.2.0"}}`},
		"spaces, numbers, signs and doubled names": {
			"\n{ \"storage\": {\"size\": 9007199254740993, \"f\": 1.50e2, \"x\": \"<&>\\u00e9\\\"\"},\n\t\"ignition\" : {\"version\":\"2.2.0\" , \"security\":{\"tls\":{\"certificateAuthorities\": [ { \"httpHeaders\": [] ,\"source\" : \"old\" } ]}}}, \"a\":1, \"a\":2 }\n",
			"\n{ \"storage\": {\"size\": 9007199254740993, \"f\": 1.50e2, \"x\": \"<&>\\u00e9\\\"\"},\n\t\"ignition\" : {\"version\":\"2.2.0\" , \"security\":{\"tls\":{\"certificateAuthorities\": [ { \"httpHeaders\": [] ,\"source\" : \"SOURCE\" } ]}}}, \"a\":1, \"a\":2 }\n"},
		"an empty verification stays": {
			`{"ignition":{"version":"2.2.0","security":{"tls":{"certificateAuthorities":[{"source":"old","verification":{}}]}}}}`,
			`{"ignition":{"version":"2.2.0","security":{"tls":{"certificateAuthorities":[{"source":"SOURCE","verification":{}}]}}}}`},
		"the hash of the one before goes": {
			`{"ignition":{"version":"3.4.0","security":{"tls":{"certificateAuthorities":[{"compression":"gzip", "x\\\"y": [1, 2] ,"source":"old","verification":{"hash":"sha512-00"}}]}}},"z":0}`,
			`{"ignition":{"version":"3.4.0","security":{"tls":{"certificateAuthorities":[{"x\\\"y": [1, 2],"source":"SOURCE"}]}}},"z":0}`},
	} {
		want := strings.ReplaceAll(tc.want, "SOURCE", source)
		got, err := ignition.ReplaceAuthority([]byte(tc.in), pem)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if again, err := ignition.ReplaceAuthority(got, pem); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the same authority changes nothing: %v", name, err)
		}
	}
}

// Fuzz: in any configuration, only the authority changes.
func FuzzReplaceAuthority(f *testing.F) {
	f.Add([]byte(stub))
	f.Add([]byte(`{"ignition":{"version":"3.4.0","security":{"tls":{"certificateAuthorities":[{"x\"":1,"source":"old","verification":{}}]}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := ignition.ReplaceAuthority(data, "pem")
		if err != nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("no JSON any more: %q -> %q", data, out)
		}
		had, have := decode(t, data), decode(t, out)
		strip(had)
		strip(have)
		if diff := cmp.Diff(had, have); diff != "" {
			t.Errorf("%q -> %q: %s", data, out, diff)
		}
	})
}

// strip the authority from a configuration.
func strip(c any) {
	at := c
	for _, n := range []string{"ignition", "security", "tls"} {
		m, _ := at.(map[string]any)
		at = m[n]
	}
	m, _ := at.(map[string]any)
	list, _ := m["certificateAuthorities"].([]any)
	for _, ca := range list {
		if o, ok := ca.(map[string]any); ok {
			for _, n := range []string{"source", "verification", "compression"} {
				delete(o, n)
			}
		}
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"ignition":{"version":"3.2.0","config":{"merge":[{"source":"https://b:1/x"},{"source":"data:,x"}],"replace":{"source":"https://a/x"}}}}`: "a b:1",
		`{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://c:22623/config/worker"}]}}}`:                                        "c:22623",
		`{"ignition":{"version":"3.2.0"}}`: "",
	} {
		got, err := ignition.Servers([]byte(config))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v", config, got, err)
		}
	}
	if _, err := ignition.Servers([]byte("#cloud-config")); err == nil {
		t.Error("cloud-init has no servers of Ignition")
	}
}

// The check is ordered before the units that join, and the user's configuration stays inside
// unchanged.
func TestWithCheck(t *testing.T) {
	t.Parallel()
	config := `{ "ignition": {"version": "3.2.0"}, "passwd": {"users": [{"name": "core"}]} }`
	agent, err := ignition.ParseProgram("https://files/refit-agent#sha512-" + strings.Repeat("0a", 64))
	if err != nil {
		t.Fatal(err)
	}
	out, err := ignition.WithCheck([]byte(config), []byte(`{"pool":"w"}`), "/etc/refit/first-boot.json", agent)
	if err != nil {
		t.Fatal(err)
	}
	validate(t, out)
	merge := decode(t, out).(map[string]any)["ignition"].(map[string]any)["config"].(map[string]any)["merge"].([]any)
	inside, ok := strings.CutPrefix(merge[0].(map[string]any)["source"].(string), "data:application/vnd.coreos.ignition+json;base64,")
	if data, err := base64.StdEncoding.DecodeString(inside); !ok || err != nil || string(data) != config {
		t.Errorf("%v %s", err, data)
	}
	verifyUnit(t, ignition.UnitText("/etc/refit/first-boot.json"))
	for _, bad := range []string{`{"ignition":{"version":"2.2.0"}}`, "#cloud-config"} {
		if _, err := ignition.WithCheck([]byte(bad), nil, "/x", nil); err == nil {
			t.Errorf("%s is wrapped", bad)
		}
	}
	for _, bad := range []string{"http://x#sha512-" + strings.Repeat("0a", 64), "https://x", "https://x#sha256-" + strings.Repeat("0a", 32)} {
		if _, err := ignition.ParseProgram(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if p, err := ignition.ParseProgram(""); p != nil || err != nil {
		t.Error("none is none")
	}
}

// verifyUnit runs systemd-analyze verify on the unit and the units it is ordered before.
func verifyUnit(t *testing.T, text string) {
	t.Helper()
	bin, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the unit is not shown to it")
		return
	}
	root := t.TempDir()
	dir := filepath.Join(root, "etc/systemd/system")
	put := func(path, text string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(root, "bin/sh"), "#!/bin/sh\n", 0o755)
	put(filepath.Join(dir, ignition.Unit), text, 0o600)
	put(filepath.Join(dir, "kubelet.service"), "[Service]\nExecStart=/bin/sh\n", 0o600)
	for _, target := range []string{"sysinit", "basic", "local-fs", "shutdown", "multi-user"} {
		put(filepath.Join(dir, target+".target"), "[Unit]\nDescription="+target+"\n", 0o600)
	}
	put(filepath.Join(dir, "system.slice"), "[Unit]\nDescription=x\n", 0o600)
	out, err := exec.Command(bin, "verify", "--man=no", "--recursive-errors=yes", "--root="+root, ignition.Unit).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("systemd refuses the unit: %v\n%s\n%s", err, out, text)
	}
	if systemctl, err := exec.LookPath("systemctl"); err != nil {
		t.Log("systemctl is not installed: the unit is not enabled")
	} else if out, err := exec.Command(systemctl, "--root="+root, "enable", ignition.Unit).CombinedOutput(); err != nil {
		t.Errorf("systemd does not enable the unit: %v\n%s", err, out)
	} else if to, err := os.Readlink(filepath.Join(dir, "kubelet.service.requires", ignition.Unit)); err != nil || filepath.Base(to) != ignition.Unit {
		t.Errorf("the kubelet does not need it: %s %v", to, err)
	}
	if strings.Contains(text, "ConditionFileIsExecutable") {
		t.Error("without the agent the check is left out, and nothing says so")
	}
	for _, want := range []string{"Before=kubelet.service", "RequiredBy=kubelet.service", "ConditionPathExists=/etc/refit/first-boot.json", "Type=oneshot"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}

// The check does not need /usr/local, which an image may have as a part of it. A machine without
// the agent joins, and its console says that nothing was checked.
func TestCheckFindsTheAgent(t *testing.T) {
	t.Parallel()
	_, line, _ := strings.Cut(ignition.UnitText("/etc/refit/first-boot.json"), "ExecStart=/bin/sh -c '")
	script, _, ok := strings.Cut(line, "'\n")
	if !ok || strings.ContainsAny(script, "$%\\") {
		t.Fatalf("systemd expands a part of it: %q", script)
	}
	for name, c := range map[string]struct{ at, want string }{
		"fetched":             {ignition.Agent, "runs first-boot"},
		"in /usr/local":       {"/usr/local/bin/refit-agent", "runs first-boot"},
		"in the image's /usr": {"/usr/bin/refit-agent", "runs first-boot"},
		"nowhere":             {"", "joins without a check of its boot image"},
	} {
		root := t.TempDir()
		if c.at != "" {
			at := filepath.Join(root, c.at)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte("#!/bin/sh\necho runs $1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		here := strings.NewReplacer(" /usr/", " "+root+"/usr/", " /var/", " "+root+"/var/").Replace(script)
		out, err := exec.Command("/bin/sh", "-c", here).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// The agent is fetched to where every machine can write.
func TestAgentIsFetchedToVar(t *testing.T) {
	t.Parallel()
	out, err := ignition.WithCheck([]byte(`{"ignition":{"version":"3.2.0"}}`), nil, "/etc/refit/first-boot.json", &ignition.Program{URL: "https://files/refit-agent", Hash: "sha512-0a"})
	if err != nil {
		t.Fatal(err)
	}
	files := decode(t, out).(map[string]any)["storage"].(map[string]any)["files"].([]any)
	if at := files[1].(map[string]any)["path"]; at != "/var/opt/refit/bin/refit-agent" {
		t.Error(at)
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
	out, err := ignition.Pointer("https://10.0.0.1:7950/join/abc", pem)
	if err != nil || !strings.Contains(string(out), `"merge":[{"source":"https://10.0.0.1:7950/join/abc"}]`) {
		t.Fatal(err, string(out))
	}
	validate(t, out)
	if same, err := ignition.ReplaceAuthority(out, pem); err != nil || !bytes.Equal(same, out) {
		t.Error("the authority is where it is looked for:", err)
	}
}

// What stands on the console.
func TestMessage(t *testing.T) {
	t.Parallel()
	for _, spec := range []int{2, 3} {
		out, err := ignition.Message(spec, "This boot image (2.2) is too old: ask for 9.6 & newer")
		if err != nil || !strings.Contains(string(out), "/etc/issue.d/99-refit-boot-image.issue") || !strings.Contains(string(out), "too%20old") {
			t.Error(err, string(out))
		}
		if v, err := ignition.Version(out); err != nil || !strings.HasPrefix(v, fmt.Sprint(spec)) {
			t.Error(v, err)
		}
		if spec == 3 {
			validate(t, out)
		}
	}
	if _, err := ignition.Message(1, "x"); err == nil {
		t.Error("version 1 is none")
	}
}

// Fuzz: no path, unit or partition of the old configuration is missing in the
// new one, or nothing is made.
func FuzzUpgrade(f *testing.F) {
	f.Add([]byte(stub))
	f.Add([]byte(`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","append":true,"contents":{"source":"data:,"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, from, err := ignition.Upgrade(data)
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
		if v, err := ignition.Version(out); err != nil || v != ignition.Target {
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
