package statusreport

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func TestRebootFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reboot-required")
	boot := "one"
	r := &Reboot{Path: path, BootID: func() (string, error) { return boot, nil }}
	check := func(when string, want *v1alpha1.RebootRequest, content string) {
		t.Helper()
		if err := r.Update(want); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if b, _ := os.ReadFile(path); string(b) != content {
			t.Errorf("%s: the file has %q, want %q", when, b, content)
		}
	}
	asked := &v1alpha1.RebootRequest{BootID: "one", Cause: "ImageTrack gpu: 2.1\nof the driver"}
	check("nothing is asked for", nil, "")
	check("a reboot is asked for", asked, "refit: ImageTrack gpu: 2.1 of the driver\n")
	check("again", asked, "refit: ImageTrack gpu: 2.1 of the driver\n")
	check("it is asked for no more", nil, "")
	check("asked for once more", asked, "refit: ImageTrack gpu: 2.1 of the driver\n")
	boot = "two"
	check("the machine rebooted, and its /run is on a disk", asked, "")
	boot = "one"
	const other = "*** System restart required ***\n"
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	check("another program asks for it", asked, other)
	check("and refit does not any more", nil, other)
	r.Path = filepath.Join(path, "below")
	if err := r.Update(asked); err == nil {
		t.Error("no error where the file cannot be")
	}
}
