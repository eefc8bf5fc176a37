package bootimagecheck_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
)

// What bootupd writes, as of versions 0.2.9 and 0.2.26.
const (
	older = `{"installed":{"BIOS":{"meta":{"timestamp":"2022-09-29T18:40:50Z","version":"grub2-tools-1:2.06-42.fc36.x86_64"},"filetree":null,"adopted-from":null},
"EFI":{"meta":{"timestamp":"2022-06-16T01:35:49Z","version":"grub2-efi-x64-1:2.06-42.fc36.x86_64,shim-x64-15.6-1.x86_64"},"filetree":{"timestamp":"1970-01-01T00:00:00Z","children":{}},"adopted-from":null}},"pending":null}`
	newer  = `{"installed":{"EFI":{"meta":{"timestamp":"2025-02-04T10:00:00Z","version":"grub2-1:2.12-28.fc42,shim-15.8-3"}}}}`
	broken = `{"installed":{"EFI":`
)

// The boot loader is as old as the disk, also after updates of the OS.
func TestReadBootloader(t *testing.T) {
	t.Parallel()
	june := time.Date(2022, 6, 16, 1, 35, 49, 0, time.UTC)
	for name, tc := range map[string]struct {
		files map[string]string
		efi   bool
		want  bootimagecheck.Bootloader
	}{
		"bootupd on EFI":                     {map[string]string{"boot/bootupd-state.json": older}, true, bootimagecheck.Bootloader{Shim: "15.6", Grub: "2.06", Built: june}},
		"bootupd on BIOS":                    {map[string]string{"boot/bootupd-state.json": older}, false, bootimagecheck.Bootloader{Grub: "2.06", Built: time.Date(2022, 9, 29, 18, 40, 50, 0, time.UTC)}},
		"a newer bootupd":                    {map[string]string{"boot/bootupd-state.json": newer}, true, bootimagecheck.Bootloader{Shim: "15.8", Grub: "2.12", Built: time.Date(2025, 2, 4, 10, 0, 0, 0, time.UTC)}},
		"a broken record: the files":         {map[string]string{"boot/bootupd-state.json": broken, "boot/efi/EFI/fedora/shimx64.efi": program("shim,4,UEFI shim,shim,15.8,https://x\n")}, true, bootimagecheck.Bootloader{Shim: "15.8"}},
		"the files, the vendor's first":      {map[string]string{"boot/efi/EFI/BOOT/grubx64.efi": program("grub,1,x,grub,2.02,y\n"), "boot/efi/EFI/redhat/grubx64.efi": program("sbat,1,SBAT Version,sbat,1,z\ngrub,3,Free Software Foundation,grub,2.06,https://g\ngrub.rh,2,Red Hat,grub2,2.06-70.el9,m\n")}, true, bootimagecheck.Bootloader{Grub: "2.06"}},
		"a program without SBAT says none":   {map[string]string{"boot/efi/EFI/redhat/shimx64.efi": "MZ no program"}, true, bootimagecheck.Bootloader{}},
		"a version that is a text says none": {map[string]string{"boot/bootupd-state.json": `{"installed":{"EFI":{"meta":{"version":"unknown"}}}}`}, true, bootimagecheck.Bootloader{}},
		"nothing":                            {nil, false, bootimagecheck.Bootloader{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for path, text := range tc.files {
				put(t, filepath.Join(root, path), text)
			}
			if tc.efi {
				put(t, filepath.Join(root, "sys/firmware/efi/fw_platform_size"), "64\n")
			}
			if diff := cmp.Diff(tc.want, bootimagecheck.ReadBootloader(root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// program is a PE file with nothing but an SBAT section.
func program(sbat string) string {
	var b bytes.Buffer
	dos := make([]byte, 64)
	copy(dos, "MZ")
	binary.LittleEndian.PutUint32(dos[60:], 64)
	b.Write(dos)
	b.WriteString("PE\x00\x00")
	le := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	const optional = 240
	le(struct {
		Machine, Sections     uint16
		Time, Symbols, Number uint32
		Optional, Flags       uint16
	}{0x8664, 1, 0, 0, 0, optional, 0})
	opt := make([]byte, optional)
	binary.LittleEndian.PutUint16(opt, 0x20b)
	binary.LittleEndian.PutUint32(opt[108:], 16) // directories
	b.Write(opt)
	at := uint32(b.Len() + 40)
	name := [8]byte{'.', 's', 'b', 'a', 't'}
	le(struct {
		Name                   [8]byte
		Virtual, Address       uint32
		Size, At, Reloc, Lines uint32
		NReloc, NLines         uint16
		Flags                  uint32
	}{name, uint32(len(sbat)), 0x1000, uint32(len(sbat)), at, 0, 0, 0, 0, 0})
	b.WriteString(sbat)
	return b.String()
}

// A program that is cut off, or has nothing but a table, has no version; nothing panics.
func TestDamagedPrograms(t *testing.T) {
	t.Parallel()
	whole := program("grub,1,x,grub,2.02,y\n")
	many := []byte(whole)
	binary.LittleEndian.PutUint16(many[70:], 0xffff)
	for name, text := range map[string]string{"all sections": string(many), "header far away": "MZ" + strings.Repeat("\xff", 62), "half": whole[:len(whole)/2], "table": whole[:len(whole)-21], "signature": whole[:66], "empty": ""} {
		root := t.TempDir()
		put(t, filepath.Join(root, "boot/efi/EFI/BOOT/grubx64.efi"), text)
		if got := bootimagecheck.ReadBootloader(root); got != (bootimagecheck.Bootloader{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
