package osdriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bootcEntryOf makes one deployment after the schema of org.containers.bootc/v1.
func bootcEntryOf(sum, image, more string) string {
	return `{"image":` + image + `,"cachedUpdate":null,"incompatible":false,"pinned":false,"softRebootCapable":false,"store":"ostreeContainer",
	"ostree":{"checksum":"` + sum + `","deploySerial":0,"stateroot":"default"}` + more + `}`
}

func img(name, digest string) string {
	return `{"image":{"image":"` + name + `","transport":"registry"},"version":"42.1","timestamp":"2026-10-01T10:00:00Z","imageDigest":"` + digest + `","architecture":"amd64"}`
}

func bootcDoc(staged, booted, rollback, more string) string {
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","metadata":{"name":"host"},"spec":{"image":{"image":"quay.example/os:42","transport":"registry"},"bootOrder":"default"},
	"status":{"staged":` + staged + `,"booted":` + booted + `,"rollback":` + rollback + more + `,"type":"BootcHost"}}`
}

var (
	imgA, imgB = img("quay.example/os@sha256:a", "sha256:a"), img("quay.example/os@sha256:b", "sha256:b")
	bootcA     = &Deployment{ID: "aa.0", Image: "quay.example/os@sha256:a", Digest: "sha256:a", Version: "42.1"}
	bootcB     = &Deployment{ID: "bb.0", Image: "quay.example/os@sha256:b", Digest: "sha256:b", Version: "42.1"}
)

func TestBootcStatus(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want Status
	}{
		"booted only": {bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", `,"rollbackQueued":false`),
			Status{Booted: bootcA, Next: bootcA}},
		"what is staged is next": {bootcDoc(bootcEntryOf("bb", imgB, ""), bootcEntryOf("aa", imgA, ""), "null", ""),
			Status{Booted: bootcA, Staged: bootcB, Next: bootcB}},
		"a queued rollback is next (R2 T1)": {bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("bb", imgB, ""), `,"rollbackQueued":true`),
			Status{Booted: bootcA, Rollback: bootcB, Next: bootcB, RollbackQueued: true}},
		"a rollback that is not queued is not next": {bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("bb", imgB, ""), ""),
			Status{Booted: bootcA, Rollback: bootcB, Next: bootcA}},
		"a local image without version and time": {bootcDoc("null", bootcEntryOf("aa", `{"image":{"image":"/var/lib/x","transport":"oci","signature":null},"version":null,"timestamp":null,"imageDigest":"sha256:a"}`, ""), "null", ""),
			Status{Booted: &Deployment{ID: "aa.0", Image: "/var/lib/x", Digest: "sha256:a"}, Next: &Deployment{ID: "aa.0", Image: "/var/lib/x", Digest: "sha256:a"}}},
		"only downloaded, pinned, soft reboot": {bootcDoc(`{"image":`+imgB+`,"incompatible":false,"pinned":true,"softRebootCapable":true,"downloadOnly":true,"store":null,"ostree":{"checksum":"bb","deploySerial":3},"newer":{"x":1}}`, bootcEntryOf("aa", imgA, ""), "null", ""),
			Status{Booted: bootcA, Staged: &Deployment{ID: "bb.3", Image: bootcB.Image, Digest: bootcB.Digest, Version: "42.1", Pinned: true, SoftReboot: true, Locked: true},
				Next: &Deployment{ID: "bb.3", Image: bootcB.Image, Digest: bootcB.Digest, Version: "42.1", Pinned: true, SoftReboot: true, Locked: true}}},
		"deployed by composefs": {bootcDoc("null", `{"image":`+imgA+`,"cachedUpdate":null,"incompatible":false,"pinned":false,"store":null,"ostree":null,"composefs":{"verity":"v1","bootType":"Bls"}}`, "null", ""),
			Status{Composefs: true, Booted: &Deployment{ID: "v1", Image: bootcA.Image, Digest: "sha256:a", Version: "42.1"}, Next: &Deployment{ID: "v1", Image: bootcA.Image, Digest: "sha256:a", Version: "42.1"}}},
		"packages were layered": {bootcDoc("null", `{"image":null,"cachedUpdate":null,"incompatible":true,"pinned":false,"ostree":{"checksum":"aa","deploySerial":0}}`, "null", ""),
			Status{Booted: &Deployment{ID: "aa.0", Incompatible: true}, Next: &Deployment{ID: "aa.0", Incompatible: true},
				Unsupported: "packages were layered on the image on this node, which bootc does not carry over; `rpm-ostree reset` on the node takes them away",
				Drift:       []Drift{{Kind: DriftPackages, Detail: "the booted deployment was changed on the node with rpm-ostree"}}}},
		"an overlay over /usr": {bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", `,"usrOverlay":{"accessMode":"readWrite","persistence":"transient"}`),
			Status{Booted: bootcA, Next: bootcA, Drift: []Drift{{Kind: DriftOverlay, Detail: "an overlay is mounted over /usr (readWrite, transient)"}}}},
		"staged without an image": {bootcDoc(`{"image":null,"incompatible":false,"pinned":false,"ostree":{"checksum":"cc","deploySerial":0}}`, bootcEntryOf("aa", imgA, ""), "null", ""),
			Status{Booted: bootcA, Staged: &Deployment{ID: "cc.0"}, Next: &Deployment{ID: "cc.0"},
				Drift: []Drift{{Kind: DriftForeign, Detail: "the staged deployment is not from a container image"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"bootc status": {Out: c.doc}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}, "ostree": {Code: 1}}}
			got, err := NewBootc(s.Host(t, nil)).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.want.Driver, c.want.Running, c.want.Capabilities = Bootc, []string{"root=/dev/x"}, []string{CanKargsImage}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// Fields that are not part of Status, and forms that old and new versions have.
func TestBootcParse(t *testing.T) {
	h, err := parseBootc([]byte(`{"apiVersion":"org.containers.bootc/v1alpha1","kind":"BootcHost","metadata":{"name":"host"},
	"spec":{"image":{"image":"q/os:1","transport":"registry","signature":{"ostreeRemote":"fedora"}},"bootOrder":"rollback"},
	"status":{"staged":null,"booted":` + bootcEntryOf("aa", `{"image":{"image":"q/os:1","transport":"containers-storage","signature":"containerPolicy"},"version":null,"timestamp":"2026-10-01T10:00:00Z","imageDigest":"sha256:a","architecture":"arm64"}`, `,"composefs":null`) + `,
	"rollback":null,"otherDeployments":[` + bootcEntryOf("dd", "null", "") + `],"isContainer":false,"readOnly":true,"type":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	b := h.Status.Booted
	if d := cmp.Diff([]any{"org.containers.bootc/v1alpha1", "rollback", bootcSignature{"ostreeRemote", "fedora"}, bootcSignature{"containerPolicy", ""}, "containers-storage", "arm64", time.Date(2026, 10, 1, 10, 0, 0, 0, time.UTC), 1, true, true, "ostreeContainer", "default"},
		[]any{h.APIVersion, h.Spec.BootOrder, *h.Spec.Image.Signature, *b.Image.Image.Signature, b.Image.Image.Transport, b.Image.Architecture, *b.Image.Timestamp, len(h.Status.OtherDeployments), h.Status.ReadOnly, h.Status.Type == nil, *b.Store, b.OSTree.Stateroot}); d != "" {
		t.Fatal(d)
	}
	for name, text := range map[string]string{"another kind": `{"kind":"Pod"}`, "no JSON": `apiVersion: x`, "a signature that is a number": `{"kind":"BootcHost","spec":{"image":{"signature":5}}}`} {
		if _, err := parseBootc([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// All null is "unknown", never "not bootc".
func TestUnknownIsNoAnswer(t *testing.T) {
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: bootcDoc("null", "null", "null", "")}}}
	if _, err := NewBootc(s.Host(t, nil)).Status(t.Context()); err == nil {
		t.Fatal("a host that says nothing is taken for one")
	}
}

// An older bootc knows other flags, and says so with exit status 2.
func TestOldFlags(t *testing.T) {
	s := &Script{Answers: map[string]Answer{"bootc status --format": {Code: 2}, "bootc status --json": {Out: bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", "")}}}
	h, err := NewBootc(s.Host(t, nil)).ReadHost(t.Context())
	if err != nil || !h.Manages() {
		t.Fatal(h, err)
	}
}

// stagedDoc is a status with B staged, and A booted.
func stagedDoc(soft, locked bool) string {
	return bootcDoc(fmt.Sprintf(`{"image":%s,"incompatible":false,"pinned":false,"softRebootCapable":%v,"downloadOnly":%v,"ostree":{"checksum":"bb","deploySerial":0}}`, imgB, soft, locked), bootcEntryOf("aa", imgA, ""), "null", "")
}

const (
	libostree2026 = "libostree:\n Version: '2026.1'\n Git: 1234\n"
	libostree2025 = "libostree:\n Version: '2025.7'\n"
)

// What is staged is locked, by libostree where bootc does not do it, and after everything that
// stages it anew.
func TestBootcStage(t *testing.T) {
	target := Target{Image: "q/os@sha256:b", Digest: "sha256:b", Source: Source{Transport: "oci", Location: "/var/lib/b"}, Kargs: []string{"quiet"}, SoftReboot: true}
	booted := bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", "")
	const switched, kargs, lock = "bootc switch --quiet --transport oci /var/lib/b", "bootc loader-entries set-options-for-source --source refit --options quiet", "ostree admin lock-finalization"
	owners, locks := Answer{Out: "set-options-for-source"}, Answer{Out: "  lock-finalization  Change the finalization locking state"}
	for name, c := range map[string]struct {
		answers map[string]Answer
		want    []string
	}{
		"an old one": {map[string]Answer{}, []string{switched}},
		"one that can download only, and restart softly: nothing is prepared for that yet": {map[string]Answer{"bootc switch --help": {Out: "--download-only --soft-reboot"}},
			[]string{"bootc switch --quiet --transport oci --download-only /var/lib/b"}},
		"one that can restart softly alone": {map[string]Answer{"bootc switch --help": {Out: "--soft-reboot"}},
			[]string{"bootc switch --quiet --transport oci --soft-reboot=auto /var/lib/b"}},
		"libostree locks": {map[string]Answer{"bootc switch --help": {Out: "--soft-reboot"}, "ostree admin --help": locks}, []string{switched, lock}},
		"arguments by their owner, before it is locked":           {map[string]Answer{"bootc loader-entries": owners, "ostree admin --help": locks, "ostree --version": {Out: libostree2026}}, []string{switched, kargs, lock}},
		"arguments by their owner unlock what bootc locked":       {map[string]Answer{"bootc switch --help": {Out: "--download-only"}, "bootc loader-entries": owners, "ostree admin --help": locks, "ostree --version": {Out: libostree2026}}, []string{"bootc switch --quiet --transport oci --download-only /var/lib/b", kargs, lock}},
		"a libostree that would lose the owners":                  {map[string]Answer{"bootc loader-entries": owners, "ostree --version": {Out: libostree2025}}, []string{switched}},
		"a libostree whose version is not known":                  {map[string]Answer{"bootc loader-entries": owners, "ostree --version": {Out: "libostree"}}, []string{switched}},
		"the command is there, and its help is of something else": {map[string]Answer{"bootc loader-entries": {Out: "usage"}, "ostree --version": {Out: libostree2026}}, []string{switched}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"bootc status": {Out: booted}, "bootc switch": {}, "bootc switch --help": {}, "ostree": {Code: 1}, "ostree admin lock-finalization": {}, "bootc loader-entries": {Code: 2}}}
			for k, v := range c.answers {
				s.Answers[k] = v
			}
			s.Do = func(line string, s *Script) {
				switch {
				case strings.HasSuffix(line, "--help"):
				case strings.HasPrefix(line, "bootc switch"):
					s.Answers["bootc status"] = Answer{Out: stagedDoc(false, strings.Contains(line, "--download-only"))}
				case line == kargs: // staged anew, without the lock
					s.Answers["bootc status"] = Answer{Out: stagedDoc(false, false)}
				}
			}
			if err := NewBootc(s.Host(t, nil)).Stage(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, s.Changes()); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// A host whose deployments bootc keeps itself has no owners of arguments, and libostree has
// nothing to lock there.
func TestBootcComposefs(t *testing.T) {
	booted := bootcDoc("null", `{"image":`+imgA+`,"incompatible":false,"pinned":false,"ostree":null,"composefs":{"verity":"v1","bootType":"Bls"}}`, "null", "")
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: booted}, "bootc switch --help": {Out: "--soft-reboot"}, "ostree admin --help": {Out: "lock-finalization"}, "ostree --version": {Out: libostree2026}, "bootc loader-entries": {Out: "set-options-for-source"}, "ostree": {Code: 1}}}
	got, err := NewBootc(s.Host(t, nil)).Status(t.Context())
	if d := cmp.Diff([]string{CanKargsImage, CanSoftReboot}, got.Capabilities); d != "" || err != nil || !got.Composefs {
		t.Fatal(got, err, d)
	}
}

// A bootc that does not report the lock has it all the same.
func TestBootcReportsLibostreesLock(t *testing.T) {
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: stagedDoc(false, false)}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}, "ostree": {Code: 1}}}
	got, err := NewBootc(s.Host(t, map[string]string{"run/ostree/staged-deployment-locked": ""})).Status(t.Context())
	if err != nil || !got.Staged.Locked || !got.Next.Locked {
		t.Fatalf("%+v %v", got.Staged, err)
	}
}

