package ignition

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const image = "r.example/os@sha256:aaaa"

// bootcSays returns a status as bootc writes it, with the staged, the booted and the rollback
// deployment.
func bootcSays(staged, booted, rollback string) string {
	entry := func(d string) string {
		if d == "" {
			return "null"
		}
		return `{"image":{"image":{"image":"r.example/os@` + d + `","transport":"registry"},"imageDigest":"` + d + `"},"pinned":false}`
	}
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","spec":{"image":{"image":"r.example/os@sha256:aaaa"},"bootOrder":"default"},"status":{"staged":` + entry(staged) + `,"booted":` + entry(booted) + `,"rollback":` + entry(rollback) + `,"type":"bootcHost"}}`
}

// updateOf is a stock machine whose tag has moved to another image since: bootc reports that one as
// what the booted one could be updated to.
func updateOf(booted, update string) string {
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","spec":{"image":{"image":"r.example/stock:1","transport":"registry"},"bootOrder":"default"},"status":{"staged":null,"booted":{"image":{"image":{"image":"r.example/stock:1","transport":"registry"},"version":"a \\"quoted\\" {word","imageDigest":"` + booted + `","architecture":"amd64"},"cachedUpdate":{"image":{"image":"r.example/os@` + update + `","transport":"registry"},"imageDigest":"` + update + `"},"incompatible":false,"ostree":{"checksum":"aa","deploySerial":0}},"rollback":null,"type":"bootcHost"}}`
}

// A new machine boots its pool's image once, before it joins; it joins on no
// other, and a machine that cannot is let on.
func TestPivot(t *testing.T) {
	bash, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	for name, c := range map[string]struct {
		bootc, rpmOSTree string // what they say, empty if they are not there
		help             string // of the command that switches
		switches         string // exit codes of switching, one after the other
		tried            bool
		code             int
		says             string
		did              string // what was called, in order
		left             string // files that are left
	}{
		"a stock image is switched and restarted":                                   {bootc: bootcSays("", "sha256:bbbb", ""), switches: "0", code: 1, says: "restarting into", did: "bootc switch " + image + "\nsystemctl reboot", left: "first-image first-image.tried"},
		"the image is booted: it joins":                                             {bootc: bootcSays("", "sha256:aaaa", "sha256:bbbb"), code: 0, says: "is booted"},
		"after the restart: it joins":                                               {bootc: bootcSays("", "sha256:aaaa", ""), tried: true, code: 0, says: "is booted"},
		"it came back on the old one: it does not join, and is not restarted again": {bootc: bootcSays("", "sha256:bbbb", "sha256:aaaa"), tried: true, code: 1, says: "came back on another OS", left: "first-image first-image.tried"},
		"staged is not booted":                                                      {bootc: bootcSays("sha256:aaaa", "sha256:bbbb", ""), tried: true, code: 1, says: "came back on another OS", left: "first-image first-image.tried"},
		"the registry is unreachable for a while": {bootc: bootcSays("", "sha256:bbbb", ""), switches: "1 1 0", code: 1, says: "is tried again",
			did: strings.Repeat("bootc switch "+image+"\n", 3) + "systemctl reboot", left: "first-image first-image.tried"},
		"the registry is unreachable for good": {bootc: bootcSays("", "sha256:bbbb", ""), switches: "1 1 1 1 1 1 1", code: 1, says: "the machine does not join",
			did: strings.TrimSpace(strings.Repeat("bootc switch "+image+"\n", 7)), left: "first-image"},
		"the tag of the stock image has moved to the pool's image, which is not booted": {bootc: updateOf("sha256:bbbb", "sha256:aaaa"), switches: "0", code: 1, says: "restarting into", did: "bootc switch " + image + "\nsystemctl reboot", left: "first-image first-image.tried"},
		"the image is booted, and its tag has moved":                                    {bootc: updateOf("sha256:aaaa", "sha256:bbbb"), code: 0, says: "is booted"},
		"rpm-ostree next to Zincati": {rpmOSTree: `{"deployments":[{"container-image-reference":"","checksum":"x"}],"update-driver":{"driver-name":"Zincati","driver-sd-unit":"zincati.service"}}`, help: "--bypass-driver   Force a rebase even if an updates driver is registered", switches: "0", code: 1, says: "restarting into",
			did: "rpm-ostree rebase --bypass-driver ostree-unverified-registry:" + image + "\nsystemctl reboot", left: "first-image first-image.tried"},
		"rpm-ostree has it by its digest":                       {rpmOSTree: `{"deployments":[{"booted":true,"container-image-reference":"ostree-unverified-registry:r.example/os:1","container-image-reference-digest":"sha256:aaaa"}]}`, code: 0, says: "is booted"},
		"rpm-ostree has it as a base that something else names": {rpmOSTree: `{"deployments":[{"booted":true,"container-image-reference":"ostree-unverified-registry:r.example/os:1","container-image-reference-digest":"sha256:bbbb","base-checksum":"sha256:aaaa"}]}`, tried: true, code: 1, says: "came back on another OS", left: "first-image first-image.tried"},
		"rpm-ostree": {rpmOSTree: `{"deployments":[{"container-image-reference":"ostree-unverified-registry:r.example/os@sha256:bbbb"}]}`, switches: "0", code: 1, says: "restarting into",
			did: "rpm-ostree rebase ostree-unverified-registry:" + image + "\nsystemctl reboot", left: "first-image first-image.tried"},
		"rpm-ostree has it":                   {rpmOSTree: `{"deployments":[{"container-image-reference":"ostree-unverified-registry:` + image + `"}]}`, code: 0, says: "is booted"},
		"bootc on a host that is none of its": {bootc: `{"status":{"booted":null}}`, code: 0, says: "goes on with its own OS"},
		"neither":                             {code: 0, says: "goes on with its own OS"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, bin := t.TempDir(), t.TempDir()
			write := func(path, text string, mode os.FileMode) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, tool := range []string{"awk", "cat", "grep", "rm", "sync"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Skip("no ", tool)
				}
				if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
					t.Fatal(err)
				}
			}
			log, codes := filepath.Join(bin, "log"), filepath.Join(bin, "codes")
			write(codes, c.switches, 0o644)
			write(log, "", 0o644)
			player := func(name, status, verb string) {
				write(filepath.Join(bin, name+".json"), status, 0o644)
				write(filepath.Join(bin, name), "#!"+bash+"\nif [ \"$2\" = --help ]; then echo '"+c.help+"'; exit; fi\nif [ \"$1\" = "+verb+" ]; then echo \""+name+" $*\" >> "+log+"; read -r code rest < "+codes+"; echo \"$rest\" > "+codes+"; exit \"$code\"; fi\ncat "+filepath.Join(bin, name+".json")+"\n", 0o755)
			}
			if c.bootc != "" {
				player("bootc", c.bootc, "switch")
			}
			if c.rpmOSTree != "" {
				player("rpm-ostree", c.rpmOSTree, "rebase")
			}
			write(filepath.Join(bin, "systemctl"), "#!"+bash+"\necho \"systemctl $*\" >> "+log+"\n", 0o755)
			write(filepath.Join(bin, "sleep"), "#!"+bash+"\n", 0o755)
			write(filepath.Join(dir, "first-image"), image+"\n", 0o644)
			if c.tried {
				write(filepath.Join(dir, "first-image.tried"), "", 0o644)
			}
			cmd := exec.Command(bash, "-c", pivotProgram)
			cmd.Env = []string{"PATH=" + bin, "DIR=" + dir}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
				t.Errorf("ended with %d: %s", code, out)
			}
			did, err := os.ReadFile(log)
			if err != nil || strings.TrimSpace(string(did)) != c.did {
				t.Errorf("did %q, want %q (%v)", did, c.did, err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
		})
	}
}
