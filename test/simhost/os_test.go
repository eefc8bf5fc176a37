package simhost

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
)

// There, by digest and arguments, and back, without the image being fetched again.
func TestThereAndBack(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		n.isOn("1", "first=1")
		task := n.step(n.put(version(t, "2", nil, "second=2")), "second=2")
		done(t, n.there(task))
		n.isOn("2", "second=2")
		n.without("first=1")
		boots := n.Boots
		done(t, n.there(task)) // again: nothing happens
		if n.Boots != boots {
			t.Fatal("the machine was restarted for nothing")
		}
		if err := os.RemoveAll(filepath.Join(n.Stateroot(), "var/lib/images")); err != nil {
			t.Fatal(err)
		}
		done(t, n.back(task))
		n.isOn("1", "first=1")
		n.without("second=2")
		if n.Boots != boots+1 {
			t.Fatalf("%d restarts for the rollback", n.Boots-boots)
		}
		done(t, n.back(task))
	})
}

// Three versions in a row: what each one brought is undone by the next.
func TestVersionsInARow(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		for _, v := range []string{"2", "3", "4"} {
			done(t, n.there(n.step(n.put(version(t, v, nil, "v="+v)), "v="+v)))
			n.isOn(v, "v="+v)
		}
		n.without("first=1", "v=2", "v=3")
		done(t, n.there(n.step(n.put(version(t, "5", nil)))))
		n.isOn("5")
		n.without("v=4")
	})
}

// What is staged and not finished is lost with the power: the node is on the old
// image, says so, and can go on.
func TestPowerCutBeforeShutdown(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		task := n.step(n.put(version(t, "2", nil)))
		failed(t, n.drive(task, (*osdeploy.Updater).Update, func() { n.PowerCut(); n.Boot() }), v1alpha1.ReasonVersionReverted)
		n.isOn("1", "first=1")
		task.Attempt = 2
		done(t, n.there(task))
		n.isOn("2")
	})
}

// /boot is full at shutdown: ostree reports no error, and the next boot is the old image (T5).
func TestFinaliseFails(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		task := n.step(n.put(version(t, "2", nil)))
		r := n.drive(task, (*osdeploy.Updater).Update, func() {
			n.Shutdown("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/boot/ostree")
			n.Boot()
		})
		failed(t, r, v1alpha1.ReasonVersionReverted)
		if !strings.Contains(r.Message, "No space left on device") {
			t.Errorf("the host's own words are missing: %s", r.Message)
		}
		n.isOn("1", "first=1")
		task.Attempt = 2
		done(t, n.there(task))
		n.isOn("2")
	})
}

// A user takes the old entry at the boot menu: seen, said, and left.
func TestPickedAtTheBootMenu(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		task := n.step(n.put(version(t, "2", nil)))
		failed(t, n.drive(task, (*osdeploy.Updater).Update, func() { n.Shutdown(); n.BootPick(1) }), v1alpha1.ReasonOSRolledBack)
		n.isOn("1", "first=1")
		boots := n.Boots
		done(t, n.back(task)) // the undo of the engine finds it where it should be
		if n.Boots > boots+1 {
			t.Fatal("it was restarted more than once")
		}
		n.isOn("1", "first=1")
	})
}