// What was downloaded is let go. A restart of user space is asked for where that is permitted and
// bootc says of this very deployment that it can be, and reported only if its root is mounted then.
func TestActivate(t *testing.T) {
	const unlock = "ostree admin lock-finalization --unlock"
	for name, c := range map[string]struct {
		permitted, can, knows, locked, mounts, old bool
		how                                        Activation
		ran                                        []string
	}{
		"permitted, and it can be":                     {true, true, true, true, true, false, BySoftReboot, []string{"bootc upgrade --from-downloaded --soft-reboot=auto"}},
		"permitted, and bootc prepares nothing":        {true, true, true, true, false, false, ByReboot, []string{"bootc upgrade --from-downloaded --soft-reboot=auto"}},
		"not permitted":                                {false, true, true, true, true, false, ByReboot, []string{"bootc upgrade --from-downloaded"}},
		"another kernel: it cannot be":                 {true, false, true, true, true, false, ByReboot, []string{"bootc upgrade --from-downloaded"}},
		"a bootc that knows nothing of it":             {true, true, false, true, true, false, ByReboot, []string{"bootc upgrade --from-downloaded"}},
		"it was not locked, and nothing is prepared":   {true, true, true, false, true, false, BySoftReboot, []string{"bootc upgrade --from-downloaded --soft-reboot=auto"}},
		"not locked, not permitted":                    {false, true, true, false, true, false, ByReboot, nil},
		"a bootc that lets nothing go: libostree does": {true, true, true, true, true, true, ByReboot, []string{unlock}},
		"the same, not locked":                         {true, true, true, false, true, true, ByReboot, nil},
	} {
		t.Run(name, func(t *testing.T) {
			help, upgrade := "--download-only", "--from-downloaded"
			if c.knows {
				help += " --soft-reboot"
			}
			if c.old {
				upgrade = ""
			}
			s := &Script{Answers: map[string]Answer{"bootc status": {Out: stagedDoc(c.can, c.locked)}, "bootc upgrade": {}, "bootc upgrade --help": {Out: upgrade}, "bootc switch --help": {Out: help}, "bootc loader-entries": {Code: 2}, "ostree": {Code: 1}, unlock: {}}}
			h := s.Host(t, nil)
			s.Do = func(line string, s *Script) {
				if line != unlock && !strings.HasPrefix(line, "bootc upgrade --from") {
					return
				}
				s.Answers["bootc status"] = Answer{Out: stagedDoc(c.can, false)}
				if c.mounts && strings.HasSuffix(line, "--soft-reboot=auto") {
					if err := os.MkdirAll(filepath.Join(h.Root, "run/nextroot/usr"), 0o755); err != nil {
						t.Error(err)
					}
				}
			}
			how, err := NewBootc(h).Activate(t.Context(), Target{SoftReboot: c.permitted})
			if d := cmp.Diff(c.ran, s.Changes()); d != "" || err != nil || how != c.how {
				t.Fatal(how, err, d)
			}
		})
	}
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: stagedDoc(false, true)}, "bootc upgrade": {}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}, "ostree": {Code: 1}, unlock: {}}}
	if _, err := NewBootc(s.Host(t, nil)).Activate(t.Context(), Target{}); err == nil {
		t.Fatal("what is locked still is called let go")
	}
}

