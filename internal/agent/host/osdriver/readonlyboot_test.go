package osdriver

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// bootc mounts /boot read-only. Boots are counted there too, and it stays read-only for the host.
func TestBootCounterOnReadOnlyBoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
	c := hostWith(t, nil)
	boot := filepath.Join(c.Root, "boot")
	if err := os.MkdirAll(boot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("refit-test", boot, "tmpfs", 0, ""); err != nil {
		t.Skipf("this machine mounts nothing: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(boot, 0); err != nil {
			t.Error(err)
		}
	})
	// GRUB's file is a link on hosts with EFI.
	writeAt(t, c, "boot/efi/grubenv", block("boot_success=1\n"))
	writeAt(t, c, "boot/grub2/grub.cfg", countingConfig)
	if err := os.Symlink("../efi/grubenv", filepath.Join(boot, "grub2/grubenv")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", boot, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Arm(t.Context()); err == nil {
		t.Error("without a runner a read-only /boot was written")
	}
	c.Runner = Command{}
	if err := c.Arm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := c.mustEnv(t), block("boot_counter=2\nboot_success=0\n"); got != want {
		t.Fatalf("armed: %q", got)
	}
	if err := c.Disarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := c.mustEnv(t), block("boot_success=1\n"); got != want {
		t.Fatalf("disarmed: %q", got)
	}
	if err := os.WriteFile(filepath.Join(boot, "x"), nil, 0o600); err == nil {
		t.Error("/boot is writable for the host now")
	}
}