// The merge of /etc as libostree does it (2.7): who decides here must know it.
func TestEtcMerge(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		one := version(t, "2", Files{"etc/edited": "two", "etc/mode": "two", "etc/equal": "two", "etc/plain": "two", "etc/late": "two", "etc/dir": "two"})
		two := version(t, "3", Files{"etc/edited": "three", "etc/mode": "three", "etc/equal": "three", "etc/plain": "three", "etc/late": "three", "etc/dir": "three"})
		done(t, n.there(n.step(n.put(one))))
		n.Must("sh", "-c", "echo mine > /etc/edited; chmod 600 /etc/mode; printf two > /etc/equal.new; mv /etc/equal.new /etc/equal; rm /etc/dir; mkdir /etc/dir; echo new > /etc/added")
		task := n.step(n.put(two))
		done(t, n.drive(task, (*osdeploy.Updater).Update, func() { n.Must("sh", "-c", "echo late > /etc/late"); n.Reboot() }))
		n.isOn("3")
		for path, want := range map[string]string{
			"edited": "mine",  // a local edit stays, the image's new version is ignored
			"mode":   "two",   // a change of the mode alone keeps the old content too
			"equal":  "three", // written with the old default's content it counts as not edited
			"plain":  "three",
			"late":   "late", // edited after staging, before shutdown
			"added":  "new",
		} {
			if got := n.Must("cat", "/etc/"+path); got != want {
				t.Errorf("/etc/%s is %q, not %q", path, got, want)
			}
		}
		n.Must("test", "-d", "/etc/dir")
		drift := map[string]bool{}
		for _, d := range n.status().Drift {
			if d.Kind == osdriver.DriftShadow {
				drift[strings.Fields(d.Detail)[0]] = true
			}
		}
		for path, hides := range map[string]bool{"/etc/edited": true, "/etc/mode": true, "/etc/late": true, "/etc/plain": false} {
			if drift[path] != hides {
				t.Errorf("%s hides the image's: %v, reported %v", path, hides, drift[path])
			}
		}
	})
}

// Two stagings in one boot: the arguments of the first are lost by libostree, and not
// by us.
func TestStagedTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		first := n.step(n.put(version(t, "2", nil, "a=1")), "a=1")
		u := n.updater()
		for range 10 {
			if _, err := u.Update(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			if n.Asked() {
				break
			}
		}
		n.Must("rm", "/run/reboot-asked")
		done(t, n.there(n.step(n.put(version(t, "3", nil, "a=1", "b=2")), "a=1", "b=2")))
		n.isOn("3", "a=1", "b=2")
	})
}

// The arguments alone change: on a host that has its own, the image stays.
func TestArgumentsAlone(t *testing.T) {
	n := newNode(t, osdriver.OSTree)
	image := n.put(version(t, "2", nil))
	done(t, n.there(n.step(image, "a=1")))
	n.isOn("2", "a=1")
	task := n.step(image, "b=2")
	done(t, n.there(task))
	n.isOn("2", "b=2")
	n.without("a=1")
	done(t, n.back(task))
	n.isOn("2", "a=1")
	n.without("b=2")
}

// A host with bootc has them from the image alone: said before anything restarts.
func TestArgumentsThatTheImageDoesNotBring(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	image := n.put(version(t, "2", nil))
	done(t, n.there(n.step(image)))
	boots := n.Boots
	failed(t, n.there(n.step(image, "a=1")), v1alpha1.ReasonKernelArguments)
	if n.Boots != boots {
		t.Fatal("the machine was restarted for nothing")
	}
}

// "unchanged" is no success: a rollback is queued, and the image is the booted one's
// reference (2.2).
func TestUnchangedTrap(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	image := n.put(version(t, "2", nil))
	done(t, n.there(n.step(image)))
	n.Must("bootc", "rollback")
	if out := n.Must("bootc", "switch", "--transport", "oci", n.status().Booted.Image); !strings.Contains(out, "unchanged") || !n.status().RollbackQueued {
		t.Fatalf("the trap is not there: %q", out)
	}
	done(t, n.there(n.step(image)))
	n.isOn("2")
	n.Reboot()
	n.isOn("2")
}

// A bootc that cannot download only moves with any restart: staging is late there, and
// the rest is the same (T2).
func TestOldBootc(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	n.Must("sh", "-c", ": > /etc/bootc-is-old")
	if n.status().Can(osdriver.CanDownloadOnly) {
		t.Fatal("it can download only")
	}
	done(t, n.there(n.step(n.put(version(t, "2", nil)))))
	n.isOn("2")
}

// What is only downloaded is not booted by another user's restart (T2).
func TestDownloadOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) { downloadOnly(t, n) })
}