// Without libostree's program what is staged is dropped by rolling back twice.
func TestDiscardWithoutOSTree(t *testing.T) {
	staged, queued, plain := bootcDoc(bootcEntryOf("bb", imgB, ""), bootcEntryOf("aa", imgA, ""), bootcEntryOf("cc", imgB, ""), ""),
		bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("cc", imgB, ""), `,"rollbackQueued":true`), bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("cc", imgB, ""), "")
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: staged}, "bootc rollback": {}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}}}
	s.Do = func(line string, s *Script) {
		if line != "bootc rollback" {
			return
		}
		now := queued
		if s.Answers["bootc status"].Out == queued {
			now = plain
		}
		s.Answers["bootc status"] = Answer{Out: now}
	}
	if err := NewBootc(s.Host(t, nil)).Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Answers["bootc status"].Out != plain {
		t.Fatal("something is still staged or queued")
	}
}

// A first image that could not be dropped again is not staged: the node could go neither on nor back.
func TestFirstImageThatCannotBeDropped(t *testing.T) {
	first := bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", "")
	composefs := bootcDoc("null", `{"image":`+imgA+`,"incompatible":false,"pinned":false,"ostree":null,"composefs":{"verity":"v1"}}`, "null", "")
	for name, c := range map[string]struct {
		doc     string
		ostree  bool
		refused bool
	}{
		"no ostree, no earlier deployment":      {first, false, true},
		"one is staged already":                 {stagedDoc(false, false), false, true},
		"ostree drops it":                       {first, true, false},
		"an earlier deployment":                 {bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("cc", imgB, ""), ""), false, false},
		"bootc keeps the deployments by itself": {composefs, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"bootc status": {Out: c.doc}, "bootc switch": {}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}}}
			if c.ostree {
				s.Answers["ostree"] = Answer{Code: 1}
			}
			d := NewBootc(s.Host(t, nil))
			got, err := d.Status(t.Context())
			if err != nil || (got.Unsupported != "") != c.refused {
				t.Fatalf("%q %v", got.Unsupported, err)
			}
			err = d.Stage(t.Context(), Target{Source: Source{Transport: Layout, Location: "/var/lib/b"}})
			if errors.Is(err, ErrUnsupported) != c.refused || c.refused == (len(s.Changes()) > 0) {
				t.Fatal(err, s.Changes())
			}
		})
	}
}

