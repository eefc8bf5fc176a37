package statusreport

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/text"
)

// RebootFile is where reboot daemons (kured, unattended-upgrades) expect that a machine needs a
// reboot. It is on a file system in memory, so a reboot removes it.
const RebootFile = "/run/reboot-required"

// rebootHead is the first word of a file that refit wrote.
const rebootHead = "refit: "

// Reboot asks others to reboot this machine.
type Reboot struct {
	Path string
	// BootID reads that of the running boot.
	BootID func() (string, error)
}

// NewReboot is that of this machine.
func NewReboot() *Reboot {
	return &Reboot{Path: RebootFile, BootID: func() (string, error) {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		return strings.TrimSpace(string(b)), err
	}}
}

// Update writes the file if a reboot is asked for since this boot, and otherwise removes it. A file
// of another program stays: the reboot that it asks for serves both.
func (r *Reboot) Update(want *v1alpha1.RebootRequest) error {
	have, err := os.ReadFile(r.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the reboot file: %w", err)
	}
	if err == nil && !bytes.HasPrefix(have, []byte(rebootHead)) {
		return nil
	}
	cause, err := r.cause(want)
	switch {
	case err != nil || cause == string(have):
		return err
	case cause == "":
		err = os.Remove(r.Path)
	default:
		err = fsutil.WriteFile(r.Path, []byte(cause), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the reboot file: %w", err)
	}
	return nil
}

// cause is the content of the file; empty if no reboot is asked for since this boot.
func (r *Reboot) cause(want *v1alpha1.RebootRequest) (string, error) {
	if want == nil {
		return "", nil
	}
	boot, err := r.BootID()
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	if boot != want.BootID {
		return "", nil
	}
	return rebootHead + text.CleanLine(want.Cause) + "\n", nil
}