func downloadOnly(t *testing.T, n *node) {
	image := n.put(version(t, "2", nil))
	d, err := hostOf{n}.Driver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	src, _, err := hostOf{n}.Image(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	_, digest, _ := strings.Cut(image, "@")
	if err := d.Stage(t.Context(), osdriver.Target{Image: image, Digest: digest, Source: src}); err != nil {
		t.Fatal(err)
	}
	if s := n.status(); s.Staged == nil || !s.Staged.Locked {
		t.Fatalf("not locked: %+v", s.Staged)
	}
	n.Reboot()
	n.isOn("1", "first=1")
}

// The registry has the image no more: the node stays, and says what was asked for.
func TestImageIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		n.registry = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		t.Cleanup(n.registry.Close)
		repo := strings.TrimPrefix(n.registry.URL, "http://") + "/os"
		img := version(t, "2", nil)
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewDigest(repo + "@" + d.String())
		if err != nil {
			t.Fatal(err)
		}
		task := n.step(ref.String())
		r := n.there(task)
		failed(t, r, v1alpha1.ReasonOSNotStaged)
		if n.Boots != 1 || !n.status().NextIsBooted() {
			t.Fatal("something was changed")
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		task.Attempt = 2
		done(t, n.there(task))
		n.isOn("2")
	})
}

// What another user staged is dropped before, and packages that were layered
// keep bootc from moving the host.
func TestForeign(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		n.Must("ostree", "admin", "deploy", "--stage", "--os="+OSName, "stock")
		done(t, n.there(n.step(n.put(version(t, "2", nil)))))
		n.isOn("2")
	})
	t.Run("layered", func(t *testing.T) {
		n := newNode(t, osdriver.Bootc)
		origin := n.Entries()[0].Deployment + ".origin"
		b, err := os.ReadFile(origin)
		if err == nil {
			err = os.WriteFile(origin, append(b, "\n[packages]\nrequested=htop;\n"...), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := n.status(); s.Driver == osdriver.Bootc {
			t.Fatalf("bootc would move it: %+v", s)
		}
	})
}

// bootc stages, and fails then, because it cannot pull what the image binds: nothing of it is left that
// a restart would boot.
func TestBoundImages(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	n.Must("sh", "-c", ": > /etc/bootc-is-old")
	r := n.there(n.step(n.put(version(t, "2", Files{"usr/share/db.container": "[Container]\nImage=registry.example/db\n", "usr/lib/bootc/bound-images.d/db.container": "-> /usr/share/db.container"}))))
	failed(t, r, v1alpha1.ReasonOSNotStaged)
	if !strings.Contains(r.Message, "bound image") || !n.status().NextIsBooted() || n.Boots != 1 {
		t.Fatalf("%s; next %+v after %d boots", r.Message, n.status().Next, n.Boots)
	}
	n.Reboot()
	n.isOn("1", "first=1")
}

// A host that came to bootc from a deployment without an image returns to it, which bootc refuses to do.
func TestReturnFromTheFirstImage(t *testing.T) {
	n := newNode(t, osdriver.Bootc)
	n.Must("ostree", "commit", "--repo=/ostree/repo", "--branch=foreign", "--bootable", "--tree=ref=stock")
	n.Must("ostree", "admin", "deploy", "--os="+OSName, "foreign")
	n.Reboot()
	image := n.put(version(t, "2", nil))
	_, digest, _ := strings.Cut(image, "@")
	n.Must("bootc", "switch", "--transport", "oci", filepath.Join("/var", n.inside(digest)))
	n.Reboot()
	if s := n.status(); s.Driver != osdriver.Bootc || s.Booted.Digest != digest || s.Rollback == nil || s.Rollback.Digest != "" {
		t.Fatalf("%+v, rollback %+v", s.Booted, s.Rollback)
	}
	d, err := hostOf{n}.Driver(t.Context())
	if err == nil {
		err = d.Rollback(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.Reboot()
	if s := n.status(); s.Booted.Digest != "" {
		t.Fatalf("%+v", s.Booted)
	}
}