// Where bootc keeps the deployments itself, the first one that it stages can be dropped too:
// there is nothing to roll back to, and libostree knows nothing of it.
func TestDiscardFirstOfComposefs(t *testing.T) {
	entry := func(v string) string {
		return `{"image":` + imgA + `,"incompatible":false,"pinned":false,"ostree":null,"composefs":{"verity":"` + v + `"}}`
	}
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: bootcDoc(entry("v2"), entry("v1"), "null", "")}, "bootc rollback": {Code: 1, Out: "No rollback available"}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2}}}
	h := s.Host(t, map[string]string{"run/composefs/staged-deployment": "{}"})
	s.Do = func(line string, s *Script) {
		if _, err := os.Stat(filepath.Join(h.Root, "run/composefs/staged-deployment")); err != nil {
			s.Answers["bootc status"] = Answer{Out: bootcDoc("null", entry("v1"), "null", "")}
		}
	}
	if err := NewBootc(h).Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.Changes()) != 0 {
		t.Fatal(s.Changes())
	}
}

// bootc refuses to roll back to a deployment that is from no container image: a host could not
// leave its first image. libostree does it, or deploys that commit once more.
func TestRollbackToNoImage(t *testing.T) {
	const foreign = `{"image":null,"incompatible":false,"pinned":false,"ostree":{"checksum":"CC","deploySerial":0}}`
	sum := func(s string) string { return strings.ReplaceAll(s, "CC", strings.Repeat("c", 64)) }
	aa := strings.Repeat("a", 64)
	plain := sum(bootcDoc("null", bootcEntryOf(aa, imgA, ""), foreign, ""))
	queued := sum(bootcDoc("null", bootcEntryOf(aa, imgA, ""), foreign, `,"rollbackQueued":true`))
	again := sum(bootcDoc(strings.Replace(foreign, `Serial":0`, `Serial":1`, 1), bootcEntryOf(aa, imgA, ""), foreign, ""))
	list := "* os " + aa + ".0\n" + sum("  os CC.0 (rollback)\n")
	back := sum("  os CC.0\n") + "* os " + aa + ".0\n"
	const refused = "error: Rolling back: Rollback is not container image based"
	entry := map[string]string{"boot/loader/entries/ostree-1.conf": "options root=/dev/x old=1 ostree=/ostree/boot.1/os/x/0\n", "ostree/boot.1/os/x/0": sum("-> /ostree/deploy/os/deploy/CC.0")}
	for name, c := range map[string]struct {
		admin string
		first string // status before
		do    func(*testing.T, *BootcDriver) error
		want  []string
	}{
		"libostree can change the order": {"set-default", plain, func(t *testing.T, d *BootcDriver) error { return d.Rollback(t.Context()) },
			[]string{"bootc rollback", "ostree admin set-default 1"}},
		"it cannot: the commit is deployed again, with its arguments": {"deploy", plain, func(t *testing.T, d *BootcDriver) error { return d.Rollback(t.Context()) },
			[]string{"bootc rollback", sum("ostree admin deploy --stage --os=os --karg-none --karg-append=root=/dev/x --karg-append=old=1 CC")}},
		"a queued one is cancelled": {"set-default", queued, func(t *testing.T, d *BootcDriver) error { return d.Discard(t.Context()) },
			[]string{"bootc rollback", "ostree admin set-default 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"bootc status": {Out: c.first}, "bootc rollback": {Code: 1, Out: refused}, "bootc switch --help": {}, "bootc loader-entries": {Code: 2},
				"ostree": {Code: 1}, "ostree admin --help": {Out: c.admin}, "ostree admin status": {Out: list}, "ostree admin set-default": {}, "ostree admin deploy": {}, "ostree show": {Code: 1, Out: "error: No such metadata key"}}}
			if c.first == queued {
				s.Answers["ostree admin status"] = Answer{Out: back}
			}
			s.Do = func(line string, s *Script) {
				switch {
				case strings.HasPrefix(line, "ostree admin deploy"):
					s.Answers["bootc status"] = Answer{Out: again}
				case strings.HasPrefix(line, "ostree admin set-default") && c.first == queued:
					s.Answers["bootc status"], s.Answers["ostree admin status"] = Answer{Out: plain}, Answer{Out: list}
				case strings.HasPrefix(line, "ostree admin set-default"):
					s.Answers["bootc status"], s.Answers["ostree admin status"] = Answer{Out: queued}, Answer{Out: back}
				}
			}
			if err := c.do(t, NewBootc(s.Host(t, entry))); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, s.Changes()); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestRollback(t *testing.T) {
	none := bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", "")
	s := &Script{Answers: map[string]Answer{"bootc status": {Out: none}, "bootc rollback": {}, "bootc switch --help": {}, "ostree": {Code: 1}, "bootc loader-entries": {Code: 2}}}
	if err := NewBootc(s.Host(t, nil)).Rollback(t.Context()); !errors.Is(err, ErrNoRollback) {
		t.Fatal(err)
	}
	s.Answers["bootc status"] = Answer{Out: bootcDoc("null", bootcEntryOf("aa", imgA, ""), bootcEntryOf("bb", imgB, ""), "")} // no command queues a rollback
	if err := NewBootc(s.Host(t, nil)).Rollback(t.Context()); err == nil {
		t.Fatal("a rollback that is not queued is called done")
	}
}

// upgrade --check ends with 0 either way: what counts is the digest.
func TestNewer(t *testing.T) {
	for name, c := range map[string]struct{ cached, want string }{
		"nothing is known":         {"null", ""},
		"the tag has not moved":    {imgA, ""},
		"another digest is behind": {imgB, "sha256:b"},
	} {
		text := strings.Replace(bootcDoc("null", bootcEntryOf("aa", imgA, ""), "null", ""), `"cachedUpdate":null`, `"cachedUpdate":`+c.cached, 1)
		s := &Script{Answers: map[string]Answer{"bootc status": {Out: text}, "bootc upgrade --check": {Out: "any output"}}}
		if got, err := NewBootc(s.Host(t, nil)).Newer(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
